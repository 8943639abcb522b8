# SPDX-License-Identifier: GPL-2.0-only
"""The symbols of a kernel, read in bulk.

One pass over the raw table: going through pyelftools' symbol objects takes more than a
second for a kernel, this two hundredths.  A stripped kernel's come from its own table.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.elf import Elf, Section

_TYPES = {0: "notype", 1: "object", 2: "func", 3: "section", 4: "file", 5: "common", 6: "tls"}
_BINDINGS = {0: "local", 1: "global", 2: "weak"}
_SKIPPED = (3, 4)  # section and file symbols name no code and no data

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
        self._index = self._build()

    def _build(self) -> dict[str, int]:
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

    def __getitem__(self, name: str) -> Symbol:
        return self._symbol(name, self._index[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, name: object) -> bool:
        return name in self._index

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
        number = self._index.get(name)
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
        return dict(zip(self._starts, range(len(self._starts)), strict=True))

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

    def find(self, name: str) -> tuple[Symbol, ...]:
        """The symbol itself first, then the compiler's copies and parts of it."""
        exact = (self[name],) if name in self._index else ()
        return exact + tuple(self[n] for n in self._stems.get(name, ()))

    def names(self) -> Iterator[str]:
        """Every name once, as the author wrote it, for finding near misses."""
        yield from self._authors_names

    @cached_property
    def _authors_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(stem, self._index)))


def read_symbols(elf: Elf) -> SymbolTable | None:
    """The ``.symtab`` of an open kernel, else what its kallsyms say; None if it has neither.

    Raises ConfigError for a damaged table.
    """
    table = elf.section(".symtab")
    if table is None or not table.size or table.no_bits:
        from ktest_ntcopy.image.stripped import read_kallsyms

        return read_kallsyms(elf)
    strings = _strings(elf, table)
    if max(table.size, strings.size) > _TABLE_LIMIT:
        raise ConfigError(
            f"{elf.path}: symbol table of {max(table.size, strings.size) >> 20} MiB, no kernel "
            f"has more than {_TABLE_LIMIT >> 20} MiB; build it again"
        )
    return SymbolTable(elf.read(table), elf.read(strings), bits=elf.bits, order=elf.order)


def _strings(elf: Elf, table: Section) -> Section:
    wanted = 24 if elf.bits == 64 else 16
    if table.entry_size != wanted:
        raise ConfigError(
            f"{elf.path}: symbol table has entries of {table.entry_size} bytes instead of "
            f"{wanted}; build it again"
        )
    if table.link >= len(elf.sections):
        raise ConfigError(f"{elf.path}: symbol table names no string table; build it again")
    return elf.sections[table.link]


def load_symbols(path: Path) -> SymbolTable | None:
    """:func:`read_symbols` of a file that is not open yet."""
    with Elf(path) as elf:
        return read_symbols(elf)
