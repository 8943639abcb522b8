# SPDX-License-Identifier: GPL-2.0-only
"""Functions of a kernel by address, under the names their authors gave them."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import compress, count

from ktest_ntcopy.image.names.symbols import Symbol, SymbolTable

# Symbol types (st_info) that may name code: none at all, as assembly has, and functions.
_CODE_TYPES = bytes((info & 15) in (0, 2) for info in range(256))
_CODE = ("func", "notype")
_PARTS = (".cold", ".part.")


class Functions:
    """Lookups of functions by address.  ``row`` is a row of the symbol table."""

    def __init__(self, symbols: SymbolTable) -> None:
        self.symbols = symbols
        self._best: dict[int, Symbol] = {}
        self._entries: dict[str, tuple[Symbol, ...]] = {}

    @cached_property
    def _mask(self) -> bytes:
        return self.symbols.infos.translate(_CODE_TYPES)

    @cached_property
    def _last(self) -> dict[int, int]:
        """The last row of each address."""
        addresses = compress(self.symbols.addresses, self._mask)
        return dict(zip(addresses, compress(count(), self._mask), strict=True))

    @cached_property
    def _aliases(self) -> dict[int, list[int]]:
        """The other rows of those addresses that have several."""
        found: dict[int, list[int]] = {}
        addresses = self.symbols.addresses
        for row in set(compress(count(), self._mask)).difference(self._last.values()):
            found.setdefault(addresses[row], []).append(row)
        return found

    @cached_property
    def _sorted(self) -> list[int]:
        return sorted(self._last)

    def at(self, address: int) -> Symbol | None:
        """The function that begins at an address; of several names the most telling."""
        found = self._best.get(address)
        if found is None:
            rows = self._rows_at(address)
            if not rows:
                return None
            found = max((self.symbols.row(row) for row in rows), key=_telling)
            self._best[address] = found
        return found if found.name else None

    def _rows_at(self, address: int) -> list[int]:
        last = self._last.get(address)
        return [] if last is None else sorted((last, *self._aliases.get(address, ())))

    def around(self, address: int) -> Symbol | None:
        """The function whose code includes an address."""
        index = bisect_right(self._sorted, address) - 1
        if index < 0:
            return None
        found = self.at(self._sorted[index])
        return found if found and address < found.address + self.size(found) else None

    def size(self, function: Symbol) -> int:
        """Bytes of a function; where the table does not say, those up to the next one."""
        if function.size:
            return function.size
        index = bisect_right(self._sorted, function.address)
        return self._sorted[index] - function.address if index < len(self._sorted) else 0

    def entries(self, name: str) -> tuple[Symbol, ...]:
        """Every symbol that is code of the function of this name.

        That is the function itself, namesakes in other files, and what compilers make of
        them: copies for some callers, and parts.
        """
        found = self._entries.get(name)
        if found is not None:
            return found
        table = self.symbols
        hits = [t for s in table.find(name) for t in table.twins(s.name)]
        found = tuple(s for s in hits if s.type in _CODE and s.address)
        self._entries[name] = found
        return found

    def named(self, name: str) -> tuple[Symbol, ...]:
        """Where the function of this name begins.

        Parts of it are left out, unless nothing else of it is left.
        """
        hits = self.entries(name)
        return tuple(s for s in hits if not any(part in s.name for part in _PARTS)) or hits


def _telling(symbol: Symbol) -> tuple[bool, bool, bool, int]:
    """Sorts names of one address: functions, global ones, short and plain ones last."""
    name = symbol.name
    plain = not name.startswith("_") and "." not in name
    return symbol.type == "func", symbol.binding == "global", plain, -len(name)
