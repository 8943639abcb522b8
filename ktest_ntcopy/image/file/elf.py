# SPDX-License-Identifier: GPL-2.0-only
"""A kernel opened for reading: headers, and sections as bounded bytes.

Bytes come by position from a file, or from what was unpacked of one (see
:mod:`ktest_ntcopy.image.file.container`).  Every way in which a damaged file can hurt ends as
one :class:`~ktest_ntcopy.errors.ConfigError` line.  Only the parts asked for are read.
The few headers are decoded here, because importing pyelftools alone takes a quarter of
the time that all questions about a kernel may take; it reads DWARF, when that is asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.container import KERNEL_LIMIT, open_source
from ktest_ntcopy.image.file.machines import MACHINES, VARIANTS
from ktest_ntcopy.image.file.reader import occurrences
from ktest_ntcopy.image.file.unpack import UnpackError, pieces

_KINDS = {1: "ET_REL", 2: "ET_EXEC", 3: "ET_DYN", 4: "ET_CORE"}

#: What decoding damaged input raises.
_DAMAGE = (
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

_NOBITS, _PT_LOAD, _PT_NOTE = 8, 1, 4
_ALLOC, _EXECUTABLE, _COMPRESSED = 0x2, 0x4, 0x800
_NT_GNU_BUILD_ID = 3
_NT_XEN_PHYS32_ENTRY = 18
_COUNT_LIMIT = 1 << 16  # headers; kernels have about 60
_NAME_LIMIT = 256  # bytes of a section's name
_NAMES_LIMIT = 1 << 24  # bytes of all sections' names
_SEARCH_LIMIT = 128 << 20  # bytes; an allyesconfig has 60 MiB of read-only data
_DEBUG_LIMIT = 1 << 30  # bytes of one section of debug information
_PACKERS = {1: "zlib", 2: "zstd"}


@dataclass(frozen=True)
class Section:
    """Where a section lies: all figures in bytes."""

    name: str
    address: int
    offset: int
    size: int  #: in the file; :meth:`Elf.read` gives more if it is compressed
    entry_size: int
    link: int  #: index of an associated section, e.g. a symbol table's strings
    no_bits: bool  #: takes no room in the file (.bss)
    flags: int = 0  #: sh_flags

    @property
    def allocated(self) -> bool:
        """Part of the running kernel, unlike debug information."""
        return bool(self.flags & _ALLOC)

    @property
    def executable(self) -> bool:
        """Holds machine code."""
        return bool(self.flags & _EXECUTABLE)

    @property
    def compressed(self) -> bool:
        """Stored compressed, in today's way or in the old one (.zdebug_info)."""
        return bool(self.flags & _COMPRESSED) or self.name.startswith(".zdebug_")


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
    """An open kernel: an ELF file, one inside a bzImage, or a raw Image shown like one.

    Use as a context manager.  A raw Image has the sections ``.image`` (all of it) and, if
    there is BTF in it, ``.BTF``.  Raises ConfigError for a file that is none of these or
    is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source, self.container = open_source(path)
        self.file_size = self.source.size  #: bytes, of what was unpacked if it was packed
        try:
            with reading(path):
                self._open()
        except BaseException:
            self.source.close()
            raise

    def _open(self) -> None:
        head = self.source.read(0, min(64, self.file_size))
        self.flat = head[:4] != b"\x7fELF"  #: a raw Image
        if self.flat:
            self._open_flat(head)
        else:
            self._open_elf(head)
        self._by_name = {s.name: s for s in reversed(self.sections)}

    def _open_flat(self, head: bytes) -> None:
        from ktest_ntcopy.image.file.flat import flat_sections

        self.bits = 64
        self.kind = "ET_EXEC"
        machine = 183 if head[0x38:0x3C] == b"ARM\x64" else 243
        self.machine, self._arch = MACHINES[machine]
        self.little_endian = not (self.machine == "EM_AARCH64" and head[0x18] & 1)
        self.order = "<" if self.little_endian else ">"
        self._segments: tuple[tuple[int, int, int, int], ...] = ()
        self.sections = tuple(
            Section(name, address, offset, size, 0, 0, False, _ALLOC | _EXECUTABLE)
            for name, address, offset, size in flat_sections(self.source, self.order)
        )

    def _open_elf(self, head: bytes) -> None:
        if len(head) < 52 or head[4] not in (1, 2) or head[5] not in (1, 2):
            raise ConfigError(f"{self.path}: truncated or damaged ELF header; build it again")
        self.bits = 64 if head[4] == 2 else 32
        self.little_endian = head[5] == 1
        self.order = "<" if self.little_endian else ">"
        word = "Q" if self.bits == 64 else "I"
        kind, machine, _, _, segments_at, sections_at, _, _, *sizes = struct.unpack_from(
            f"{self.order}HHI{word}{word}{word}IHHHHHH", head, 16
        )
        self.kind = _KINDS.get(kind, f"ET_{kind}")
        self.machine = MACHINES.get(machine, (f"EM_{machine}", ""))[0]
        self._arch = MACHINES.get(machine, ("", f"machine {machine}"))[1]
        segment_size, segment_count, section_size, section_count, names_at = sizes
        header = struct.Struct(self.order + ("IIQQQQIIQQ" if self.bits == 64 else "IIIIIIIIII"))
        if sections_at and sections_at + header.size <= self.file_size:
            # Counts too large for the file's header stand in the first section's.
            first = header.unpack(self.source.read(sections_at, header.size))
            section_count = section_count or first[5]
            names_at = first[6] if names_at == 0xFFFF else names_at
            segment_count = first[7] if segment_count == 0xFFFF else segment_count
        self._check(sections_at, section_count, section_size, header.size, "section")
        layout = struct.Struct(self.order + ("IIQQQQQQ" if self.bits == 64 else "IIIIIIII"))
        self._check(segments_at, segment_count, segment_size, layout.size, "segment")
        pick = (0, 2, 3, 5) if self.bits == 64 else (0, 1, 2, 4)
        raw = self._table(segments_at, segment_count, layout.size)
        self._segments = tuple(
            (entry[pick[0]], entry[pick[1]], entry[pick[2]], entry[pick[3]])
            for entry in layout.iter_unpack(raw)
        )
        self.sections = self._read_sections(sections_at, section_count, header, names_at)
        # One with only .bss has no bytes in the file, and its offset may lie behind the end.
        loads = [o + size for t, o, _, size in self._segments if t == _PT_LOAD and size]
        tables = [sections_at + section_count * section_size]
        tables.append(segments_at + segment_count * segment_size)
        end = max([*loads, *tables])
        if end > self.file_size:
            raise ConfigError(
                f"{self.path}: truncated: headers speak of {end} bytes, the file has "
                f"{self.file_size}; copy or build it again"
            )
        if not self.sections:
            self.sections = tuple(
                Section(f"LOAD{i}", address, offset, size, 0, 0, False, _ALLOC | _EXECUTABLE)
                for i, (t, offset, address, size) in enumerate(self._segments)
                if t == _PT_LOAD
            )

    def _check(self, at: int, count: int, size: int, wanted: int, what: str) -> None:
        if count and at and size != wanted:
            raise ConfigError(
                f"{self.path}: damaged ELF header: {what} headers of {size} bytes instead of "
                f"{wanted}; build it again"
            )
        if count > _COUNT_LIMIT:
            raise ConfigError(
                f"{self.path}: damaged ELF header: {count} {what}s, no kernel has more than "
                f"{_COUNT_LIMIT}; build it again"
            )

    def _table(self, at: int, count: int, size: int) -> bytes:
        if not at or at + count * size > self.file_size:
            return b""  # the caller reports the truncation
        return self.source.read(at, count * size)

    def _read_sections(
        self, at: int, count: int, header: struct.Struct, names_at: int
    ) -> tuple[Section, ...]:
        entries = list(header.iter_unpack(self._table(at, count, header.size)))
        names = b""
        if names_at < len(entries):
            offset, size = entries[names_at][4:6]
            if size > _NAMES_LIMIT or offset + size > self.file_size:
                raise ConfigError(
                    f"{self.path}: damaged ELF file (section names at byte {offset}, "
                    f"{size} bytes long); build it again"
                )
            names = self.source.read(offset, size)
        return tuple(
            Section(
                name=names[e[0] : e[0] + _NAME_LIMIT].split(b"\0")[0].decode("latin-1"),
                address=e[3],
                offset=e[4],
                size=e[5],
                entry_size=e[9],
                link=e[6],
                no_bits=e[1] == _NOBITS,
                flags=e[2],
            )
            for e in entries
        )

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    @property
    def arch(self) -> str:
        """What ``uname -m`` says on this machine type."""
        variant = VARIANTS.get((self.machine, self.bits, self.little_endian))
        return variant or self._arch

    def section(self, name: str) -> Section | None:
        """The first section of that name; ``.debug_x`` may be stored as ``.zdebug_x``."""
        found = self._by_name.get(name)
        if found is None and name.startswith(".debug_"):
            return self._by_name.get(".z" + name[1:])
        return found

    def only_section(self, name: str) -> Section | None:
        """The section of a name that a file may have once.  Raises ConfigError for several."""
        if (count := sum(s.name == name for s in self.sections)) > 1:
            raise ConfigError(
                f"{self.path}: has {count} sections {name}, and which of them is the kernel's "
                "cannot be told; build it again"
            )
        return self.section(name)

    def read(self, section: Section, *, start: int = 0, size: int | None = None) -> bytes:
        """Bytes of a section, all or a part, unpacked if it is compressed.

        Raises ConfigError if the file ends before, or if the section is absurdly large.
        """
        if section.compressed and not section.no_bits:
            data = self._unpacked(section)
            return data[start : None if size is None else start + size]
        return self._stored(section, start, section.size - start if size is None else size)

    def _stored(self, section: Section, start: int, length: int) -> bytes:
        if section.no_bits or length <= 0:
            return b""
        begin = section.offset + start
        if begin + length > self.file_size:
            raise ConfigError(
                f"{self.path}: truncated: section {section.name} ends at byte "
                f"{begin + length}, the file at {self.file_size}; copy or build it again"
            )
        self._bound(section, length)
        return self.source.read(begin, length)

    def _bound(self, section: Section, length: int) -> None:
        limit = KERNEL_LIMIT if section.allocated else _DEBUG_LIMIT
        if length > limit:
            raise ConfigError(
                f"{self.path}: section {section.name} of {length >> 20} MiB is larger than any "
                f"kernel's ({limit >> 20} MiB); build it again"
            )

    def _unpacked(self, section: Section) -> bytes:
        if section.name.startswith(".zdebug_"):  # "ZLIB", unpacked size, data
            skip, packer = 12, "zlib"
            magic, length = struct.unpack(">4sQ", self._stored(section, 0, min(12, section.size)))
            packer = "zlib" if magic == b"ZLIB" else ""
        else:
            head = struct.Struct(self.order + ("I4xQ8x" if self.bits == 64 else "III"))
            skip = head.size
            kind, length = head.unpack(self._stored(section, 0, skip))[:2]
            packer = _PACKERS.get(kind, "")
        if not packer:
            raise ConfigError(
                f"{self.path}: section {section.name} is compressed in an unknown way; unpack "
                "it first (objcopy --decompress-debug-sections)"
            )
        self._bound(section, length)
        out = bytearray()
        base, end = section.offset + skip, section.size - skip
        self._stored(section, section.size - 1, 1)  # reports a truncation

        def read(at: int, size: int) -> bytes:
            return self.source.read(base + at, size)

        try:
            for piece in pieces(packer, read, end):
                out += piece
                if len(out) > length:
                    break
        except UnpackError as err:
            raise ConfigError(
                f"{self.path}: section {section.name}: {err}; build it again"
            ) from err
        if len(out) != length:
            raise ConfigError(
                f"{self.path}: section {section.name} claims to unpack to {length} bytes, but "
                "does not; build it again"
            )
        return bytes(out)

    def at(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes that the file holds for a virtual address; empty if none."""
        for section in self.sections:
            inside = address - section.address
            if section.address and 0 <= inside < section.size and not section.no_bits:
                return self.read(section, start=inside, size=min(size, section.size - inside))
        return b""

    def data_sections(self) -> tuple[Section, ...]:
        """The sections that may hold the kernel's constants, read-only data first."""
        found = [s for s in self.sections if s.allocated and not s.no_bits and s.size]
        if not self.flat and any(s.name == ".rodata" for s in found):
            found = [s for s in found if not s.executable]
        return tuple(sorted(found, key=lambda s: s.name != ".rodata"))

    def occurrences(self, pattern: bytes, *, size: int) -> Iterator[bytes]:
        """Up to ``size`` bytes from each place of a pattern in the kernel's data.

        Looks at no more than 128 MiB of sections.
        """
        left = _SEARCH_LIMIT
        for section in self.data_sections():
            length = min(left, section.size)
            for at in occurrences(self.source, pattern, start=section.offset, size=length):
                end = min(section.offset + section.size, self.file_size)
                yield self.source.read(at, min(size, end - at))
            left -= length

    def notes(self) -> tuple[Note, ...]:
        """All notes of all PT_NOTE segments; a damaged note ends its segment."""
        found: list[Note] = []
        for kind, offset, _, size in self._segments[:64]:
            if kind == _PT_NOTE and size <= 1 << 20 and offset + size <= self.file_size:
                with reading(self.path):
                    found += _notes(self.source.read(offset, size), self.order)
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
