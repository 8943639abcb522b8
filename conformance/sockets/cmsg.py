# SPDX-License-Identifier: GPL-2.0-only
"""Control messages: the CMSG_ macros of <sys/socket.h>, without pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass

from conformance.sockets.layout import CmsgHdr

_WORD = ctypes.sizeof(ctypes.c_size_t)
_HEADER = ctypes.sizeof(CmsgHdr)


class CmsgError(ValueError):
    """A control buffer that no kernel may write."""


@dataclass(frozen=True)
class ControlMessage:
    """One control message; ``data`` is without padding."""

    level: int
    type: int
    data: bytes = b""


def align(length: int) -> int:
    """CMSG_ALIGN: ``length`` rounded up to whole words."""
    return (length + _WORD - 1) & ~(_WORD - 1)


def space(length: int) -> int:
    """CMSG_SPACE: bytes that a message with ``length`` bytes of data takes up."""
    return align(_HEADER) + align(length)


def length_of(length: int) -> int:
    """CMSG_LEN: ``cmsg_len`` of a message with ``length`` bytes of data."""
    return align(_HEADER) + length


def build_control(messages: Iterable[ControlMessage]) -> bytes:
    """What ``msg_control`` points to: every message padded to whole words."""
    parts = []
    for message in messages:
        header = CmsgHdr(length_of(len(message.data)), message.level, message.type)
        parts.append(bytes(header).ljust(align(_HEADER), b"\0"))
        parts.append(message.data.ljust(align(len(message.data)), b"\0"))
    return b"".join(parts)


def parse_control(raw: bytes) -> tuple[ControlMessage, ...]:
    """The messages in a control buffer of exactly ``msg_controllen`` bytes.

    The last one may lack its padding.  Raises CmsgError if a length points outside
    the buffer or is shorter than a header, or if bytes are left over.
    """
    found = []
    at = 0
    while at < len(raw):
        if len(raw) - at < _HEADER:
            raise CmsgError(f"{len(raw) - at} bytes at offset {at} are no header")
        header = CmsgHdr.from_buffer_copy(raw, at)
        size = int(header.cmsg_len)
        if not align(_HEADER) <= size <= len(raw) - at:
            raise CmsgError(
                f"cmsg_len {size} at offset {at} is not between {align(_HEADER)} "
                f"and {len(raw) - at}"
            )
        data = raw[at + align(_HEADER) : at + size]
        found.append(ControlMessage(int(header.cmsg_level), int(header.cmsg_type), data))
        at += align(size)
    return tuple(found)
