# SPDX-License-Identifier: GPL-2.0-only
"""Types of a kernel, read from its BTF: the quick implementation of TypeInfo.

Only what is asked about is decoded.  A module's BTF continues that of its vmlinux.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.types import declare
from ktest_ntcopy.image.types.btf_data import (
    COMPOUND,
    DEPTH,
    ENUMS,
    BtfData,
    BtfError,
    Budget,
    Kind,
    NoBase,
)
from ktest_ntcopy.image.types.btf_layout import Field, enumerators, fields, size_of, spell, strip
from ktest_ntcopy.image.types.typeinfo import Enumerator, Member, NameKind

__all__ = ["Btf", "BtfError", "Enumerator", "Kind", "Member", "load_btf", "read_btf"]

_NAMED = {
    "compound": COMPOUND,
    "function": (Kind.FUNC,),
    "typedef": (Kind.TYPEDEF,),
    "enum": ENUMS,
}


class Btf:
    """BTF data.  Raises BtfError where they contradict themselves.

    ``base`` is the BTF of vmlinux if ``data`` are a module's.
    """

    source = "BTF"

    def __init__(self, data: bytes, *, pointer_size: int = 8, base: Btf | None = None) -> None:
        self.pointer_size = pointer_size  #: bytes; the format does not say
        self.data: BtfData = BtfData(data, base=base.data if base else None)

    def __len__(self) -> int:
        """Number of types, void included."""
        return len(self.data)

    # Structs and unions

    def compounds(self) -> Iterator[str]:
        """Names of all structs and unions."""
        return iter(self.names("compound"))

    def struct_size(self, name: str) -> int | None:
        """Bytes of a struct or union, None if there is none of that name."""
        number = next(self.data.named(name, *COMPOUND), None)
        return None if number is None else self.data.type(number).last

    def members(self, name: str) -> tuple[Member, ...]:
        """Members of a struct or union, those of anonymous ones within it in their place."""
        number = next(self.data.named(name, *COMPOUND), None)
        if number is None:
            return ()
        budget = Budget()
        return tuple(self._member(f, at, budget) for f, at in self._fields(number, 0, budget))

    def member(self, path: str) -> Member | None:
        """``struct.member``, or ``struct.member.member`` through embedded structs."""
        first, *names = path.split(".")
        for number in self.data.named(first, *COMPOUND):
            if names and (found := self._descend(number, names)):
                return found
        return None

    def _descend(self, number: int, names: list[str]) -> Member | None:
        base, budget = 0, Budget()
        found: Field | None = None
        for name in names:
            if self.data.kind(number) not in COMPOUND:
                return None
            for field, at in self._fields(number, base, budget):
                if field.name == name:
                    found, base, number = field, at, strip(self.data, field.type)
                    break
            else:
                return None
        return self._member(found, base, budget) if found else None

    def _member(self, field: Field, at: int, budget: Budget) -> Member:
        size = field.bits or 8 * size_of(self.data, field.type, self.pointer_size)
        return Member(field.name, spell(self.data, field.type, budget=budget), at, size)

    def _fields(
        self, number: int, base: int, budget: Budget, depth: int = 0
    ) -> Iterator[tuple[Field, int]]:
        """Named members and their offset in bits from the outermost struct."""
        if depth > DEPTH:
            raise BtfError(f"type {number} contains itself")
        for field in fields(self.data, self.data.type(number)):
            budget.spend(number)
            if field.name:
                yield field, base + field.bit_offset
                continue
            inner = strip(self.data, field.type)
            if self.data.kind(inner) in COMPOUND:
                yield from self._fields(inner, base + field.bit_offset, budget, depth + 1)

    # Enums

    def enumerator(self, name: str) -> Enumerator | None:
        """The first enumerator of that name."""
        for number, index in self.data.enumerators_named(name):
            for place, found in enumerate(enumerators(self.data, self.data.type(number))):
                if place == index:
                    return found
        return None

    @cached_property
    def enumerators(self) -> dict[str, int]:
        """Every enumerator of every enum and its value; of several, the first."""
        found: dict[str, int] = {}
        for number in self.data.of_kind(*ENUMS):
            for one in enumerators(self.data, self.data.type(number)):
                found.setdefault(one.name, one.value)
        return found

    # Functions

    def prototype(self, name: str) -> str | None:
        """C declaration of a function with the names of its parameters."""
        for number in self.data.named(name, Kind.FUNC):
            return declare.prototype(self.data, self.data.type(number))
        return None

    # Everything

    def names(self, kind: NameKind) -> Iterable[str]:
        """All names of a kind, each once."""
        if kind == "enumerator":
            return list(self.enumerators)
        numbers = self.data.of_kind(*_NAMED[kind])
        found = dict.fromkeys(map(self.data.name, numbers))
        found.pop("", None)
        return list(found)

    def declaration(self, name: str) -> str:
        """Everything of that name as C, with offsets and sizes in bytes."""
        return declare.declaration(self.data, name, self.pointer_size)


def read_btf(elf: Elf, *, base: Btf | None = None) -> Btf | None:
    """The ``.BTF`` section of an open kernel; None without one.  Raises ConfigError.

    A module's continues ``base``, the BTF of its vmlinux.  A module that carries the
    part it needs of that (``.BTF.base``) is read without: what it only points to or
    embeds is then known by name and size.
    """
    section = elf.only_section(".BTF")
    if section is None or not section.size:
        return None
    pointer_size = elf.bits // 8
    try:
        if base is None and (distilled := elf.section(".BTF.base")) and distilled.size:
            base = Btf(elf.read(distilled), pointer_size=pointer_size)
        return Btf(elf.read(section), pointer_size=pointer_size, base=base)
    except NoBase as err:
        raise ConfigError(
            f"{elf.path}: the types of a module continue those of its vmlinux; ask about that"
        ) from err
    except BtfError as err:
        raise ConfigError(f"{elf.path}: damaged .BTF section: {err}; build it again") from err


def load_btf(path: Path, *, base: Btf | None = None) -> Btf | None:
    """:func:`read_btf` of a file that is not open yet."""
    with Elf(path) as elf:
        return read_btf(elf, base=base)
