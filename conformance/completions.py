# SPDX-License-Identifier: GPL-2.0-only
"""MSG_ZEROCOPY: sockets that may use it, and notifications in the error queue."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import select
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from conformance.protocols import Protocol
from conformance.sockets import Calls
from conformance.sockets.cmsg import ControlMessage
from conformance.sockets.layout import SockExtendedErr
from conformance.sockets.uapi import (
    IP_RECVERR,
    IPV6_RECVERR,
    MSG_ERRQUEUE,
    SO_EE_CODE_ZEROCOPY_COPIED,
    SO_EE_ORIGIN_ZEROCOPY,
    MemInfo,
    So,
)

#: Seconds that a notification may take.
PATIENCE = 10.0
#: Level and type of the control message, for each family.
_WHERE = {
    socket.AF_INET: (socket.IPPROTO_IP, IP_RECVERR),
    socket.AF_INET6: (socket.IPPROTO_IPV6, IPV6_RECVERR),
}


@dataclass(frozen=True)
class Completion:
    """The calls ``lo`` to ``hi`` of a socket, both included, no longer use their memory."""

    lo: int
    hi: int
    copied: bool  #: the kernel copied after all


@contextlib.contextmanager
def zerocopy_pair(calls: Calls, via: Protocol) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Connected sockets, of which the first may send without copies; see :func:`allow`."""
    with via.pair(calls) as (here, there):
        allow(here)
        yield here, there


def allow(end: socket.socket) -> None:
    """Set SO_ZEROCOPY; skips the test on a kernel without it."""
    try:
        end.setsockopt(socket.SOL_SOCKET, So.ZEROCOPY, 1)
    except OSError as err:
        if err.errno not in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            raise
        pytest.skip("this kernel is without SO_ZEROCOPY")


def read_one(calls: Calls, end: socket.socket) -> Completion | None:
    """The notification that is first in the error queue; None if it is empty.

    Raises AssertionError if there is something else, or it is not as it has to be.
    """
    try:
        got = calls.recvmsg(end.fileno(), 1, control=256, flags=MSG_ERRQUEUE)
    except BlockingIOError:
        return None
    assert not got.data, f"a notification came with {got.length} bytes of data"
    return completion(got.control, end.family)


def completion(control: Sequence[ControlMessage], family: int) -> Completion:
    """What the control messages of one read of the error queue say."""
    (message,) = control
    where = _WHERE[socket.AddressFamily(family)]
    assert (message.level, message.type) == where, f"{message} is not of {where}"
    size = ctypes.sizeof(SockExtendedErr)
    assert len(message.data) >= size, f"{len(message.data)} bytes are no sock_extended_err"
    found = SockExtendedErr.from_buffer_copy(message.data[:size])
    assert found.ee_errno == 0, f"ee_errno is {found.ee_errno}"
    assert found.ee_origin == SO_EE_ORIGIN_ZEROCOPY, f"ee_origin is {found.ee_origin}"
    return Completion(
        int(found.ee_info), int(found.ee_data), bool(found.ee_code & SO_EE_CODE_ZEROCOPY_COPIED)
    )


def read_all(calls: Calls, end: socket.socket, count: int) -> list[Completion]:
    """Notifications until they cover ``count`` calls, in the order of the queue.

    Raises AssertionError if that takes longer than PATIENCE, or they cover more.
    """
    found = list(_until(calls, end, count))
    covered = sum(one.hi - one.lo + 1 for one in found)
    assert covered == count, f"notified of {covered} calls, not {count}: {found}"
    return found


def _until(calls: Calls, end: socket.socket, count: int) -> Iterator[Completion]:
    deadline = time.monotonic() + PATIENCE
    left = count
    while left > 0:
        one = read_one(calls, end)
        if one is None:
            assert time.monotonic() < deadline, f"{left} calls were not notified of"
            wait_for_one(end)
            continue
        assert one.hi >= one.lo, f"{one} ends before it begins"
        left -= one.hi - one.lo + 1
        yield one


def wait_for_one(end: socket.socket) -> None:
    """Wait until the error queue has something, for PATIENCE at the most."""
    waiting = select.poll()
    waiting.register(end, 0)
    waiting.poll(PATIENCE * 1000)


def numbers(found: Sequence[Completion]) -> list[int]:
    """The calls that notifications are about, in ascending order."""
    return sorted(number for one in found for number in range(one.lo, one.hi + 1))


def memory(calls: Calls, end: socket.socket) -> tuple[int, int]:
    """Bytes that a socket is charged with for what it sends: packets, and options."""
    words = memoryview(calls.getsockopt(end.fileno(), socket.SOL_SOCKET, So.MEMINFO, 64)).cast("I")
    return words[MemInfo.WMEM_ALLOC], words[MemInfo.OPTMEM]
