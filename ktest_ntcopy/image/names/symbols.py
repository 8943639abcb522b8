# SPDX-License-Identifier: GPL-2.0-only
"""The symbols of a kernel, read in bulk.

Going through pyelftools' symbol objects takes more than a second for a kernel, and one
loop over the table still more than most questions about it.  So names are split, counted
and hashed in bulk, and rows are decoded one by one when asked for.  A stripped kernel's
symbols come from its own table.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, compress
from operator import add
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf, Section
from ktest_ntcopy.image.names.nearest import nearest

_TYPES = {0: "notype", 1: "object", 2: "func", 3: "section", 4: "file", 5: "common", 6: "tls"}
_BINDINGS = {0: "local", 1: "global", 2: "weak"}
_SKIPPED = (3, 4)  # section and file symbols name no code and no data
_KEPT = bytes((info & 15) not in _SKIPPED for info in range(256))
_DEFINED = bytes((0, *[1] * 255))  # a section's number is not 0

# What compilers append to a function they copied, split or moved.  Kernel
# authors use dots in no symbol of their own that matters here.
_SUFFIX = re.compile(
    r"(?:\.(?:constprop|isra|part|cold|lto_priv|clone|localalias|warm|specialized|cfi|cfi_jt)"
    r"(?:\.\d+)*|\.(?:llvm|__uniq|content)\.[0-9a-f]+)+$"
)


def stem(name: str) -> str:
    """The name as the author wrote it: without ``.isra.0``, ``.constprop.1``, ``.cold``…"""
    return _SUFFIX.sub("", name) if "." in name else name


_NAME_LIMIT = 1024  # characters; the kernel's own table has at most 512
_TABLE_LIMIT = 64 << 20  # bytes; an allyesconfig has 1.2 million symbols in 29 MB


@dataclass(frozen=True)
class Symbol:
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
        # Latin-1 maps every byte to one character, so offsets into the text are offsets
        # into the table and slicing text is quicker than decoding each name.
        self._text = strings.decode("latin-1")
        if self._text[-1:] != "\0":
            self._text += "\0"

    @cached_property
    def _index(self) -> dict[str, int]:
        """The first row of each name, in the table's order: dear, for listing names."""
        name_at, info_at, section_at = self._pick[:3]
        index: dict[str, int] = {}
        text = self._text
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
    def _parts(self) -> list[str]:
        """What linkers wrote of names: each once, and none that another one ends with.

        Empty if the table is not like that.
        """
        if self._text.count("\0") > 2 * len(self.infos) + 2:
            return []
        return self._text.split("\0")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of each part; empty if a part is there twice."""
        found = dict(zip(self._parts, range(len(self._parts)), strict=True))
        return found if len(found) + 1 == len(self._parts) else {}

    @cached_property
    def _before(self) -> list[int]:
        """Characters before each part, without those that separate parts."""
        return list(accumulate(map(len, self._parts), initial=0))

    @cached_property
    def _dotted(self) -> str:
        """All parts that may be what compilers made of a function."""
        return "\0".join(["", *[part for part in self._parts if "." in part], ""])

    @cached_property
    def _live(self) -> tuple[list[int], list[int]]:
        """Where names begin, and their rows: only those of symbols defined here."""
        wide = self._layout.size == 24
        step = self._layout.size
        low, high = (self._raw[at::step] for at in ((6, 7) if wide else (14, 15)))
        section = int.from_bytes(low, "little") | int.from_bytes(high, "little")
        defined = section.to_bytes(len(low), "little").translate(_DEFINED)
        both = int.from_bytes(defined, "little") & int.from_bytes(
            self.infos.translate(_KEPT), "little"
        )
        mask = both.to_bytes(len(low), "little")
        return list(compress(self._starts, mask)), list(compress(range(len(mask)), mask))

    @cached_property
    def _firsts(self) -> dict[int, int]:
        """The first row of each name, by where the name begins."""
        starts, rows = self._live
        return dict(zip(reversed(starts), reversed(rows), strict=True))

    def _row(self, name: str) -> int | None:
        """The first row of a name."""
        if not self._numbers:
            return self._index.get(name)
        if not name or "\0" in name or len(name) >= _NAME_LIMIT:
            return None
        number = self._numbers.get(name)
        if number is not None:
            row = self._firsts.get(self._before[number] + number)
            if row is not None:
                return row
        # Linkers let a name begin in the middle of one that ends like it.
        rows: list[int] = []
        at = self._text.find(name + "\0")
        while at >= 0:
            if (row := self._firsts.get(at)) is not None:
                rows.append(row)
            at = self._text.find(name + "\0", at + 1)
        return min(rows, default=None)

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
        return bool(self._live[1])

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
        starts, last = self._starts, self._last_rows
        end = last[starts[number]]
        if end == number:
            return (self._symbol(name, number),)
        rows = [n for n in range(number, end + 1) if starts[n] == starts[number]]
        return tuple(self._symbol(name, n) for n in rows)

    @cached_property
    def _last_rows(self) -> dict[int, int]:
        """The last row of each name, by where the name begins."""
        return dict(zip(*self._live, strict=True))

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
        end = self._text.find("\0", start)
        return self._symbol(self._text[start : end if end >= 0 else None], number)

    @cached_property
    def _stems(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._index:
            if "." in name and (short := stem(name)) != name:
                found.setdefault(short, []).append(name)
        return found

    def _copies(self, name: str) -> list[str]:
        """What the compiler made of a function, by row."""
        if not self._numbers:
            return self._stems.get(name, [])
        found: dict[str, int] = {}
        text, begin = self._dotted, name + "."
        at = text.find(begin)
        while at >= 0:
            end = text.find("\0", at)
            copy = text[at:end]
            if stem(copy) == name and (row := self._row(copy)) is not None:
                found[copy] = row
            at = text.find(begin, at + 1)
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
        names: Iterable[str] = self._index if not self._numbers else self._fresh_names()
        return tuple(dict.fromkeys(stem(name) if "." in name else name for name in names))

    def _fresh_names(self) -> Iterator[str]:
        """Every name, quicker than counting them."""
        begins = map(add, self._before, range(len(self._parts)))
        own = dict(zip(begins, self._parts, strict=False))
        for start in self._firsts:
            name = own.get(start)
            if name is None:
                name = self._text[start : self._text.find("\0", start)]
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
