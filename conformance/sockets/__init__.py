# SPDX-License-Identifier: GPL-2.0-only
"""The C library's socket calls with typed arguments and errors as exceptions.

    from conformance.sockets import Calls, Message, Segment

    calls = Calls()
    sent = calls.sendmsg(fd, Message(segments=(Segment.of(b"abc"), Segment.of(b"def"))))

Nothing is hidden: a call is made once, with the addresses and lengths it was given,
even if they are bad, and what the kernel says comes back as a value or as the
OSError subclass of its errno.  Structures have the layout of 64-bit and 32-bit
Linux with glibc.
"""

from __future__ import annotations

from conformance.sockets.address import pack_address, parse_address
from conformance.sockets.calls import Calls, Message, MissingFunctionError, Received
from conformance.sockets.cmsg import CmsgError, ControlMessage, build_control, parse_control
from conformance.sockets.layout import CmsgHdr, IoVec, MMsgHdr, MsgHdr
from conformance.sockets.memory import GuardedPages, Segment

__all__ = [
    "Calls",
    "CmsgError",
    "CmsgHdr",
    "ControlMessage",
    "GuardedPages",
    "IoVec",
    "MMsgHdr",
    "Message",
    "MissingFunctionError",
    "MsgHdr",
    "Received",
    "Segment",
    "build_control",
    "pack_address",
    "parse_address",
    "parse_control",
]
