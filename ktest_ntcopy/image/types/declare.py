# SPDX-License-Identifier: GPL-2.0-only
"""Shows types as C with where their members lie, in the manner of pahole."""

from __future__ import annotations

from collections.abc import Iterator

from ktest_ntcopy.image.types.btf_data import (
    COMPOUND,
    DEPTH,
    ENUMS,
    QUALIFIERS,
    BtfData,
    BtfError,
    Budget,
    Kind,
    Type,
)
from ktest_ntcopy.image.types.btf_layout import (
    Field,
    array_of,
    declare,
    enumerators,
    fields,
    size_of,
    spell,
)

_COLUMN = 56  # where comments begin if the code before is not longer
_ASKED = {"struct": (Kind.STRUCT,), "union": (Kind.UNION,), "enum": ENUMS}
_SHOWN = (*COMPOUND, *ENUMS, Kind.TYPEDEF, Kind.FUNC, Kind.VAR, Kind.DATASEC, Kind.INT, Kind.FLOAT)
_LINKAGE = ("static ", "", "extern ")


def prototype(data: BtfData, function: Type) -> str:
    """C declaration of a FUNC with the names of its parameters, without a semicolon."""
    parts = declare(data, function.last, function.name, Budget(), named_parameters=True)
    return " ".join(part for part in parts if part).replace("* ", "*")


def declaration(data: BtfData, name: str, pointer_size: int) -> str:
    """Everything of that name; see :meth:`TypeInfo.declaration`."""
    tag, _, bare = name.strip().rpartition(" ")
    kinds = _ASKED.get(tag, () if tag else _SHOWN)
    if not kinds:
        return ""
    budget = Budget()
    numbers = list(data.named(bare, *kinds))
    if not tag:
        numbers += [number for number, _ in data.enumerators_named(bare)]
    if not numbers and tag != "enum":
        ahead = map(data.type, data.named(bare, Kind.FWD))
        numbers = [found.number for found in ahead if not tag or found.flag == (tag == "union")]
    texts = (show(data, number, pointer_size, budget) for number in dict.fromkeys(numbers))
    return "\n\n".join(dict.fromkeys(texts))


def show(data: BtfData, number: int, pointer_size: int, budget: Budget | None = None) -> str:
    """One type as C."""
    return _Show(data, pointer_size, budget or Budget()).top(number)


class _Show:
    """Writes the lines of one type."""

    def __init__(self, data: BtfData, pointer_size: int, budget: Budget) -> None:
        self._data = data
        self._pointer_size = pointer_size
        self._budget = budget
        self._lines: list[str] = []

    def top(self, number: int) -> str:
        found = self._data.type(number)
        if found.kind in COMPOUND or found.kind in ENUMS:
            self._body(found, 0, 0, "", "")
        elif found.kind is Kind.DATASEC:
            self._section(found)
        else:
            self._simple(found)
        return "\n".join(self._lines)

    def _line(self, depth: int, code: str, comment: str = "") -> None:
        text = "\t" * depth + code
        if comment:
            width = len(text.expandtabs(8))
            text += " " * max(1, _COLUMN - width) + f"/* {comment} */"
        self._lines.append(text)

    def _simple(self, found: Type) -> None:
        if found.kind is Kind.FUNC:
            tags = ", ".join(self._tags(found.number))
            self._line(0, prototype(self._data, found) + ";", tags and f"tags: {tags}")
        elif found.kind is Kind.VAR:
            linkage = self._data.extra(found)
            code = spell(self._data, found.last, found.name, self._budget)
            prefix = _LINKAGE[linkage] if linkage < len(_LINKAGE) else ""
            self._line(0, f"{prefix}{code};", f"size: {self._size(found.last)}")
        elif found.kind is Kind.FWD:
            self._line(0, f"{'union' if found.flag else 'struct'} {found.name};", "no definition")
        elif found.kind is Kind.TYPEDEF:
            self._declare(
                "typedef ", found.last, found.name, 0, 0, f"size: {self._size(found.last)}"
            )
        else:
            self._line(0, f"{found.name};", f"size: {found.last}")

    def _tags(self, number: int) -> Iterator[str]:
        for tag in map(self._data.type, self._data.of_kind(Kind.DECL_TAG)):
            if tag.last == number:
                yield tag.name

    def _section(self, found: Type) -> None:
        self._line(0, f"{found.name} {{")
        for number, offset, size in self._data.elements(found):
            variable = self._data.type(number)
            code = spell(self._data, variable.last, variable.name, self._budget)
            self._line(1, f"{code};", f"{offset:5} {size:5}")
        self._line(0, "};", f"size: {found.last}")

    def _declare(
        self, prefix: str, number: int, name: str, base: int, depth: int, comment: str
    ) -> None:
        """One declaration; the body of an anonymous type is written out in it."""
        core, embedded = self._core(number)
        specifier, declarator = declare(self._data, number, name, self._budget)
        if not specifier.endswith("{...}"):
            text = f"{prefix}{specifier} {declarator}".rstrip()
            self._line(depth, f"{text};", comment)
            return
        prefix += "".join(f"{word} " for word in specifier.split()[:-2])
        gap = " " if declarator else ""
        inner = base if embedded else 0
        self._body(self._data.type(core), inner, depth, prefix, f"{gap}{declarator}", comment)

    def _core(self, number: int) -> tuple[int, bool]:
        """What is left without pointers, arrays and qualifiers; whether it lies inside."""
        embedded = True
        for _ in range(DEPTH * 4):
            found = self._data.type(number)
            if found.kind is Kind.ARRAY:
                number, _ = array_of(self._data, found)
            elif found.kind in (Kind.PTR, Kind.TYPE_TAG, Kind.FUNC_PROTO, *QUALIFIERS):
                embedded = embedded and found.kind not in (Kind.PTR, Kind.FUNC_PROTO)
                number = found.last
            else:
                return number, embedded
        raise BtfError(f"type {number} refers to itself")

    def _body(
        self, found: Type, base: int, depth: int, prefix: str, name: str, comment: str = ""
    ) -> None:
        self._budget.spend(found.number)
        if depth > DEPTH:
            raise BtfError(f"type {found.number} contains itself")
        enum = found.kind in ENUMS
        tag = "enum" if enum else found.kind.name.lower()
        self._line(depth, f"{prefix}{tag} {found.name + ' ' if found.name else ''}{{")
        if enum:
            for one in enumerators(self._data, found):
                self._budget.spend(found.number)
                self._line(depth + 1, f"{one.name} = {one.value},")
            footer = f"size: {found.last}"
        else:
            footer = self._fields(found, base, depth + 1)
        if not depth and not enum:
            self._line(0, "")
            self._line(1, f"/* {footer} */")
        self._line(depth, f"}}{name};", comment or ("" if not enum else footer))

    def _fields(self, found: Type, base: int, depth: int) -> str:
        """The members, the holes between them, and a summary."""
        end = count = holes = lost = 0
        for field in fields(self._data, found):
            self._budget.spend(found.number)
            count += 1
            gap = field.bit_offset - end
            if gap > 0 and found.kind is Kind.STRUCT:
                holes += 1
                lost += gap
                self._hole(gap, depth)
            size = field.bits or 8 * self._size(field.type)
            end = max(end, field.bit_offset + size)
            where = self._where(field, base + field.bit_offset)
            width = f":{field.bits}" if field.bits else ""
            self._declare("", field.type, field.name + width, base + field.bit_offset, depth, where)
        summary = f"size: {found.last}, members: {count}"
        if holes:
            summary += f", holes: {holes}, sum holes: {_amount(lost)}"
        if (padding := 8 * found.last - end) > 0 and found.kind is Kind.STRUCT:
            summary += f", padding: {_amount(padding)}"
        return summary

    def _hole(self, bits: int, depth: int) -> None:
        self._line(0, "")
        self._line(depth, f"/* XXX {_amount(bits)} hole */")
        self._line(0, "")

    def _where(self, field: Field, at: int) -> str:
        """Offset and size in bytes; of a bitfield the unit it lies in and the bit there."""
        size = self._size(field.type)
        if not field.bits:
            return f"{at // 8:5} {size:5}"
        unit = 8 * size or 8
        start = at // unit * unit
        return f"{start // 8:5}:{at - start:2} {size:2}"

    def _size(self, number: int) -> int:
        return size_of(self._data, number, self._pointer_size)


def _amount(bits: int) -> str:
    whole, rest = divmod(bits, 8)
    parts = [_count(whole, "byte")] if whole else []
    return " ".join([*parts, _count(rest, "bit")] if rest else parts)


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"
