# SPDX-License-Identifier: GPL-2.0-only
"""Finds entries of DWARF by name without decoding all that comes before them.

A kernel's DWARF has no index.  But an entry holds its name as a number: a place in
.debug_str, or an index into .debug_str_offsets.  So the name is sought in the strings, the
number in .debug_info, and each place where it stands is held against the abbreviations of
its unit: whether an entry of the wanted kind can have its name there.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator

from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.types.dwarf_data import (
    AT_DECLARATION,
    AT_EXTERNAL,
    AT_NAME,
    AT_SIBLING,
    AT_STR_OFFSETS_BASE,
    FORM_STRINGS,
    NO_ATTRIBUTE,
    Abbrev,
    Span,
    Unit,
    abbrevs,
    leb,
    locate,
    units,
)
from ktest_ntcopy.image.types.typeinfo import TypeInfoError

_BEFORE = 40  # bytes that an entry may have before its name
_AFTER = 128  # and behind the start of it
_PLACES = 1 << 16  # strings that may end in the name
_LONGEST = 256  # bytes of such a string before the name that are compared
_TRIED = 4  # places of a name that are searched for
_TABLES = 64  # tables of abbreviations kept
_STRP, _STRX, _INLINE, _REF4 = 0x0E, 0x1A, 0x08, 0x13

STRUCT, UNION, ENUM, ENUMERATOR = 0x13, 0x17, 0x04, 0x28
TYPEDEF, SUBPROGRAM, VARIABLE, BASE = 0x16, 0x2E, 0x34, 0x24
_MEMBER = 0x0D
#: Tags of the entry that may follow, for tags whose children are of few kinds.  0 is the
#: end of children.  Structs of C hold members; those of Rust other things, too.
_FOLLOWING = {
    STRUCT: frozenset({0, _MEMBER, 0x2F, 0x33, STRUCT, UNION, ENUM, SUBPROGRAM}),
    UNION: frozenset({0, _MEMBER, 0x2F, STRUCT, UNION, ENUM, SUBPROGRAM}),
    ENUM: frozenset({0, ENUMERATOR, SUBPROGRAM}),
    ENUMERATOR: frozenset({0, ENUMERATOR, SUBPROGRAM}),
}


class Finder:
    """Looks names up in the DWARF of one file.  Raises TypeInfoError, ConfigError."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self._spans: dict[str, Span | None] = {}
        info, table = self.span("info"), self.span("abbrev")
        if info is None or table is None:
            raise TypeInfoError("no .debug_info")
        self.info, self._abbrev = info, table
        self.units = units(info, elf.order)
        self._starts = [unit.start for unit in self.units]
        self._tables: dict[int, dict[int, Abbrev]] = {}
        self._bases: list[tuple[int, Unit]] | None = None

    def span(self, name: str) -> Span | None:
        """``.debug_<name>``; None if the file has none."""
        if name not in self._spans:
            section = self.elf.section(f".debug_{name}")
            there = section is not None and section.size and not section.no_bits
            self._spans[name] = Span(self.elf, section) if section and there else None
        return self._spans[name]

    def find(
        self, name: str, tags: set[int], tick: Callable[[], None], *, declared: bool = False
    ) -> Iterator[tuple[Unit, int, int]]:
        """Units, offsets and tags of what looks like entries of that name, as they come.

        Only tags in ``tags`` are looked for; the caller may take out what it has enough
        of, and an empty set ends the search.  ``declared`` asks for what is declared
        without being defined, instead of definitions.  Of variables, only global ones.
        ``tick`` is called often and may raise to end the search.
        """
        text = name.encode("utf-8", "replace")
        if not text or b"\0" in text:
            return
        places = self._places(text, tick)
        if places:
            needles = [struct.pack(self.elf.order + "I", place) for place in places]
            for at in self.info.search(needles, tick):
                yield from self._entries(at, tags, _STRP, declared)
            yield from self._indexed(needles, tags, tick, declared)
        if not places or len(text) < 4:  # compilers put short names where they belong
            for at in self.info.search([text + b"\0"], tick):
                yield from self._entries(at, tags, _INLINE, declared)

    def _places(self, text: bytes, tick: Callable[[], None]) -> list[int]:
        """Where the name stands in .debug_str: by itself, or at the end of another.

        The linker lets a string share the end of a longer one.  GNU ld takes, of all that
        end in it, the one that comes first when they are sorted from their last characters;
        a few more are tried for the sake of other linkers, which seldom share at all.
        """
        strings = self.span("str")
        if strings is None:
            return []
        whole: list[int] = [0] if strings.bytes_at(0, len(text) + 1) == text + b"\0" else []
        shared: list[tuple[bytes, int]] = []
        for at in strings.search([text + b"\0"], tick):
            if not at:
                continue
            before = strings.bytes_at(max(0, at - _LONGEST), min(at, _LONGEST))
            prefix = before[before.rfind(b"\0") + 1 :]
            if not prefix:
                whole.append(at)
            elif len(shared) < _PLACES:
                shared.append((prefix[::-1], at))
        return whole[:_TRIED] or [at for _, at in sorted(shared)[:_TRIED]]

    def _unit_at(self, at: int) -> Unit | None:
        index = bisect_right(self._starts, at) - 1
        unit = self.units[index] if index >= 0 else None
        return unit if unit and unit.dies <= at < unit.end else None

    def table(self, unit: Unit) -> dict[int, Abbrev]:
        """The abbreviations of a unit."""
        if unit.abbrev_offset not in self._tables:
            if len(self._tables) >= _TABLES:
                del self._tables[next(iter(self._tables))]
            self._tables[unit.abbrev_offset] = abbrevs(self._abbrev, unit.abbrev_offset)
        return self._tables[unit.abbrev_offset]

    def _entries(
        self, at: int, tags: set[int], form: int, declared: bool
    ) -> Iterator[tuple[Unit, int, int]]:
        """The entry that has its name at ``at`` in the given form, if there is one."""
        unit = self._unit_at(at)
        if unit is None or not tags:
            return
        first = max(unit.dies, at - _BEFORE)
        data = self.info.bytes_at(first, at - first + _AFTER)
        table = self.table(unit)
        for start in range(at - first - 1, -1, -1):
            try:
                code, attributes = leb(data, start)
            except IndexError:
                continue
            abbrev = table.get(code)
            if abbrev is None or abbrev[0] not in tags or not _asked(abbrev, declared):
                continue
            place = locate(abbrev, data, attributes, unit, self.elf.order, AT_NAME)
            if place is None or place[0] != at - first or not _same_form(place[1], form):
                continue
            if self._plausible(abbrev, data, attributes, first, unit):
                yield unit, first + start, abbrev[0]
                return

    def _plausible(
        self, abbrev: Abbrev, data: bytes, attributes: int, first: int, unit: Unit
    ) -> bool:
        """Whether the bytes go on as an entry would: most that are none do not."""
        order = self.elf.order
        sibling = locate(abbrev, data, attributes, unit, order, AT_SIBLING)
        if sibling and sibling[1] == _REF4 and len(data) >= sibling[0] + 4:
            offset = struct.unpack_from(order + "I", data, sibling[0])[0]
            if not first + attributes < unit.start + offset < unit.end:
                return False
        end = locate(abbrev, data, attributes, unit, order, NO_ATTRIBUTE)
        following = _FOLLOWING.get(abbrev[0])
        if end is None or following is None or not abbrev[2]:
            return end is not None
        try:
            code, _ = leb(data, end[0])
        except IndexError:
            return True
        return self.table(unit).get(code, (0 if code == 0 else -1, (), False))[0] in following

    # Names by index (DWARF 5 of clang)

    def _indexed(
        self, needles: list[bytes], tags: set[int], tick: Callable[[], None], declared: bool
    ) -> Iterator[tuple[Unit, int, int]]:
        offsets = self.span("str_offsets")
        if offsets is None:
            return
        bases = self._unit_bases()
        starts = [base for base, _ in bases]
        little = self.elf.order == "<"
        for at in offsets.search(needles, tick):
            which = bisect_right(starts, at) - 1
            if which < 0 or (at - starts[which]) % 4:
                continue
            index, unit = (at - starts[which]) // 4, bases[which][1]
            width = max(1, (index.bit_length() + 7) // 8)
            needle = index.to_bytes(width, "little" if little else "big")
            tick()
            data = self.info.bytes_at(unit.dies, unit.end - unit.dies)
            place = data.find(needle)
            while place >= 0:
                yield from self._entries(unit.dies + place, tags, _STRX, declared)
                place = data.find(needle, place + 1)

    def _unit_bases(self) -> list[tuple[int, Unit]]:
        if self._bases is None:
            self._bases = []
            for unit in self.units:
                data = self.info.bytes_at(unit.dies, 256)
                try:
                    code, at = leb(data, 0)
                except IndexError:
                    continue
                abbrev = self.table(unit).get(code, (0, (), False))
                place = locate(abbrev, data, at, unit, self.elf.order, AT_STR_OFFSETS_BASE)
                if place and len(data) >= place[0] + 4:
                    base = struct.unpack_from(self.elf.order + "I", data, place[0])[0]
                    self._bases.append((base, unit))
            self._bases.sort(key=lambda row: row[0])
        return self._bases


def _asked(abbrev: Abbrev, declared: bool) -> bool:
    attributes = {attribute for attribute, _ in abbrev[1]}
    if (AT_DECLARATION in attributes) != declared:
        return False
    return abbrev[0] != VARIABLE or AT_EXTERNAL in attributes


def _same_form(found: int, wanted: int) -> bool:
    if wanted == _STRX:
        return found in FORM_STRINGS and found not in (_STRP, _INLINE)
    return found == wanted
