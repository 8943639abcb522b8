# SPDX-License-Identifier: GPL-2.0-only
"""The symbols of a stripped kernel, from the table that it keeps for its own messages."""

from __future__ import annotations

import struct

from ktest_ntcopy.image.file.elf import Elf, Section, reading
from ktest_ntcopy.image.names.kallsyms import Named, Tables, find_tables, read_names, relocated_base
from ktest_ntcopy.image.names.symbols import SymbolTable

_KALLSYMS_LIMIT = 80 << 20  # bytes of one section
#: The kind that nm prints, in lower case -> st_info's type.
_LETTER_TYPES = {"t": 2, "w": 2, "i": 2, "d": 1, "b": 1, "r": 1, "g": 1, "s": 1, "v": 1}


def read_kallsyms(elf: Elf) -> SymbolTable | None:
    """What CONFIG_KALLSYMS put into an open kernel; None without it.

    The table does not say sizes: a symbol's reaches to the next one.
    """
    for section in elf.data_sections():
        if section.size > _KALLSYMS_LIMIT:
            continue
        data = elf.read(section)
        with reading(elf.path):
            if tables := find_tables(data, bits=elf.bits):
                base = tables.base or _relocated(elf, section, data, tables)
                return _packed(read_names(data, tables, base=base))
    return None


def _relocated(elf: Elf, section: Section, data: bytes, tables: Tables) -> int:
    """The base address that the tables do not say: 0 if nothing else does, either.

    Where addresses count from their own places, it is the section's; else a relocation
    puts it in (arm64).
    """
    if tables.form == "place":
        return section.address
    if elf.flat:
        moved = relocated_base(data, tables.base_at)
        return moved[1] if moved else 0
    relocations = elf.section(".rela.dyn") or elf.section(".rela")
    if relocations is None or elf.bits != 64:
        return 0
    place = struct.pack(elf.order + "Q", section.address + tables.base_at)
    raw = elf.read(relocations)
    at = raw.find(place)
    while at >= 0:
        if at % 24 == 0 and at + 24 <= len(raw):
            return int(struct.unpack_from(elf.order + "Q", raw, at + 16)[0])
        at = raw.find(place, at + 1)
    return 0


def _packed(named: list[Named]) -> SymbolTable:
    """The same symbols as an ELF symbol table, with sizes up to the next address."""
    layout = struct.Struct("<IBBHQQ")
    rows: list[bytes] = []
    places: dict[str, int] = {}  # of the names, each once, as linkers do it
    at, end, following = 1, 0, 0
    for symbol in reversed(named):
        if symbol.address != following:
            end, following = following, symbol.address
        info = (symbol.letter.isupper() << 4) | _LETTER_TYPES.get(symbol.letter.lower(), 0)
        size = end - symbol.address if end > symbol.address else 0
        place = places.setdefault(symbol.name, at)
        if place == at:
            at += len(symbol.name) + 1
        rows.append(layout.pack(place, info, 0, 1, symbol.address, size))
    rows.reverse()
    text = "\0".join(["", *places, ""])
    return SymbolTable(b"".join(rows), text.encode("latin-1"), source="kallsyms")
