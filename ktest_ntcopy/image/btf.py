# SPDX-License-Identifier: GPL-2.0-only
"""Types of a kernel, read from its BTF.

The reader walks every kind of type, so that nothing behind an unknown one is
lost, and answers for struct members and enumerators.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.elf import Elf

_MAGIC = 0xEB9F
_DEPTH = 64  # longest chain of typedefs and qualifiers followed; real ones are below ten


class Kind(IntEnum):
    """Kinds of types, numbered as in the format."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19


# What follows the 12-byte header of a type: bytes once, and bytes per element.
_ONCE = {Kind.INT: 4, Kind.ARRAY: 12, Kind.VAR: 4, Kind.DECL_TAG: 4}
_EACH = {
    Kind.STRUCT: 12,
    Kind.UNION: 12,
    Kind.ENUM: 8,
    Kind.FUNC_PROTO: 8,
    Kind.DATASEC: 12,
    Kind.ENUM64: 12,
}
_TRANSPARENT = (Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG)
_COMPOUND = (Kind.STRUCT, Kind.UNION)


class BtfError(ValueError):
    """The bytes are no BTF, or damaged."""


@dataclass(frozen=True)
class Member:
    """One member of a struct or union, seen from the outermost one."""

    name: str
    type: str  #: as C would write it
    bit_offset: int
    bit_size: int  #: 0 if the type has no size, e.g. a flexible array

    @property
    def offset(self) -> int:
        """Whole bytes before the member."""
        return self.bit_offset // 8

    @property
    def size(self) -> int:
        """Bytes, rounded up."""
        return (self.bit_size + 7) // 8


class Btf:
    """BTF data.  Raises BtfError where they contradict themselves."""

    def __init__(self, data: bytes, *, pointer_size: int = 8) -> None:
        self._pointer_size = pointer_size  # bytes; the format does not say
        try:
            self._read(data)
        except struct.error as err:
            raise BtfError(f"BTF ends too early ({err})") from err

    def _read(self, data: bytes) -> None:
        for order in "<>":
            magic, version, _, header = struct.unpack_from(order + "HBBI", data)
            if magic == _MAGIC:
                break
        else:
            raise BtfError("no BTF magic number")
        if version != 1:
            raise BtfError(f"BTF version {version} is not known")
        self._order = order
        type_at, type_size, text_at, text_size = struct.unpack_from(order + "IIII", data, 8)
        if header + max(type_at + type_size, text_at + text_size) > len(data):
            raise BtfError(f"BTF ends too early: {len(data)} bytes")
        self._types = data[header + type_at : header + type_at + type_size]
        self._text = data[header + text_at : header + text_at + text_size].decode("latin-1")
        self._head = struct.Struct(order + "III")
        self._walk()

    def _walk(self) -> None:
        once = [_ONCE.get(Kind(k), 0) if k <= max(Kind) else -1 for k in range(32)]
        each = [_EACH.get(Kind(k), 0) if k <= max(Kind) else 0 for k in range(32)]
        starts = array("I", [0])  # id 0 is void and has no bytes
        at, end = 0, len(self._types)
        unpack = self._head.unpack_from
        types = self._types
        while at < end:
            info = unpack(types, at)[1]
            kind = info >> 24 & 31
            if not kind or once[kind] < 0:
                raise BtfError(f"type {len(starts)} is of unknown kind {kind}")
            starts.append(at)
            at += 12 + once[kind] + each[kind] * (info & 0xFFFF)
        if at != end:
            raise BtfError("the last type is cut off")
        self._starts = starts

    def __len__(self) -> int:
        """Number of types, void included."""
        return len(self._starts)

    def _header(self, number: int) -> tuple[str, Kind, int, bool, int]:
        """Name, kind, number of elements, kind flag, and size or referred type."""
        if not 0 < number < len(self._starts):
            if number == 0:
                return "void", Kind.VOID, 0, False, 0
            raise BtfError(f"type {number} of {len(self._starts)} referred to")
        name, info, last = self._head.unpack_from(self._types, self._starts[number])
        return self._string(name), Kind(info >> 24 & 31), info & 0xFFFF, bool(info >> 31), last

    def _string(self, at: int) -> str:
        end = self._text.find("\0", at)
        if end < 0:
            raise BtfError(f"string {at} is not in the table")
        return self._text[at:end]

    def _elements(self, number: int, layout: str, count: int) -> Iterator[tuple[int, ...]]:
        form = struct.Struct(self._order + layout)
        start = self._starts[number] + 12
        return form.iter_unpack(self._types[start : start + form.size * count])

    def _strip(self, number: int) -> int:
        """The type behind typedefs and qualifiers."""
        for _ in range(_DEPTH):
            _, kind, _, _, last = self._header(number)
            if kind not in _TRANSPARENT:
                return number
            number = last
        raise BtfError(f"type {number} refers to itself")

    def _size(self, number: int) -> int:
        """Size in bytes."""
        factor = 1
        for _ in range(_DEPTH):
            number = self._strip(number)
            _, kind, _, _, last = self._header(number)
            if kind is Kind.PTR:
                return factor * self._pointer_size
            if kind is Kind.ARRAY:
                number, _, count = next(self._elements(number, "III", 1))
                factor *= count
                continue
            sized = (Kind.INT, Kind.FLOAT, Kind.ENUM, Kind.ENUM64, *_COMPOUND)
            return factor * last if kind in sized else 0
        raise BtfError(f"array {number} contains itself")

    def type_name(self, number: int, depth: int = 0) -> str:
        """A type as C would write it, near enough to be read."""
        name, kind, _, _, last = self._header(number)
        if depth > _DEPTH:
            raise BtfError(f"type {number} refers to itself")
        if kind is Kind.PTR:
            inner = self.type_name(last, depth + 1)
            return f"{inner}*" if inner.endswith("*") else f"{inner} *"
        if kind is Kind.ARRAY:
            element, _, count = next(self._elements(number, "III", 1))
            return f"{self.type_name(element, depth + 1)}[{count}]"
        if kind in (Kind.CONST, Kind.VOLATILE, Kind.RESTRICT):
            return f"{kind.name.lower()} {self.type_name(last, depth + 1)}"
        if kind is Kind.TYPE_TAG:
            return self.type_name(last, depth + 1)
        if kind is Kind.FUNC_PROTO:
            return f"{self.type_name(last, depth + 1)} (*)()"
        prefix = {
            Kind.STRUCT: "struct ",
            Kind.UNION: "union ",
            Kind.ENUM: "enum ",
            Kind.ENUM64: "enum ",
            Kind.FWD: "struct ",
        }.get(kind, "")
        return prefix + (name or "(anonymous)")

    @cached_property
    def _compounds(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number in self._of_kind(*_COMPOUND):
            if name := self._header(number)[0]:
                found.setdefault(name, number)
        return found

    def _of_kind(self, *kinds: Kind) -> Iterator[int]:
        wanted = [k in kinds for k in range(32)]
        unpack, types = self._head.unpack_from, self._types
        for number in range(1, len(self._starts)):
            if wanted[unpack(types, self._starts[number])[1] >> 24 & 31]:
                yield number

    def compounds(self) -> Iterator[str]:
        """Names of all structs and unions."""
        return iter(self._compounds)

    def struct_size(self, name: str) -> int | None:
        """Bytes of a struct or union, None if there is none of that name."""
        number = self._compounds.get(name)
        return None if number is None else self._size(number)

    def members(self, name: str) -> tuple[Member, ...]:
        """Members of a struct or union, those of anonymous ones within it in their place."""
        number = self._compounds.get(name)
        return () if number is None else tuple(m for m, _ in self._members(number, 0, 0))

    def _members(self, number: int, base: int, depth: int) -> Iterator[tuple[Member, int]]:
        """Members with the number of their type behind typedefs and qualifiers."""
        if depth > _DEPTH:
            raise BtfError(f"type {number} contains itself")
        _, _, count, flagged, _ = self._header(number)
        for name_at, kind_at, where in self._elements(number, "III", count):
            bits, offset = (where >> 24, where & 0xFFFFFF) if flagged else (0, where)
            name = self._string(name_at)
            inner = self._strip(kind_at)
            if not name and self._header(inner)[1] in _COMPOUND:
                yield from self._members(inner, base + offset, depth + 1)
            elif name:
                size = bits or 8 * self._size(kind_at)
                yield Member(name, self.type_name(kind_at), base + offset, size), inner

    def member(self, path: str) -> Member | None:
        """``struct.member``, or ``struct.member.member`` through embedded structs."""
        first, *names = path.split(".")
        number = self._compounds.get(first)
        found: Member | None = None
        for name in names:
            if number is None or self._header(number)[1] not in _COMPOUND:
                return None
            base = found.bit_offset if found else 0
            for member, inner in self._members(number, base, 0):
                if member.name == name:
                    found, number = member, inner
                    break
            else:
                return None
        return found

    @cached_property
    def enumerators(self) -> dict[str, int]:
        """Every enumerator of every enum and its value; of several, the first."""
        found: dict[str, int] = {}
        for number in self._of_kind(Kind.ENUM, Kind.ENUM64):
            _, kind, count, signed, _ = self._header(number)
            if kind is Kind.ENUM:
                for name_at, value in self._elements(number, "Ii" if signed else "II", count):
                    found.setdefault(self._string(name_at), value)
            else:
                for name_at, low, high in self._elements(number, "III", count):
                    value = high << 32 | low
                    if signed and value >> 63:
                        value -= 1 << 64
                    found.setdefault(self._string(name_at), value)
        return found


def read_btf(elf: Elf) -> Btf | None:
    """The ``.BTF`` section of an open kernel; None without one.  Raises ConfigError."""
    section = elf.section(".BTF")
    if section is None or not section.size:
        return None
    try:
        return Btf(elf.read(section), pointer_size=elf.bits // 8)
    except BtfError as err:
        raise ConfigError(f"{elf.path}: damaged .BTF section: {err}; build it again") from err


def load_btf(path: Path) -> Btf | None:
    """:func:`read_btf` of a file that is not open yet."""
    with Elf(path) as elf:
        return read_btf(elf)
