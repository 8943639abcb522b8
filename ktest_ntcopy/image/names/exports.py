# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel exports to modules: ``EXPORT_SYMBOL`` and its kin.

The tables ``__ksymtab`` and ``__ksymtab_gpl`` (since 7.x one, and ``__kflagstab`` with a
byte of flags for each of its symbols) have three references per symbol: to its
value, its name and its namespace.  Most architectures store the distance from the place
of the reference in 32 bits, the others an address.  Both are tried; names prove which.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf, Section
from ktest_ntcopy.image.names.symbols import Symbol

if TYPE_CHECKING:
    from ktest_ntcopy.image.file.kernel_file import KernelFile

_STRINGS = "__ksymtab_strings"
_TABLES = (("__ksymtab", "__kcrctab", False), ("__ksymtab_gpl", "__kcrctab_gpl", True))
_FLAGS, _GPL_ONLY = "__kflagstab", 1
_LIMIT = 16 << 20  # bytes of a table; kernels have a few hundred KiB
_NAME_LIMIT = 512  # bytes, as in the kernel
_NAME = re.compile(r"[A-Za-z_][\w.$]*")


@dataclass(frozen=True)
class Export:
    """One exported symbol."""

    name: str
    gpl: bool  #: for modules with a GPL-compatible licence only
    namespace: str  #: that a module must import, or empty
    crc: int | None  #: of its type (CONFIG_MODVERSIONS)
    address: int  #: of the symbol


class Exports(Mapping[str, Export]):
    """Exported symbols by name."""

    def __init__(self, exports: Iterator[Export]) -> None:
        self._by_name = {e.name: e for e in exports}

    def __getitem__(self, name: str) -> Export:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def hint(kernel: KernelFile) -> str:
    """What to do about a kernel in which :func:`read_exports` finds no table."""
    if kernel.vmlinux == kernel.path and kernel.kind in ("Image", "zboot", "packed"):
        return "built without CONFIG_MODULES, or a raw Image; give its vmlinux"
    return "set CONFIG_MODULES=y"


@dataclass(frozen=True)
class _Table:
    data: bytes
    address: int  #: of the first byte


def read_exports(elf: Elf, symbols: Mapping[str, Symbol] | None = None) -> Exports | None:
    """What an open kernel exports.

    None if it has no table: built without CONFIG_MODULES, or a raw Image whose own symbol
    table (``symbols``) does not say where the table lies (CONFIG_KALLSYMS_ALL).  Raises
    ConfigError for damaged tables.
    """
    found: list[Export] = []
    seen = False
    for name, sums, gpl in _TABLES:
        if (table := _table(elf, name, symbols)) is None:
            continue
        seen = True
        crcs = _table(elf, sums, symbols)
        flags = None if gpl else _table(elf, _FLAGS, symbols)
        found += list(_entries(elf, name, table, gpl, flags, crcs, _strings(elf)))
    return Exports(iter(found)) if seen else None


def _table(elf: Elf, name: str, symbols: Mapping[str, Symbol] | None) -> _Table | None:
    if elf.flat:
        if not symbols or f"__start_{name}" not in symbols or f"__stop_{name}" not in symbols:
            return None
        start, stop = (symbols[f"__{end}_{name}"].address for end in ("start", "stop"))
        size = min(max(0, stop - start), _LIMIT)
        return _Table(elf.at(start, size), start)
    section = elf.section(name)
    if section is None or section.no_bits:
        return None
    if section.size > _LIMIT:
        raise ConfigError(
            f"{elf.path}: section {name} of {section.size >> 20} MiB, no kernel exports so much; "
            "build it again"
        )
    return _Table(elf.read(section), section.address)


class _Text:
    """Strings by address."""

    def __init__(self, elf: Elf, section: Section | None) -> None:
        self._data = elf.read(section) if section and section.size <= _LIMIT else b""
        self._start = section.address if section else 0

    def at(self, address: int) -> str | None:
        """None if the address lies outside.  Strings may be the ends of others."""
        inside = address - self._start
        if not 0 <= inside < len(self._data):
            return None
        end = self._data.find(b"\0", inside, inside + _NAME_LIMIT)
        return None if end < 0 else self._data[inside:end].decode("latin-1")


class _Image:
    """Strings by address, anywhere in a raw image."""

    def __init__(self, elf: Elf) -> None:
        self._elf = elf

    def at(self, address: int) -> str | None:
        """None if the address lies outside.  Strings may be the ends of others."""
        text, end, _ = self._elf.at(address, _NAME_LIMIT).partition(b"\0")
        return text.decode("latin-1") if end else None


def _strings(elf: Elf) -> _Text | _Image:
    return _Image(elf) if elf.flat else _Text(elf, elf.section(_STRINGS))


def _entries(
    elf: Elf,
    name: str,
    table: _Table,
    gpl: bool,
    flags: _Table | None,
    sums: _Table | None,
    text: _Text | _Image,
) -> Iterator[Export]:
    word = elf.bits // 8
    mask = (1 << elf.bits) - 1
    for relative in (True, False):
        size = 12 if relative else 3 * word
        layout = elf.order + ("iii" if relative else "QQQ" if word == 8 else "III")
        if not table.data:
            return
        if len(table.data) % size:
            continue
        rows = list(struct.iter_unpack(layout, table.data))
        places = range(table.address, table.address + len(table.data), 4)

        def reference(
            row: int,
            column: int,
            rows: list[tuple[int, ...]] = rows,
            places: range = places,
            relative: bool = relative,
        ) -> int:
            value = rows[row][column]
            return value + places[3 * row + column] & mask if relative else value

        ends = (text.at(reference(n, 1)) or "" for n in (0, len(rows) - 1))
        if not all(map(_NAME.fullmatch, ends)):
            continue
        crcs: tuple[int, ...] = ()
        if sums and len(sums.data) == 4 * len(rows):
            crcs = struct.unpack(f"{elf.order}{len(rows)}I", sums.data)
        marks = flags.data if flags else b""
        if marks and len(marks) != len(rows):
            raise ConfigError(
                f"{elf.path}: {_FLAGS} speaks of {len(marks)} symbols, {name} of {len(rows)}; "
                "build it again"
            )
        for number in range(len(rows)):
            exported, space = text.at(reference(number, 1)), text.at(reference(number, 2))
            if not exported or not _NAME.fullmatch(exported):
                raise ConfigError(
                    f"{elf.path}: damaged export table {name}: entry {number} has no name; "
                    "build it again"
                )
            crc = crcs[number] if crcs else None
            only = bool(marks[number] & _GPL_ONLY) if marks else gpl
            yield Export(exported, only, space or "", crc, reference(number, 0))
        return
    raise ConfigError(
        f"{elf.path}: export table {name} has entries of an unknown kind (from before 5.4, or "
        "with relocations that are not applied)"
    )
