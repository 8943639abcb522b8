# SPDX-License-Identifier: GPL-2.0-only
"""An ELF file opened for reading: headers through pyelftools, sections as bounded bytes.

Every way in which a damaged file can hurt the library ends as one
:class:`~ktest_ntcopy.errors.ConfigError` line.  Only the parts asked for are read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from ktest_ntcopy.errors import ConfigError

#: e_machine -> what ``uname -m`` says, as far as Linux has the architecture.
MACHINES = {
    "EM_X86_64": "x86_64",
    "EM_386": "i686",
    "EM_AARCH64": "aarch64",
    "EM_ARM": "armv7l",
    "EM_RISCV": "riscv64",
    "EM_PPC64": "ppc64",
    "EM_PPC": "ppc",
    "EM_S390": "s390x",
    "EM_MIPS": "mips",
    "EM_LOONGARCH": "loongarch64",
    "EM_SPARCV9": "sparc64",
    "EM_PARISC": "parisc",
    "EM_68K": "m68k",
    "EM_SH": "sh",
    "EM_ALPHA": "alpha",
}

#: What pyelftools raises on damaged input, beside its own ELFError.
_DAMAGE = (
    ELFError,
    ConstructError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)

_NT_GNU_BUILD_ID = 3
_NT_XEN_PHYS32_ENTRY = 18


@dataclass(frozen=True)
class Section:
    """Where a section lies: all figures in bytes."""

    name: str
    address: int
    offset: int
    size: int
    entry_size: int
    link: int  #: index of an associated section, e.g. a symbol table's strings
    no_bits: bool  #: takes no room in the file (.bss)


@dataclass(frozen=True)
class Note:
    """One ELF note."""

    owner: str
    kind: int
    data: bytes


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever damaged input raises inside into one ConfigError line."""
    try:
        yield
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err
    except _DAMAGE as err:
        said = str(err).splitlines()[0] if str(err) else type(err).__name__
        raise ConfigError(f"{path}: damaged ELF file ({said}); build it again") from err


class Elf:
    """An open ELF file.  Use as a context manager.

    Raises ConfigError for a file that is no ELF file or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(path):
            self._file: BinaryIO = path.open("rb")
        try:
            with reading(path):
                self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        self.file_size = os.fstat(self._file.fileno()).st_size
        elf: Any = ELFFile(self._file)
        self._segments = [(s["p_type"], s["p_offset"], s["p_filesz"]) for s in _segments(elf)]
        self.little_endian: bool = elf.little_endian
        self.bits: int = elf.elfclass
        self.kind = str(elf["e_type"])
        self.machine = str(elf["e_machine"])
        self.order = "<" if self.little_endian else ">"
        self.sections = self._read_sections(elf)
        self._by_name = {s.name: s for s in reversed(self.sections)}
        end = max((o + n for t, o, n in self._segments if t == "PT_LOAD"), default=0)
        end = max(end, elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"])
        if end > self.file_size:
            raise ConfigError(
                f"{self.path}: truncated: headers speak of {end} bytes, the file has "
                f"{self.file_size}; copy or build it again"
            )

    def _read_sections(self, elf: Any) -> tuple[Section, ...]:
        count, size = elf["e_shnum"], elf["e_shentsize"]
        if elf["e_shoff"] + count * size > self.file_size:
            return ()  # the caller reports the truncation
        found = []
        for index in range(count):
            header = elf._get_section_header(index)
            found.append(
                Section(
                    name=str(elf._get_section_name(header)),
                    address=header["sh_addr"],
                    offset=header["sh_offset"],
                    size=header["sh_size"],
                    entry_size=header["sh_entsize"],
                    link=header["sh_link"],
                    no_bits=header["sh_type"] == "SHT_NOBITS",
                )
            )
        return tuple(found)

    def __enter__(self) -> Elf:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def arch(self) -> str:
        """What ``uname -m`` says on this machine type, or pyelftools' name for it."""
        return MACHINES.get(self.machine, self.machine.removeprefix("EM_").lower())

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return self._by_name.get(name)

    def read(self, section: Section, *, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of a section, all or a part.  Raises ConfigError if the file ends before."""
        length = section.size - start if size is None else size
        if section.no_bits or length <= 0:
            return b""
        begin = section.offset + start
        if begin + length > self.file_size:
            raise ConfigError(
                f"{self.path}: truncated: section {section.name} ends at byte "
                f"{begin + length}, the file at {self.file_size}; copy or build it again"
            )
        with reading(self.path):
            self._file.seek(begin)
            return self._file.read(length)

    def at(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes that the file holds for a virtual address; empty if none."""
        for section in self.sections:
            inside = address - section.address
            if section.address and 0 <= inside < section.size and not section.no_bits:
                return self.read(section, start=inside, size=min(size, section.size - inside))
        return b""

    def notes(self) -> tuple[Note, ...]:
        """All notes of all PT_NOTE segments; a damaged note ends its segment."""
        found: list[Note] = []
        for kind, offset, size in self._segments:
            if kind == "PT_NOTE" and size <= 1 << 20:
                with reading(self.path):
                    self._file.seek(offset)
                    found += _notes(self._file.read(size), self.order)
        return tuple(found)

    @property
    def build_id(self) -> str:
        """The linker's build id in hexadecimal, or empty."""
        for note in self.notes():
            if note.owner == "GNU" and note.kind == _NT_GNU_BUILD_ID:
                return note.data.hex()
        return ""

    @property
    def has_pvh_entry(self) -> bool:
        """True if QEMU can start this uncompressed x86 kernel (CONFIG_PVH)."""
        return any(n.owner == "Xen" and n.kind == _NT_XEN_PHYS32_ENTRY for n in self.notes())


def _segments(elf: Any) -> list[Any]:
    # A header may claim 65535 segments; each is read, so this is bounded by the file format.
    return [elf._get_segment_header(i) for i in range(elf["e_phnum"])]


def _notes(data: bytes, order: str) -> list[Note]:
    found = []
    at = 0
    while at + 12 <= len(data):
        owner_size, size, kind = struct.unpack_from(order + "III", data, at)
        owner_end = at + 12 + owner_size
        start = at + 12 + (owner_size + 3 & ~3)
        if start + size > len(data):
            break
        owner = data[at + 12 : owner_end].rstrip(b"\0").decode("ascii", "replace")
        found.append(Note(owner, kind, data[start : start + size]))
        at = start + (size + 3 & ~3)
    return found
