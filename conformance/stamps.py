# SPDX-License-Identifier: GPL-2.0-only
"""Time stamps of received packets, as control messages tell them."""

from __future__ import annotations

import ctypes
import select
import socket
import sys
import time
from collections.abc import Sequence

from conformance.protocols import be_patient
from conformance.sockets import Calls, ControlMessage, Segment
from conformance.sockets.layout import (
    OldTimeSpec,
    OldTimeVal,
    ScmTimestamping,
    ScmTimestamping64,
    SockExtendedErr,
    SockTimeVal,
    TimeSpec,
)
from conformance.sockets.uapi import (
    IP_RECVERR,
    IPV6_RECVERR,
    MSG_ERRQUEUE,
    SO_EE_ORIGIN_TIMESTAMPING,
    So,
)

#: Option -> the structure in the control message of the same number.
FORMS: dict[So, type[ctypes.Structure]] = {
    So.TIMESTAMP_OLD: OldTimeVal,
    So.TIMESTAMP_NEW: SockTimeVal,
    So.TIMESTAMPNS_OLD: OldTimeSpec,
    So.TIMESTAMPNS_NEW: TimeSpec,
    So.TIMESTAMPING_OLD: ScmTimestamping,
    So.TIMESTAMPING_NEW: ScmTimestamping64,
}
#: Bytes of room for the control messages of one packet.
ROOM = 512
_NS = 1_000_000_000
_PATIENCE = 10.0  # seconds
_SOON = 1000  # milliseconds
_RECVERR = ((socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR))


def set_option(calls: Calls, end: socket.socket, option: So, value: int) -> None:
    """Set an option that is a number.  Raises OSError."""
    number = Segment.of(value.to_bytes(4, sys.byteorder))
    calls.setsockopt(end.fileno(), socket.SOL_SOCKET, option, number)


def get_option(calls: Calls, end: socket.socket, option: So) -> int:
    """The first word of an option.  Raises OSError."""
    data = calls.getsockopt(end.fileno(), socket.SOL_SOCKET, option, 8)
    return int.from_bytes(data[:4], sys.byteorder)


def stamps(message: ControlMessage) -> list[int]:
    """The times of one control message: nanoseconds since the epoch, 0 for none.

    Raises AssertionError if it is none of the messages that tell times, or not of
    its size.
    """
    assert message.level == socket.SOL_SOCKET, f"{message} is not of SOL_SOCKET"
    assert message.type in list(So), f"{message} is of no known type"
    shape = FORMS[So(message.type)]
    assert len(message.data) == ctypes.sizeof(shape), (
        f"{So(message.type).name} has {len(message.data)} bytes, not {ctypes.sizeof(shape)}"
    )
    value = shape.from_buffer_copy(message.data)
    if isinstance(value, (OldTimeVal, SockTimeVal)):
        return [int(value.tv_sec) * _NS + int(value.tv_usec) * 1000]
    if isinstance(value, (OldTimeSpec, TimeSpec)):
        return [int(value.tv_sec) * _NS + int(value.tv_nsec)]
    assert isinstance(value, (ScmTimestamping, ScmTimestamping64))
    return [int(ts.tv_sec) * _NS + int(ts.tv_nsec) for ts in value.ts]


def reported(control: Sequence[ControlMessage], before: int, after: int) -> tuple[So, ...]:
    """Which options reported, in order; every time must lie between two others (ns).

    Of three times only the first, the software's, may be there: loopback has no clock.
    """
    for message in control:
        first, *rest = stamps(message)
        # A timeval cannot tell what is less than a microsecond.
        assert before - 1000 <= first <= after, (
            f"{So(message.type).name}: {first} is not between {before} and {after}"
        )
        assert not any(rest), f"{So(message.type).name}: {rest} beside the software's stamp"
    return tuple(So(message.type) for message in control)


def looped(calls: Calls, end: socket.socket) -> int | None:
    """The identifier of the first stamp of a sent packet.

    None if nothing came back in a second, or what came back tells no time: the kernel
    returns packets that were to be stamped to sockets that are not to be told, too.
    Raises AssertionError if it comes with data, or is not as it has to be.
    """
    waiting = select.poll()
    waiting.register(end, 0)
    try:
        waiting.poll(_SOON)
        got = calls.recvmsg(end.fileno(), 1, control=ROOM, flags=MSG_ERRQUEUE)
    except BlockingIOError:
        return None
    assert not got.data, f"a stamp came with {got.length} bytes of data"
    times = [one for one in got.control if one.level == socket.SOL_SOCKET]
    errors = [one for one in got.control if (one.level, one.type) in _RECVERR]
    (error,) = errors
    if not times:
        return None
    (time_of,) = times
    assert any(stamps(time_of)), "a packet came back with a time of zero"
    found = SockExtendedErr.from_buffer_copy(error.data[: ctypes.sizeof(SockExtendedErr)])
    assert found.ee_origin == SO_EE_ORIGIN_TIMESTAMPING, f"ee_origin is {found.ee_origin}"
    return int(found.ee_data)


def next_report(calls: Calls, here: socket.socket, there: socket.socket) -> tuple[So, ...]:
    """Send a byte; which options report it at the other end."""
    before = time.time_ns()
    here.send(b"x")
    got = calls.recvmsg(there.fileno(), 1, control=ROOM)
    after = time.time_ns()
    assert got.data == b"x"
    assert not got.flags & socket.MSG_CTRUNC
    return reported(got.control, before, after)


class Witness:
    """A socket for whose sake the kernel stamps all packets while it is open."""

    def __init__(self, calls: Calls) -> None:
        """Raises TimeoutError if packets are not stamped within 10 seconds."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end = self._socket
        end.bind(("127.0.0.1", 0))
        be_patient(calls, end)
        # Not the option that is tested: this one is as old as the sockets.
        set_option(calls, end, So.TIMESTAMP_OLD, 1)
        deadline = time.monotonic() + _PATIENCE
        # A packet without a stamp gets one when it is read: of that nothing is known yet.
        # Stamps that are too early to be true are for the tests to judge.
        while time.monotonic() < deadline:
            end.sendto(b"?", end.getsockname())
            time.sleep(0.002)
            sent = time.time_ns() - 1_000_000
            (message,) = calls.recvmsg(end.fileno(), 1, control=ROOM).control
            if stamps(message)[0] <= sent:
                return
        end.close()
        raise TimeoutError("SO_TIMESTAMP did not make the kernel stamp packets")

    def close(self) -> None:
        """Have no more packets stamped."""
        self._socket.close()
