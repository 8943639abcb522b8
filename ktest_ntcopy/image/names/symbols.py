# SPDX-License-Identifier: GPL-2.0-only
"""The symbols of a kernel, read in bulk.

Going through pyelftools' symbol objects takes more than a second for a kernel, and one
loop over the table still more than most questions about it.  So names are split, counted
and hashed in bulk, and rows are decoded one by one when asked for.  A stripped kernel's
symbols come from its own table.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import compress, count
from pathlib import Path
from typing import NamedTuple

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf, Section
from ktest_ntcopy.image.names.nearest import nearest
from ktest_ntcopy.image.names.strings import StringTable
from ktest_ntcopy.image.names.strings import stem as stem

_TYPES = {0: "notype", 1: "object", 2: "func", 3: "section", 4: "file", 5: "common", 6: "tls"}
_BINDINGS = {0: "local", 1: "global", 2: "weak"}
_SKIPPED = (3, 4)  # section and file symbols name no code and no data
_KEPT = bytes((info & 15) not in _SKIPPED for info in range(256))
_DEFINED = bytes((0, *[1] * 255))  # a section's number is not 0

_NAME_LIMIT = 1024  # characters; the kernel's own table has at most 512
_TABLE_LIMIT = 64 << 20  # bytes; an allyesconfig has 1.2 million symbols in 29 MB


class Symbol(NamedTuple):
    """One entry of the symbol table."""

    name: str
    address: int
    size: int  #: bytes, 0 if the table does not say
    type: str  #: "func", "object", "notype"…
    binding: str  #: "local", "global", "weak"


class SymbolTable(Mapping[str, Symbol]):
    """Symbols by exact name; of several with one name, the first in the table.

    The raw table stays packed; a :class:`Symbol` is made when asked for.
    """

    def __init__(
        self,
        raw: bytes,
        strings: bytes,
        *,
        bits: int = 64,
        order: str = "<",
        source: str = ".symtab",
    ) -> None:
        self.source = source  #: ".symtab", or "kallsyms" whose sizes reach to the next symbol
        if bits == 64:  # st_name, st_info, st_other, st_shndx, st_value, st_size
            self._layout = struct.Struct(order + "IBBHQQ")
            pick = (0, 1, 3, 4, 5)
        else:  # st_name, st_value, st_size, st_info, st_other, st_shndx
            self._layout = struct.Struct(order + "IIIBBH")
            pick = (0, 3, 5, 1, 2)
        self._pick = pick
        self._raw = raw[: len(raw) // self._layout.size * self._layout.size]
        self._bits, self._order = bits, order
        self._strings = StringTable(strings, len(self._raw) // self._layout.size)
        self._prepared: dict[int, list[int]] = {}  #: rows of some names, by where they begin

    @cached_property
    def _index(self) -> dict[str, int]:
        """The first row of each name, in the table's order: dear, for listing names."""
        name_at, info_at, section_at = self._pick[:3]
        index: dict[str, int] = {}
        text = self._strings.text
        find = text.find
        limit = len(text)
        for number, entry in enumerate(self._layout.iter_unpack(self._raw)):
            start = entry[name_at]
            if not start or start >= limit or not entry[section_at]:
                continue
            if entry[info_at] & 15 in _SKIPPED:
                continue
            end = find("\0", start, start + _NAME_LIMIT)
            if end < 0:  # the table's end, or no name
                end = limit if limit - start < _NAME_LIMIT else start
            index.setdefault(text[start:end], number)
        index.pop("", None)
        return index

    def _symbol(self, name: str, number: int) -> Symbol:
        entry = self._layout.unpack_from(self._raw, number * self._layout.size)
        _, info, _, address, size = (entry[i] for i in self._pick)
        return Symbol(
            name,
            address,
            size,
            _TYPES.get(info & 15, str(info & 15)),
            _BINDINGS.get(info >> 4, str(info >> 4)),
        )

    @cached_property
    def _live(self) -> bytes:
        """A 1 for each row of a symbol that is defined here, else 0."""
        wide = self._layout.size == 24
        step = self._layout.size
        low, high = (self._raw[at::step] for at in ((6, 7) if wide else (14, 15)))
        section = int.from_bytes(low, "little") | int.from_bytes(high, "little")
        defined = section.to_bytes(len(low), "little").translate(_DEFINED)
        both = int.from_bytes(defined, "little") & int.from_bytes(
            self.infos.translate(_KEPT), "little"
        )
        return both.to_bytes(len(low), "little")

    def _rows(self, starts: Iterable[int]) -> dict[int, list[int]]:
        """The rows of each name that begins at one of these places, in one pass."""
        found: dict[int, list[int]] = {start: [] for start in starts}
        every, live = self._starts, self._live
        for row in compress(count(), map(found.__contains__, every)):
            if live[row]:
                found[every[row]].append(row)
        return found

    def prepare(self, names: Iterable[str]) -> None:
        """Look these names up together, which takes less than one by one.  No answer changes."""
        if self._strings.sane:
            self._prepared.update(self._rows(self._strings.prepare(names)))

    @cached_property
    def _lasts(self) -> dict[int, int]:
        """The last row of each name, by where the name begins."""
        live = self._live
        return dict(zip(compress(self._starts, live), compress(count(), live), strict=True))

    @cached_property
    def _others(self) -> dict[int, list[int]]:
        """The rows of each name before its last one, of names that have several."""
        found: dict[int, list[int]] = {}
        for row in sorted(set(compress(count(), self._live)).difference(self._lasts.values())):
            found.setdefault(self._starts[row], []).append(row)
        return found

    def _rows_at(self, start: int) -> list[int]:
        """All rows of the name that begins at a place in the text."""
        if (rows := self._prepared.get(start)) is not None:
            return rows
        last = self._lasts.get(start)
        return [] if last is None else [*self._others.get(start, ()), last]

    def _row(self, name: str) -> int | None:
        """The first row of a name."""
        if not self._strings.sane:
            return self._index.get(name)
        if not name or "\0" in name or len(name) >= _NAME_LIMIT:
            return None
        if (at := self._strings.begin(name)) is not None and (rows := self._rows_at(at)):
            return rows[0]
        places = self._strings.places(name)
        return min((row for at in places for row in self._rows_at(at)), default=None)

    def __getitem__(self, name: str) -> Symbol:
        row = self._row(name)
        if row is None:
            raise KeyError(name)
        return self._symbol(name, row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __bool__(self) -> bool:
        """True unless no row names anything: quicker than counting names."""
        return 1 in self._live

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._row(name) is not None

    @cached_property
    def _words(self) -> array[int]:
        """The table in units of an address: all columns of interest are whole ones."""
        return self._as_words("Q" if self._layout.size == 24 else "I")

    def _as_words(self, code: str) -> array[int]:
        words = array(code, self._raw)
        if str(self._layout.format)[0] != ("<" if sys.byteorder == "little" else ">"):
            words.byteswap()
        return words

    @cached_property
    def addresses(self) -> array[int]:
        """The address in each row of the table, undefined and unnamed symbols included."""
        return self._words[1 :: self._layout.size // self._words.itemsize]

    @cached_property
    def sizes(self) -> array[int]:
        """The size in bytes in each row of the table."""
        return self._words[2 :: self._layout.size // self._words.itemsize]

    def twins(self, name: str) -> tuple[Symbol, ...]:
        """Every symbol of exactly this name: static ones of several files may share it."""
        number = self._row(name)
        if number is None:
            return ()
        # Linkers keep one copy of a string, so twins have their name at the same place.
        return tuple(self._symbol(name, n) for n in self._rows_at(self._starts[number]))

    @cached_property
    def _starts(self) -> array[int]:
        """Where each row's name begins."""
        return self._as_words("I")[:: self._layout.size // 4]

    @cached_property
    def infos(self) -> bytes:
        """Type and binding (``st_info``) in each row of the table."""
        return self._raw[4 if self._layout.size == 24 else 12 :: self._layout.size]

    def row(self, number: int) -> Symbol:
        """The symbol in one row of the table; its name is empty if it has none."""
        start = self._layout.unpack_from(self._raw, number * self._layout.size)[0]
        return self._symbol(self._strings.at(start), number)

    @cached_property
    def _stems(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._index:
            if "." in name and (short := stem(name)) != name:
                found.setdefault(short, []).append(name)
        return found

    def _copies(self, name: str) -> list[str]:
        """What the compiler made of a function, by row."""
        if not self._strings.sane:
            return self._stems.get(name, [])
        rows = {copy: self._row(copy) for copy in self._strings.copies(name)}
        found = {copy: row for copy, row in rows.items() if row is not None}
        return sorted(found, key=found.__getitem__)

    def find(self, name: str) -> tuple[Symbol, ...]:
        """The symbol itself first, then the compiler's copies and parts of it."""
        row = self._row(name)
        exact = (self._symbol(name, row),) if row is not None else ()
        return exact + tuple(self[n] for n in self._copies(name))

    def names(self) -> Iterator[str]:
        """Every name once, as the author wrote it, for finding near misses."""
        yield from self._authors_names

    @cached_property
    def _authors_names(self) -> tuple[str, ...]:
        names: Iterable[str] = self._fresh_names() if self._strings.sane else self._index
        return tuple(dict.fromkeys(stem(name) if "." in name else name for name in names))

    def _fresh_names(self) -> Iterator[str]:
        """Every name, quicker than counting them."""
        own = self._strings.parts_by_begin()
        # Where several names are as near, the last one of the table is shown first.
        for start in dict.fromkeys(reversed([*compress(self._starts, self._live)])):
            name = own.get(start)
            if name is None:
                name = self._strings.at(start)
            if 0 < len(name) < _NAME_LIMIT:
                yield name

    def alike(self, name: str) -> tuple[str, ...]:
        """Names that look like one that is not there, best first."""
        if name not in self._near:
            self._near[name] = nearest(name, self._authors_names)
        return self._near[name]

    @cached_property
    def _near(self) -> dict[str, tuple[str, ...]]:
        return {}


def read_symbols(elf: Elf) -> SymbolTable | None:
    """The ``.symtab`` of an open kernel, else what its kallsyms say; None if it has neither.

    Raises ConfigError for a damaged table.
    """
    table = elf.only_section(".symtab")
    if table is None or not table.size or table.no_bits:
        from ktest_ntcopy.image.file.stripped import read_kallsyms

        return read_kallsyms(elf)
    strings = _strings(elf, table)
    if max(table.size, strings.size) > _TABLE_LIMIT:
        raise ConfigError(
            f"{elf.path}: symbol table of {max(table.size, strings.size) >> 20} MiB, no kernel "
            f"has more than {_TABLE_LIMIT >> 20} MiB; build it again"
        )
    text = elf.read(strings)
    # So it is written; of one that is cut off or belongs to another table some names would
    # be found and others not.
    if not text or text[0] or text[-1]:
        raise ConfigError(
            f"{elf.path}: damaged string table {strings.name} (no names from end to end); "
            "build it again"
        )
    return SymbolTable(elf.read(table), text, bits=elf.bits, order=elf.order)


def _strings(elf: Elf, table: Section) -> Section:
    wanted = 24 if elf.bits == 64 else 16
    if table.entry_size != wanted:
        raise ConfigError(
            f"{elf.path}: symbol table has entries of {table.entry_size} bytes instead of "
            f"{wanted}; build it again"
        )
    if table.link >= len(elf.sections) or elf.sections[table.link] is table:
        raise ConfigError(f"{elf.path}: symbol table names no string table; build it again")
    return elf.sections[table.link]


def load_symbols(path: Path) -> SymbolTable | None:
    """:func:`read_symbols` of a file that is not open yet."""
    with Elf(path) as elf:
        return read_symbols(elf)
