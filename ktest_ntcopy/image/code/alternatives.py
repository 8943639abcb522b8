# SPDX-License-Identifier: GPL-2.0-only
"""Instructions that a kernel puts in the place of others when it starts.

What it replaces depends on the machine it runs on, so both count as code of the function.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from ktest_ntcopy.image.file.elf import Elf

# Two offsets, each relative to itself, what the processor must have, and two lengths:
# the shapes that kernels since 4.x have used, newest first.
_X86 = ("<iiIBB", "<iiHBB", "<iiHBBB")
_ARM64 = ("<iiHBB",)
_LIMIT = 1 << 20  # bytes of the table; a distribution's kernel has a quarter


class Alternative(NamedTuple):
    """One replacement.  Addresses and bytes."""

    at: int
    size: int
    replacement: int
    replacement_size: int


class Alternatives:
    """The replacements of a kernel, in the order of what they replace."""

    def __init__(self, found: list[Alternative]) -> None:
        self._all = sorted(found, key=lambda a: a.at)
        self._starts = [a.at for a in self._all]

    def __len__(self) -> int:
        return len(self._all)

    def within(self, address: int, size: int) -> list[Alternative]:
        """Those that replace code of a function."""
        first = bisect_left(self._starts, address)
        return self._all[first : bisect_left(self._starts, address + size)]


def read_alternatives(elf: Elf) -> Alternatives:
    """The table of an open kernel; empty without one, or in a shape that is not known."""
    section = elf.section(".altinstructions")
    if section is None or section.size > _LIMIT:
        return Alternatives([])
    data = elf.read(section)
    for shape in _ARM64 if elf.machine == "EM_AARCH64" else _X86:
        found = _read(data, section.address, struct.Struct(shape), 1 << elf.bits)
        if found and _plausible(elf, found):
            return Alternatives(found)
    return Alternatives([])


def _read(data: bytes, address: int, shape: struct.Struct, space: int) -> list[Alternative]:
    if len(data) % shape.size:
        return []
    found = []
    for entry in shape.iter_unpack(data):
        at = (address + entry[0]) % space
        replacement = (address + 4 + entry[1]) % space
        found.append(Alternative(at, entry[3], replacement, entry[4]))
        address += shape.size
    return found


def _plausible(elf: Elf, found: list[Alternative]) -> bool:
    """Whether a few entries replace code by code.  Lengths of a wrong shape are offsets' bytes."""
    few = found[:: max(1, len(found) // 8)]
    return all(
        0 < a.size <= 255
        and elf.at(a.at, 1)
        and (not a.replacement_size or elf.at(a.replacement, 1))
        for a in few
    )
