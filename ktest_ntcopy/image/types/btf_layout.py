# SPDX-License-Identifier: GPL-2.0-only
"""Sizes, members and C spelling of the types in BTF data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ktest_ntcopy.image.types.btf_data import (
    COMPOUND,
    DEPTH,
    ENUMS,
    QUALIFIERS,
    TRANSPARENT,
    BtfData,
    BtfError,
    Budget,
    Kind,
    Type,
)
from ktest_ntcopy.image.types.typeinfo import Enumerator

_TAG = {Kind.STRUCT: "struct", Kind.UNION: "union", Kind.ENUM: "enum", Kind.ENUM64: "enum"}
_SIZED = (Kind.INT, Kind.FLOAT, Kind.DATASEC, *ENUMS, *COMPOUND)


class Field(NamedTuple):
    """A member as its own struct has it."""

    name: str
    type: int
    bit_offset: int
    bits: int  #: width of a bitfield, else 0


def strip(data: BtfData, number: int) -> int:
    """The type behind typedefs, qualifiers and tags."""
    for _ in range(DEPTH):
        if data.kind(number) not in TRANSPARENT:
            return number
        number = data.type(number).last
    raise BtfError(f"type {number} refers to itself")


def array_of(data: BtfData, found: Type) -> tuple[int, int]:
    """Type of an array's elements, and their count."""
    element, _, count = next(data.elements(found))
    return element, count


def size_of(data: BtfData, number: int, pointer_size: int) -> int:
    """Bytes of a type; 0 for one that has no size."""
    factor = 1
    for _ in range(DEPTH):
        found = data.type(strip(data, number))
        if found.kind is Kind.PTR:
            return factor * pointer_size
        if found.kind is Kind.ARRAY:
            number, count = array_of(data, found)
            factor *= count
            continue
        return factor * found.last if found.kind in _SIZED else 0
    raise BtfError(f"array {number} contains itself")


def fields(data: BtfData, found: Type) -> Iterator[Field]:
    """Members of a struct or union in their order, anonymous ones among them."""
    for name_at, kind, where in data.elements(found):
        name = data.string(name_at)
        if found.flag:
            yield Field(name, kind, where & 0xFFFFFF, where >> 24)
        else:
            # Before there was the flag, a bitfield was an integer type of odd width.
            inner = data.type(strip(data, kind))
            extra = data.extra(inner) if inner.kind is Kind.INT else 0
            width, shift = extra & 0xFF, extra >> 16 & 0xFF
            odd = inner.kind is Kind.INT and (width != 8 * inner.last or shift)
            yield Field(name, kind, where + shift if odd else where, width if odd else 0)


def enumerators(data: BtfData, found: Type) -> Iterator[Enumerator]:
    """Constants of an enum in their order."""
    for name_at, low, *high in data.elements(found):
        value, bits = (high[0] << 32 | low, 64) if high else (low, 32)
        if found.flag and value >> bits - 1:
            value -= 1 << bits
        yield Enumerator(data.string(name_at), value, found.name)


def spell(data: BtfData, number: int, name: str = "", budget: Budget | None = None) -> str:
    """C declaration of something called ``name``, or the type alone.

    A named struct, union or enum is its name; an anonymous one is ``struct {...}``.
    """
    specifier, declarator = declare(data, number, name, budget or Budget())
    return f"{specifier} {declarator}" if declarator else specifier


def declare(
    data: BtfData, number: int, name: str, budget: Budget, *, named_parameters: bool = False
) -> tuple[str, str]:
    """Specifier and declarator: ("struct sock", "*sk").

    A declarator grows from the name outwards: pointers before it, arrays and parameters
    after it, in parentheses where a pointer came between.
    """
    qualifiers: list[str] = []
    pointed = False  # whether the last step put a "*" before the declarator
    for _ in range(DEPTH * 4):
        budget.spend(number)
        found = data.type(number)
        if found.kind in QUALIFIERS:
            if (word := found.kind.name.lower()) not in qualifiers:
                qualifiers.append(word)
        elif found.kind is Kind.PTR:
            own = " ".join(qualifiers)
            gap = " " if own and name else ""
            name, qualifiers, pointed = f"*{own}{gap}{name}", [], True
        elif found.kind is Kind.ARRAY:
            element, count = array_of(data, found)
            name, pointed = f"({name})[{count}]" if pointed else f"{name}[{count}]", False
            number = element
            continue
        elif found.kind is Kind.FUNC_PROTO:
            with budget.deeper(number):
                inside = parameters(data, found, budget, named=named_parameters)
            name, pointed = f"({name})({inside})" if pointed else f"{name}({inside})", False
            qualifiers = []  # C has no qualified functions
        elif found.kind is not Kind.TYPE_TAG:
            return " ".join([*qualifiers, specifier(found)]), name
        number = found.last
    raise BtfError(f"type {number} refers to itself")


def specifier(found: Type) -> str:
    """What names a type in C."""
    if found.kind is Kind.FWD:
        return f"{'union' if found.flag else 'struct'} {found.name}"
    if tag := _TAG.get(found.kind):
        return f"{tag} {found.name}" if found.name else f"{tag} {{...}}"
    return found.name or f"(type of kind {int(found.kind)})"


def parameters(data: BtfData, proto: Type, budget: Budget, *, named: bool) -> str:
    """What stands between the parentheses of a function type."""
    found: list[str] = []
    for name_at, kind in data.elements(proto):
        if kind == 0:  # how the format says that more arguments may follow
            found.append("...")
        else:
            found.append(spell(data, kind, data.string(name_at) if named else "", budget))
    return ", ".join(found) or "void"
