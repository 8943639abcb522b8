# SPDX-License-Identifier: GPL-2.0-only
"""Writes the types that one DWARF entry needs as BTF.

What lies inside a type is written out; what it only points to is left at its name, so
that a question about one struct does not drag half the kernel in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ktest_ntcopy.image.types.btf_data import Kind
from ktest_ntcopy.image.types.btf_write import BtfWriter
from ktest_ntcopy.image.types.typeinfo import TypeInfoError

_DEPTH = 100  # nesting of types; real ones stay below twenty
_ENTRIES = 100_000  # entries that one question may need
_FLOAT, _COMPLEX = 4, 3  # DW_ATE_float, DW_ATE_complex_float
_PLUS_UCONST = 0x23  # DW_OP_plus_uconst

_REFERRING = {
    "DW_TAG_const_type": Kind.CONST,
    "DW_TAG_volatile_type": Kind.VOLATILE,
    "DW_TAG_restrict_type": Kind.RESTRICT,
}
_COMPOUND = {
    "DW_TAG_structure_type": Kind.STRUCT,
    "DW_TAG_class_type": Kind.STRUCT,
    "DW_TAG_union_type": Kind.UNION,
}


def text_of(die: Any, attribute: str = "DW_AT_name") -> str:
    """A string attribute; empty if the entry has none."""
    found = die.attributes.get(attribute)
    value = found.value if found else b""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def number_of(die: Any, attribute: str, default: int = 0) -> int:
    """A constant attribute; the default if it is missing or not constant."""
    found = die.attributes.get(attribute)
    value = found.value if found else default
    if isinstance(value, int):
        return value
    # DWARF 2 and 3 gave a member's place as an expression: add a constant.
    if isinstance(value, list) and len(value) > 1 and value[0] == _PLUS_UCONST:
        return sum((byte & 127) << 7 * i for i, byte in enumerate(value[1:10]))
    return default


class Converter:
    """One set of types.  Raises TypeInfoError for what is absurdly large or deep."""

    def __init__(self, order: str, tick: Callable[[], None]) -> None:
        self.writer = BtfWriter(order)
        self._little = order == "<"
        self._tick = tick
        self._seen: dict[tuple[int, bool], int] = {}
        self._depth = self._count = 0

    def target(self, die: Any, *, inside: bool) -> int:
        """The type an entry refers to; 0 is void.  ``inside``: its size matters."""
        if "DW_AT_type" not in die.attributes:
            return 0
        return self.convert(die.get_DIE_from_attribute("DW_AT_type"), inside=inside)

    def convert(self, die: Any, *, inside: bool) -> int:
        """Number of the type that the entry describes."""
        key = (die.offset, inside)
        if key in self._seen:
            return self._seen[key]
        self._count += 1
        if self._count > _ENTRIES or self._depth > _DEPTH:
            raise TypeInfoError(f"the type at byte {die.offset:#x} of .debug_info is too large")
        if self._count % 256 == 0:
            self._tick()
        self._depth += 1
        try:
            return self._convert(die, key)
        finally:
            self._depth -= 1

    def _convert(self, die: Any, key: tuple[int, bool]) -> int:
        tag, name, inside = die.tag, text_of(die), key[1]
        if tag in _COMPOUND:
            return self._compound(die, key)
        if tag == "DW_TAG_enumeration_type":
            number = self.writer.enum(
                name, self._enumerators(die), size=number_of(die, "DW_AT_byte_size", 4)
            )
        elif tag == "DW_TAG_base_type":
            number = self._base(die, name)
        elif tag == "DW_TAG_typedef" and not inside:
            number = self.writer.add(Kind.TYPEDEF, name)
        elif tag in ("DW_TAG_pointer_type", "DW_TAG_typedef") or tag in _REFERRING:
            kind = {"DW_TAG_pointer_type": Kind.PTR, "DW_TAG_typedef": Kind.TYPEDEF}.get(tag)
            number = self._seen[key] = self.writer.reserve()
            deeper = inside and kind is not Kind.PTR
            last = self.target(die, inside=deeper)
            self.writer.put(number, kind or _REFERRING[tag], name if kind else "", last=last)
        elif tag == "DW_TAG_array_type":
            number = self._array(die, inside=inside)
        elif tag == "DW_TAG_subroutine_type":
            number = self.proto(die)
        elif tag == "DW_TAG_unspecified_type":
            number = 0
        else:  # _Atomic and what compilers add: says nothing about layout
            number = self.target(die, inside=inside)
        self._seen[key] = number
        return number

    def _base(self, die: Any, name: str) -> int:
        size = number_of(die, "DW_AT_byte_size")
        if number_of(die, "DW_AT_encoding") in (_FLOAT, _COMPLEX):
            return self.writer.add(Kind.FLOAT, name, last=size)
        return self.writer.integer(name, size)

    def _enumerators(self, die: Any) -> Iterator[tuple[str, int]]:
        for child in die.iter_children():
            if child.tag == "DW_TAG_enumerator":
                yield text_of(child), number_of(child, "DW_AT_const_value")

    def _array(self, die: Any, *, inside: bool) -> int:
        counts: list[int] = []
        for child in die.iter_children():
            if child.tag == "DW_TAG_subrange_type":
                upper = number_of(child, "DW_AT_upper_bound", -1)
                # A bound of -1 is how an empty array is told, in whatever width.
                count = 0 if upper + 1 in (0, 1 << 32, 1 << 64) else upper + 1
                counts.append(number_of(child, "DW_AT_count", count))
        number = self.target(die, inside=inside)
        for count in reversed(counts or [0]):
            number = self.writer.array(number, count)
        return number

    def _compound(self, die: Any, key: tuple[int, bool]) -> int:
        name, kind = text_of(die), _COMPOUND[die.tag]
        declared = "DW_AT_declaration" in die.attributes
        if declared or (name and not key[1]):
            number = self.writer.add(Kind.FWD, name, flag=kind is Kind.UNION)
            self._seen[key] = number
            return number
        number = self._seen[key] = self.writer.reserve()
        rows: list[tuple[str, int, int, int]] = []
        for child in die.iter_children():
            if child.tag == "DW_TAG_member":
                bits = number_of(child, "DW_AT_bit_size")
                rows.append(
                    (text_of(child), self.target(child, inside=True), self._place(child), bits)
                )
        size = number_of(die, "DW_AT_byte_size")
        return self.writer.compound(kind, name, size, rows, number=number)

    def _place(self, member: Any) -> int:
        """Bits before a member."""
        if "DW_AT_data_bit_offset" in member.attributes:
            return number_of(member, "DW_AT_data_bit_offset")
        start = 8 * number_of(member, "DW_AT_data_member_location")
        if "DW_AT_bit_offset" not in member.attributes:
            return start
        # Up to DWARF 3, counted from the most significant bit of what holds the bitfield.
        skipped = number_of(member, "DW_AT_bit_offset")
        if not self._little:
            return start + skipped
        if skipped >= 1 << 63:  # the offset may be negative, and be read as positive
            skipped -= 1 << 64
        unit = number_of(member, "DW_AT_byte_size") or self._size(member)
        return start + 8 * unit - skipped - number_of(member, "DW_AT_bit_size")

    def _size(self, member: Any) -> int:
        die = member
        for _ in range(_DEPTH):
            die = die.get_DIE_from_attribute("DW_AT_type")
            if "DW_AT_byte_size" in die.attributes:
                return number_of(die, "DW_AT_byte_size")
        raise TypeInfoError(f"a typedef at byte {die.offset:#x} of .debug_info refers to itself")

    def proto(self, die: Any) -> int:
        """The type of a function, from its entry or that of its type."""
        parameters: list[tuple[str, int]] = []
        for child in die.iter_children():
            if child.tag == "DW_TAG_formal_parameter":
                parameters.append((text_of(child), self.target(child, inside=False)))
            elif child.tag == "DW_TAG_unspecified_parameters":
                parameters.append(("", 0))
        return self.writer.proto(self.target(die, inside=False), parameters)
