# SPDX-License-Identifier: GPL-2.0-only
"""The strings of a symbol table: where the name of a symbol begins.

Linkers write each name once, and one that ends like a longer one within that.  So a table
is parts, and names are parts or ends of parts.  Parts are split, compared and counted in
bulk: a loop over them takes longer than most questions about a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, compress, count
from operator import add

# What compilers append to a function they copied, split or moved.  Kernel
# authors use dots in no symbol of their own that matters here.
_SUFFIX = re.compile(
    r"(?:\.(?:constprop|isra|part|cold|lto_priv|clone|localalias|warm|specialized|cfi|cfi_jt)"
    r"(?:\.\d+)*|\.(?:llvm|__uniq|content)\.[0-9a-f]+)+$"
)
_PADDING = "__pfx_"  # names the room before a function (CONFIG_FUNCTION_PADDING_BYTES)


def stem(name: str) -> str:
    """The name as the author wrote it: without ``.isra.0``, ``.constprop.1``, ``.cold``…"""
    return _SUFFIX.sub("", name) if "." in name else name


class StringTable:
    """The strings of a table of ``rows`` symbols."""

    def __init__(self, data: bytes, rows: int) -> None:
        # Latin-1 maps every byte to one character, so offsets into the text are offsets
        # into the table and slicing text is quicker than decoding each name.
        self.text = data.decode("latin-1")
        if self.text[-1:] != "\0":
            self.text += "\0"
        self._rows = rows
        self._begins: dict[str, int | None] = {}  #: of parts that were prepared
        self._places: dict[str, list[int]] = {}  #: of names that were asked for

    @cached_property
    def sane(self) -> bool:
        """Whether there are about as many parts as rows.  Else do not ask any further."""
        return self.text.count("\0") <= 2 * self._rows + 2

    @cached_property
    def _parts(self) -> list[str]:
        return self.text.split("\0")

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

    def at(self, start: int) -> str:
        """The string that begins at a place."""
        end = self.text.find("\0", start)
        return self.text[start : end if end >= 0 else None]

    def parts_by_begin(self) -> dict[int, str]:
        """Every part by its place."""
        return dict(zip(map(add, self._before, count()), self._parts, strict=False))

    def begin(self, name: str) -> int | None:
        """Where a name begins if it is a part, or the end of the one that kernels have before
        their functions; None otherwise.  Linkers keep one copy of it."""
        for padding in ("", _PADDING):
            part = padding + name
            if part in self._begins:
                at = self._begins[part]
            else:
                number = self._numbers.get(part)
                at = None if number is None else self._before[number] + number
            if at is not None:
                return at + len(padding)
        return None

    def places(self, name: str) -> list[int]:
        """Wherever a name may begin."""
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = []
            at = self.text.find(name + "\0")
            while at >= 0:
                found.append(at)
                at = self.text.find(name + "\0", at + 1)
        return found

    def copies(self, name: str) -> Iterator[str]:
        """What the names of a function's copies and parts may be."""
        text, begin = self._dotted, name + "."
        at = text.find(begin)
        while at >= 0:
            copy = text[at : text.find("\0", at)]
            if stem(copy) == name:
                yield copy
            at = text.find(begin, at + 1)

    def prepare(self, names: Iterable[str]) -> Iterator[int]:
        """Find names and their copies in one pass over all parts; where they may begin."""
        wanted = {own for name in names if name for own in (name, *self.copies(name))}
        parts = wanted | {_PADDING + name for name in wanted}
        hits = list(compress(count(), map(parts.__contains__, self._parts)))
        numbers = {self._parts[number]: number for number in hits}
        if len(numbers) < len(hits):
            return  # as no linker writes it: each question looks for itself
        self._begins |= dict.fromkeys(parts)
        self._begins |= {part: self._before[number] + number for part, number in numbers.items()}
        for name in wanted:
            at = self.begin(name)
            yield from self.places(name) if at is None else [at]
