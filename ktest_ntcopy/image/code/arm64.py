# SPDX-License-Identifier: GPL-2.0-only
"""Where arm64 machine code leaves its function."""

from __future__ import annotations

import sys
from array import array

from ktest_ntcopy.image.code.transfer import Kind, Transfer

_MASK = (1 << 64) - 1


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def decode(code: bytes, address: int) -> list[Transfer]:
    """The branches out of ``code``, which runs at ``address``, and the addresses it uses.

    Branches within the code are left out, but calls are not.  "reference" names what adr,
    or adrp and add, compute: the caller knows which of it is a function.
    """
    found: list[Transfer] = []
    words = array("I", code[: len(code) // 4 * 4])
    if sys.byteorder == "big":  # instructions are little endian in big-endian kernels, too
        words.byteswap()
    end = address + len(code)
    pages: dict[int, int] = {}  # register -> what adrp put there
    for number, word in enumerate(words):
        top = word >> 24
        at = address + 4 * number
        kind: Kind = "jump"
        if top & 0x7C == 0x14:  # b, bl
            offset = 4 * _signed(word & 0x3FFFFFF, 26)
            if top & 0x80:
                kind = "call"
                pages.clear()
        elif top == 0x54 or top & 0x7E == 0x34:  # b.cond, cbz, cbnz
            offset = 4 * _signed(word >> 5 & 0x7FFFF, 19)
        elif top & 0x7E == 0x36:  # tbz, tbnz
            offset = 4 * _signed(word >> 5 & 0x3FFF, 14)
        elif top & 0xFE == 0xD6:  # to a register: br, blr, braa, blraa; but not ret
            if word >> 21 & 15 in (0, 1, 8, 9):
                found.append(Transfer(at, "indirect", None))
            pages.clear()
            continue
        elif top & 0x1F == 0x10:  # adr, adrp
            offset = _signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
            if top & 0x80:
                pages[word & 31] = (at & ~0xFFF) + (offset << 12)
                continue
            kind = "reference"
        elif top == 0x91 and word >> 5 & 31 in pages and not word >> 22 & 3:  # add
            base = pages[word >> 5 & 31]
            found.append(Transfer(at, "reference", base + (word >> 10 & 0xFFF) & _MASK))
            continue
        else:
            continue
        target = at + offset & _MASK
        if kind != "jump" or not address <= target < end:
            found.append(Transfer(at, kind, target))
    return found
