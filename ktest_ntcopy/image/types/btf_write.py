# SPDX-License-Identifier: GPL-2.0-only
"""Writes BTF type by type.

DWARF is answered through it: the few types that a question needs are written as BTF,
so that there is one place that knows how to lay out and show types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ktest_ntcopy.image.types.btf_data import MAGIC, Kind


class BtfWriter:
    """Types and their strings.  A type may refer to one that is written later."""

    def __init__(self, order: str = "<", *, first_type: int = 1, first_string: int = 0) -> None:
        """``first_type`` and ``first_string`` are where a module's BTF continues."""
        self._order = order
        self._first = first_type
        self._base = first_string
        self._types: list[bytes] = []
        self._text = bytearray(b"\0" if not first_string else b"")
        self._places: dict[str, int] = {"": 0}

    def text(self, name: str) -> int:
        """Place of a string."""
        if name not in self._places:
            self._places[name] = self._base + len(self._text)
            self._text += name.encode("utf-8", "replace") + b"\0"
        return self._places[name]

    def reserve(self) -> int:
        """Number of a type to :meth:`put` later."""
        self._types.append(b"")
        return self._first + len(self._types) - 1

    def put(
        self,
        number: int,
        kind: int,
        name: str = "",
        *,
        last: int = 0,
        count: int = 0,
        flag: bool = False,
        words: Iterable[int] = (),
    ) -> None:
        """Write a reserved type: ``last`` is its size or the type it refers to, ``words``
        what follows the header."""
        info = flag << 31 | kind << 24 | count
        every = [self.text(name), info, last, *words]
        packed = struct.pack(f"{self._order}{len(every)}I", *(word & 0xFFFFFFFF for word in every))
        self._types[number - self._first] = packed

    def add(
        self,
        kind: int,
        name: str = "",
        *,
        last: int = 0,
        count: int = 0,
        flag: bool = False,
        words: Iterable[int] = (),
    ) -> int:
        """Number of a new type; see :meth:`put`."""
        number = self.reserve()
        self.put(number, kind, name, last=last, count=count, flag=flag, words=words)
        return number

    def integer(self, name: str, size: int, *, bits: int = 0, shift: int = 0) -> int:
        """An integer of ``size`` bytes; ``bits`` and ``shift`` are for old bitfields."""
        return self.add(Kind.INT, name, last=size, words=(shift << 16 | (bits or 8 * size),))

    def array(self, element: int, count: int) -> int:
        """An array; its index type is its element's, which nobody reads."""
        return self.add(Kind.ARRAY, words=(element, element, count))

    def compound(
        self,
        kind: Kind,
        name: str,
        size: int,
        members: Iterable[tuple[str, int, int, int]],
        *,
        number: int = 0,
    ) -> int:
        """A struct or union of (name, type, bit offset, bits of a bitfield or 0)."""
        rows = list(members)
        flag = any(bits for *_, bits in rows)
        words: list[int] = []
        for member, kind_at, offset, bits in rows:
            words += (self.text(member), kind_at, bits << 24 | offset)
        number = number or self.reserve()
        self.put(number, kind, name, last=size, count=len(rows), flag=flag, words=words)
        return number

    def enum(self, name: str, values: Iterable[tuple[str, int]], *, size: int = 4) -> int:
        """An enum; of 64 bits if ``size`` is 8 or a value needs it."""
        rows = list(values)
        signed = any(value < 0 for _, value in rows)
        wide = size == 8 or any(not -(1 << 31) <= value < 1 << 32 for _, value in rows)
        words: list[int] = []
        for one, value in rows:
            words += (self.text(one), value, value >> 32) if wide else (self.text(one), value)
        kind = Kind.ENUM64 if wide else Kind.ENUM
        return self.add(kind, name, last=size, count=len(rows), flag=signed, words=words)

    def proto(self, result: int, parameters: Iterable[tuple[str, int]]) -> int:
        """A function type; a last parameter ("", 0) stands for "..."."""
        rows = list(parameters)
        words = [word for name, kind in rows for word in (self.text(name), kind)]
        return self.add(Kind.FUNC_PROTO, last=result, count=len(rows), words=words)

    def function(self, name: str, result: int, parameters: Iterable[tuple[str, int]]) -> int:
        """A function and its type."""
        return self.add(Kind.FUNC, name, last=self.proto(result, parameters), count=1)

    def build(self, *, layout: Iterable[tuple[int, int]] | None = None) -> bytes:
        """The bytes.  ``layout``: bytes once and per element of every kind, as Linux 7
        and later tell it."""
        types = b"".join(self._types)
        sizes = b"".join(struct.pack("BBxx", *row) for row in layout or ())
        header = 24 if layout is None else 32
        head = struct.pack(f"{self._order}HBBI", MAGIC, 1, 0, header)
        head += struct.pack(f"{self._order}IIII", 0, len(types), len(types), len(self._text))
        if layout is not None:
            head += struct.pack(f"{self._order}II", len(types) + len(self._text), len(sizes))
        return head + types + bytes(self._text) + sizes
