# SPDX-License-Identifier: GPL-2.0-only
"""Memory to send from: ordinary, ending at an unreadable page, or not there at all."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.sockets.calls import Calls

PROT_NONE = 0


@dataclass(frozen=True)
class Segment:
    """``length`` bytes at ``address``, valid or not; keeps ``owner`` alive meanwhile."""

    address: int
    length: int
    owner: object = None

    @classmethod
    def of(cls, data: bytes, *, offset: int = 0) -> Segment:
        """A copy of ``data`` that begins ``offset`` bytes after a 16-byte boundary."""
        store = (ctypes.c_char * (len(data) + 16 + offset))()
        start = -ctypes.addressof(store) % 16 + offset
        ctypes.memmove(ctypes.addressof(store) + start, data, len(data))
        return cls(ctypes.addressof(store) + start, len(data), store)

    @classmethod
    def room(cls, length: int) -> Segment:
        """``length`` bytes of zeros to receive into."""
        store = (ctypes.c_char * max(length, 1))()
        return cls(ctypes.addressof(store), length, store)

    def read(self, length: int | None = None) -> bytes:
        """The first ``length`` bytes, or all.  Only for a valid segment."""
        size = self.length if length is None else length
        if not 0 <= size <= self.length:
            raise ValueError(f"{size} bytes are not within a segment of {self.length}")
        return ctypes.string_at(self.address, size)


class GuardedPages:
    """Readable pages with one behind them that no access to is allowed.

    The mapping goes away with this object and the segments made from it.
    """

    def __init__(self, calls: Calls, pages: int) -> None:
        self.size = pages * mmap.PAGESIZE  #: readable bytes
        self._map = mmap.mmap(-1, self.size + mmap.PAGESIZE)
        self._anchor = (ctypes.c_char * len(self._map)).from_buffer(self._map)
        self.start = ctypes.addressof(self._anchor)  #: address of the first byte
        self.end = self.start + self.size  #: address of the first unreadable byte
        calls.mprotect(self.end, mmap.PAGESIZE, PROT_NONE)

    def tail(self, data: bytes, beyond: int = 0) -> Segment:
        """``data`` up to the last readable byte, then ``beyond`` bytes that are not."""
        if len(data) > self.size:
            raise ValueError(f"{len(data)} bytes do not fit into {self.size}")
        ctypes.memmove(self.end - len(data), data, len(data))
        return Segment(self.end - len(data), len(data) + beyond, self)
