# SPDX-License-Identifier: GPL-2.0-only
"""Calls of x86-64 code that may lie anywhere (-mcmodel=large, as of User Mode Linux).

There a call takes two instructions, ``movabs $function,%reg`` and ``call *%reg``, which may
lie far apart: one before a loop and one inside, or one in each branch and one behind them.
So every way from the first is followed, until it ends in the second or no register has the
address any more.  An instruction of which it is not plain what it writes ends the way, so what
is found is a call that the code really makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ktest_ntcopy.image.code.transfer import Kind, Transfer

#: Code without these bytes has no such call.
MOVABS = re.compile(rb"[\x48\x49][\xb8-\xbf]")

_STEPS = 1 << 17  # instructions passed for one function; real ones need a hundredth
_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_RAX, _RCX, _RDX, _RSP, _RBP, _RSI, _RDI = (1 << n for n in (0, 1, 2, 4, 5, 6, 7))
_ALL = 0xFFFF
#: What a called function may change.
_CALLED = _RAX | _RCX | _RDX | _RSI | _RDI | 0xF00

# Opcodes with ModR/M by what they write: what its r/m names, its register, both, or nothing.
_STORES = frozenset((0x88, 0x89, *(op | low for op in range(0, 0x38, 8) for low in (0, 1))))
_LOADS = frozenset(
    (0x8A, 0x8B, 0x8D, 0x63, 0x69, 0x6B, *(op | low for op in range(0, 0x38, 8) for low in (2, 3)))
)
_SWAPS = frozenset((0x86, 0x87))
_TESTS = frozenset((0x38, 0x39, 0x3A, 0x3B, 0x84, 0x85))
# These have a part of the opcode where others have the register.
_GROUPS = frozenset((0x80, 0x81, 0x83, 0xC0, 0xC1, 0xC6, 0xC7, 0xD0, 0xD1, 0xD2, 0xD3, 0xFE))
# Without ModR/M.
_PLAIN = {
    **dict.fromkeys((0x04, 0x05, 0x0C, 0x0D, 0x24, 0x25, 0x2C, 0x2D, 0x34, 0x35, 0x98), _RAX),
    **dict.fromkeys((0x3C, 0x3D, 0x68, 0x6A, 0x90, 0xA8, 0xA9, 0xCC), 0),
    **dict.fromkeys((0xA4, 0xA5), _RSI | _RDI | _RCX),
    **dict.fromkeys((0xAA, 0xAB), _RDI | _RCX),
    0x99: _RDX,
    0xC9: _RSP | _RBP,
}


@dataclass(frozen=True)
class _Step:
    """What one instruction does to the way through the code; offsets in bytes."""

    writes: int  #: bit n: register n may change
    following: tuple[int, ...]  #: where the processor may go on
    register: int = -1  #: the one that it calls or jumps through
    copies: tuple[int, int] | None = None  #: from this register to that, all 64 bits


def resolve(
    code: bytes,
    address: int,
    found: Sequence[Transfer],
    starts: Sequence[int],
    is_function: Callable[[int], bool],
) -> list[Transfer]:
    """``found`` with calls and jumps through registers as what they are, where it is known.

    ``found`` and ``starts`` are what :func:`ktest_ntcopy.image.code.x86.decode` gave.
    """
    loads = [
        t
        for t in found
        if t.kind == "reference"
        and t.target is not None
        and is_movabs(code[t.at - address : t.at - address + 2])
        and is_function(t.target)
    ]
    if not loads:
        return list(found)
    ends = dict(zip(starts, [*starts[1:], len(code)], strict=True))
    steps: dict[int, _Step] = {}
    left = _STEPS
    reached: dict[int, set[int]] = {}
    used: set[int] = set()
    for load in loads:
        begin = load.at - address
        register = (code[begin] & 1) << 3 | code[begin + 1] & 7
        # Where a way got to, and which registers have the address there, as bits.
        ways, seen = [(ends[begin], 1 << register)], set[tuple[int, int]]()
        while ways and left > 0:
            way = at, holding = ways.pop()
            if way in seen or at not in ends:
                continue
            seen.add(way)
            left -= 1
            step = steps.get(at)
            if step is None:
                step = steps[at] = _step(code, at, ends[at])
            if step.register >= 0 and holding >> step.register & 1 and load.target is not None:
                reached.setdefault(address + at, set()).add(load.target)
                used.add(load.at)
            left_over = holding & ~step.writes
            if step.copies and holding >> step.copies[0] & 1:
                left_over |= 1 << step.copies[1]
            if left_over:
                ways += [(onward, left_over) for onward in step.following]
    out: list[Transfer] = []
    for one in found:
        if one.kind == "indirect" and one.target is None and one.at in reached:
            kind: Kind = "call" if steps[one.at - address].following else "jump"
            out += [Transfer(one.at, kind, target) for target in sorted(reached[one.at])]
        elif one.kind != "reference" or one.at not in used:
            out.append(one)
    return out


def is_movabs(code: bytes) -> bool:
    """Whether an instruction of these bytes loads a register with 64 bits that it holds."""
    return MOVABS.match(code) is not None


def _step(code: bytes, begin: int, end: int) -> _Step:
    at = begin
    while at < end - 1 and code[at] in _PREFIXES:
        at += 1
    rex = 0
    if code[at] & 0xF0 == 0x40 and at < end - 1:
        rex = code[at]
        at += 1
    opcode = code[at]
    onward = (end,)
    if opcode in (0xE9, 0xEB) or opcode & 0xF0 == 0x70:
        size = 4 if opcode == 0xE9 else 1
        target = end + int.from_bytes(code[end - size : end], "little", signed=True)
        return _Step(0, (target,) if opcode in (0xE9, 0xEB) else (target, end))
    if opcode == 0xE8:
        return _Step(_CALLED, onward)
    if opcode in (0xC2, 0xC3):
        return _Step(_ALL, ())
    if opcode in _PLAIN:
        return _Step(_PLAIN[opcode], onward)
    low = 1 << (opcode & 7 | (rex & 1) << 3)
    if opcode & 0xF8 == 0x50:  # push
        return _Step(_RSP, onward)
    if opcode & 0xF8 in (0x58, 0xB0, 0xB8, 0x90):  # pop, mov, xchg
        return _Step(
            low | (opcode & 0xF8 == 0x90 and _RAX) | _byte(opcode & 0xF8 == 0xB0, opcode), onward
        )
    if opcode == 0x0F:
        return _two(code, at + 1, end, rex)
    if at + 1 >= end:
        return _Step(_ALL, ())
    return _one(opcode, code[at + 1], rex, onward)


def _one(opcode: int, modrm: int, rex: int, onward: tuple[int, ...]) -> _Step:
    """An instruction of one byte of opcode and ModR/M."""
    register, there = _fields(modrm, rex, byte=not opcode & 1)
    part = modrm >> 3 & 7
    if opcode == 0xFF and part in (2, 4):
        through = modrm & 7 | (rex & 1) << 3 if modrm >= 0xC0 else -1
        return _Step(_CALLED, onward, through) if part == 2 else _Step(_ALL, (), through)
    if opcode in (0x89, 0x8B) and modrm >= 0xC0 and rex & 8:
        pair = modrm >> 3 & 7 | (rex & 4) << 1, modrm & 7 | (rex & 1) << 3
        source, to = pair if opcode == 0x89 else pair[::-1]
        return _Step(1 << to, onward, copies=(source, to))
    if opcode in _TESTS or (opcode in (0x80, 0x81, 0x83) and part == 7):
        return _Step(0, onward)
    if opcode in _STORES or opcode in _GROUPS or (opcode == 0xFF and part in (0, 1, 6)):
        return _Step(there, onward)
    if opcode in (0xF6, 0xF7):
        return _Step((0, 0, there, there, *(_RAX | _RDX,) * 4)[part], onward)
    if opcode in _LOADS:
        return _Step(register, onward)
    if opcode in _SWAPS:
        return _Step(register | there, onward)
    return _Step(_ALL, ())


def _two(code: bytes, at: int, end: int, rex: int) -> _Step:
    """An instruction that begins with 0f."""
    opcode = code[at] if at < end else 0
    if opcode & 0xF0 == 0x80:
        return _Step(0, (end + int.from_bytes(code[end - 4 : end], "little", signed=True), end))
    if opcode in (0x0B, 0x18, 0x1E, 0x1F, 0x0D):  # ud2, after which a warning goes on; no-ops
        return _Step(0, (end,))
    if opcode & 0xF8 == 0xC8:  # bswap
        return _Step(1 << (opcode & 7 | (rex & 1) << 3), (end,))
    if opcode in (0xB0, 0xB1) or not (
        opcode & 0xF0 in (0x10, 0x40, 0x50, 0x60, 0x90, 0xD0, 0xE0, 0xF0)
        or opcode in (0xA3, 0xA4, 0xA5, 0xAB, 0xAC, 0xAD, 0xAF, *range(0xB3, 0xC2))
    ):
        return _Step(_ALL, ())
    if at + 1 >= end:
        return _Step(_ALL, ())
    byte = opcode & 0xF0 == 0x90 or opcode in (0xB6, 0xBE, 0xC0)
    register, there = _fields(code[at + 1], rex, byte=byte)
    return _Step(register | there, (end,))


def _fields(modrm: int, rex: int, *, byte: bool) -> tuple[int, int]:
    """The registers that ModR/M names as bits: of its register, and of r/m or none."""
    register, there = modrm >> 3 & 7, modrm & 7
    first = 1 << (register | (rex & 4) << 1) | _byte(byte and not rex, register)
    second = 1 << (there | (rex & 1) << 3) | _byte(byte and not rex, there)
    return first, second if modrm >= 0xC0 else 0


def _byte(byte: bool, register: int) -> int:
    """Of 8 bits, 4 to 7 are second bytes of the first four registers."""
    return 1 << (register & 3) if byte else 0
