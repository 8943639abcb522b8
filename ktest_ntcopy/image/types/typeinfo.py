# SPDX-License-Identifier: GPL-2.0-only
"""What can be asked about the types of a kernel, whichever section answers.

BTF (:mod:`ktest_ntcopy.image.types.btf`) answers in milliseconds and nearly every kernel
has it; DWARF (:mod:`ktest_ntcopy.image.types.dwarf`) takes seconds per answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

#: What names can be listed of: structs and unions, enumerators, functions, typedefs,
#: enums.
NameKind = Literal["compound", "enumerator", "function", "typedef", "enum"]


class TypeInfoError(ValueError):
    """Type information is damaged, or could not be read within its bounds.

    The text is one line without the file's name, which the caller knows.
    """


@dataclass(frozen=True)
class Member:
    """One member of a struct or union, seen from the outermost one."""

    name: str
    type: str  #: as C would write it without the name, e.g. "int (*)(struct sock *)"
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


@dataclass(frozen=True)
class Enumerator:
    """One constant of an enum."""

    name: str
    value: int
    enum: str  #: name of the enum; empty for an anonymous one


class TypeInfo(Protocol):
    """Types of one kernel.  Every method may raise TypeInfoError for damaged data.

    Where several types bear one name, single answers are about the first that
    has what was asked for; :meth:`declaration` shows all.
    """

    @property
    def source(self) -> str:
        """Where the answers come from, for reports: "BTF" or "DWARF"."""

    def struct_size(self, name: str) -> int | None:
        """Bytes of a struct or union; None if the kernel has none of that name."""

    def members(self, name: str) -> tuple[Member, ...]:
        """Members of a struct or union in their order, those of anonymous ones within it
        in their place; empty if there is no such type."""

    def member(self, path: str) -> Member | None:
        """``struct.member``, or ``struct.member.member`` through embedded structs, with
        the offset from the start of the first."""

    def enumerator(self, name: str) -> Enumerator | None:
        """An enumerator by its name."""

    def prototype(self, name: str) -> str | None:
        """C declaration of a function, without a semicolon:
        ``int udp_sendmsg(struct sock *sk, struct msghdr *msg, size_t len)``.
        Compare with :func:`ktest_ntcopy.image.types.signature.same_signature`."""

    def names(self, kind: NameKind) -> Iterable[str]:
        """All names of a kind, to look for one that is near.  Takes longer than a lookup;
        empty where listing them is too dear (DWARF)."""

    def declaration(self, name: str) -> str:
        """Everything of that name as C: struct, union, enum, typedef, function, variable,
        with offsets and sizes where it has them; several separated by an empty line.
        ``struct x``, ``union x`` and ``enum x`` ask for that kind only.  An enumerator
        shows its enum.  Empty if there is nothing of that name."""
