# SPDX-License-Identifier: GPL-2.0-only
"""The symbol table of a kernel, read in bulk.

One pass over the raw table: going through pyelftools' symbol objects takes
more than a second for a kernel, this a few hundredths.
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
_SUFFIX = re.compile(r"(?:\.(?:constprop|isra|part|cold|lto_priv|clone)(?:\.\d+)?|\.llvm\.\d+)+$")


def stem(name: str) -> str:
    """The name as the author wrote it: without ``.isra.0``, ``.constprop.1``, ``.cold``…"""
    return _SUFFIX.sub("", name) if "." in name else name


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

    def __init__(self, raw: bytes, strings: bytes, *, bits: int = 64, order: str = "<") -> None:
        if bits == 64:  # st_name, st_info, st_other, st_shndx, st_value, st_size
            self._layout = struct.Struct(order + "IBBHQQ")
            pick = (0, 1, 3, 4, 5)
        else:  # st_name, st_value, st_size, st_info, st_other, st_shndx
            self._layout = struct.Struct(order + "IIIBBH")
            pick = (0, 3, 5, 1, 2)
        self._pick = pick
        self._bits, self._order = bits, order
        self._raw = raw[: len(raw) // self._layout.size * self._layout.size]
        self._index = self._build(strings)

    def _build(self, strings: bytes) -> dict[str, int]:
        name_at, info_at, section_at = self._pick[:3]
        index: dict[str, int] = {}
        # Latin-1 maps every byte to one character, so offsets into the text are offsets
        # into the table and slicing text is quicker than decoding each name.
        text = strings.decode("latin-1")
        self._text = text
        find = text.find
        limit = len(text)
        for number, entry in enumerate(self._layout.iter_unpack(self._raw)):
            start = entry[name_at]
            if not start or start >= limit or not entry[section_at]:
                continue
            if entry[info_at] & 15 in _SKIPPED:
                continue
            end = find("\0", start)
            index.setdefault(text[start : end if end >= 0 else limit], number)
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
        words = array("Q" if self._bits == 64 else "I", self._raw)
        if self._order != ("<" if sys.byteorder == "little" else ">"):
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
        yield from {stem(name): None for name in self._index}


def read_symbols(elf: Elf) -> SymbolTable | None:
    """The ``.symtab`` of an open file; None if it has been stripped.

    Raises ConfigError for a damaged table.
    """
    table = elf.section(".symtab")
    if table is None or not table.size:
        return None
    return SymbolTable(
        elf.read(table), elf.read(_strings(elf, table)), bits=elf.bits, order=elf.order
    )


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
