# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's machine code calls: proof that one function reaches another.

Functions are decoded one at a time, when a question needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ktest_ntcopy.image.elf import Elf
from ktest_ntcopy.image.symbols import SymbolTable

Kind = Literal["call", "jump", "reference", "indirect"]


@dataclass(frozen=True)
class Call:
    """One place where code leaves its function or takes an address."""

    at: int  #: address of the instruction
    kind: Kind  #: "jump" is a tail call; "reference" an address taken, for a later call
    target: int | None  #: address, None for an indirect call
    name: str | None  #: function there as its author wrote it, None if there is none
    via: str = ""  #: what lies between, e.g. "static call" or "alternative"


@dataclass(frozen=True)
class CodePath:
    """Answer to whether ``source`` reaches ``target``."""

    source: str
    target: str
    found: bool | None  #: None if the file cannot tell; ``detail`` says what it lacks
    detail: str  #: one line: the chain with addresses, or where and why it breaks
    steps: tuple[tuple[str, Call], ...] = ()  #: each function of the chain and its call
    nearest: tuple[str, ...] = ()  #: names like the one that is missing, best first


class CodeError(ValueError):
    """The file cannot answer; one line that says why."""


class CodePaths:
    """The calls between the functions of one kernel.

    Every method raises ConfigError where the file itself is damaged.
    """

    def __init__(self, elf: Elf, symbols: SymbolTable) -> None:
        self._elf = elf
        self._symbols = symbols

    def calls(self, function: str) -> tuple[Call, ...]:
        """All calls, tail calls and address references of a function, by address.

        The compiler's parts of it (``.cold``, ``.part.0``…) belong to it.  Raises
        CodeError if there is no such function or no decoder for the architecture.
        """
        raise CodeError(f"no decoder for {self._elf.arch} ({function})")

    def path(
        self, source: str, target: str, *, through: Sequence[str] = (), limit: int = 2000
    ) -> CodePath:
        """The shortest chain of calls from ``source`` to ``target``.

        With ``through``, exactly these functions lie between, in this order: each calls
        the next directly.  Without, at most ``limit`` functions are searched.
        """
        return CodePath(source, target, None, f"no decoder for {self._elf.arch}", (), (*through,))

    def pointer(self, symbol: str, offset: int) -> str | None:
        """Name of the function that an initialised structure points to.

        ``offset`` is in bytes from the start of the variable.  None for a null pointer.
        Raises CodeError if there is no such variable, or its value is set at run time.
        """
        raise CodeError(f"cannot read {symbol}+{offset:#x}")
