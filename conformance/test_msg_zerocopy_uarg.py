# SPDX-License-Identifier: GPL-2.0-only
"""MSG_ZEROCOPY_UARG: sendmsg() returns notifications in a control message of its own.

The kernel writes into the control buffer of a *send* call, which Python's ``socket``
cannot express: the buffer is a placeholder that is kept and read again here.  The
document is "Notifications From Sendmsg" in msg_zerocopy.rst.  Kernels without the flag
refuse the placeholder with EINVAL, and these tests are skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from conformance.attempts import outcome, payload
from conformance.claims import claim
from conformance.completions import (
    Completion,
    numbers,
    read_all,
    read_one,
    wait_for_one,
    zerocopy_pair,
)
from conformance.features import constant
from conformance.protocols import PROTOCOLS, Protocol
from conformance.sockets import Calls, ControlMessage, GuardedPages, Message, Segment
from conformance.sockets.cmsg import build_control, length_of
from conformance.sockets.layout import ScmZerocopyRange, ScmZerocopyUarg
from conformance.sockets.uapi import IP_RECVTTL, MSG_ZEROCOPY, SO_EE_CODE_ZEROCOPY_COPIED

FLAG, TYPE = constant("MSG_ZEROCOPY_UARG"), constant("SCM_ZEROCOPY_UARG")
BOTH = MSG_ZEROCOPY | FLAG
DOCUMENT, SECTION = "msg_zerocopy.rst", "Notifications From Sendmsg"
SENDING = tuple(p for p in PROTOCOLS if p.name in ("tcp4", "tcp6", "udp4", "udp6"))
DATAGRAMS = tuple(p for p in SENDING if not p.stream)
HEAD = ctypes.sizeof(ScmZerocopyUarg)
RANGE = ctypes.sizeof(ScmZerocopyRange)

#: Level, option for a packet, and option to have it told, of how far packets may go.
HOPS = {
    socket.AF_INET: (socket.IPPROTO_IP, socket.IP_TTL, IP_RECVTTL),
    socket.AF_INET6: (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT, socket.IPV6_RECVHOPLIMIT),
}

documented = partial(claim, DOCUMENT, SECTION, feature="msg_zerocopy_uarg")
each = pytest.mark.parametrize("via", SENDING, ids=lambda p: p.name, indirect=True)


def placeholder(room: int, *, count: int = 0, reserved: int = 0) -> ControlMessage:
    """A control message with room for so many ranges."""
    head = ScmZerocopyUarg(count, reserved)
    return ControlMessage(socket.SOL_SOCKET, TYPE, bytes(head) + bytes(room * RANGE))


def ranges(control: Segment, at: int = 0) -> list[Completion]:
    """What the kernel wrote into the placeholder whose header is at an offset."""
    data = control.read()[at + length_of(0) :]
    count = int(ScmZerocopyUarg.from_buffer_copy(data).count)
    assert HEAD + count * RANGE <= len(data), f"count is {count} in {len(data)} bytes"
    found = (ScmZerocopyRange * count).from_buffer_copy(data, HEAD)
    return [
        Completion(int(r.lo), int(r.hi), bool(r.code & SO_EE_CODE_ZEROCOPY_COPIED)) for r in found
    ]


def control_of(*messages: ControlMessage) -> Segment:
    """A control buffer that outlives the call."""
    return Segment.of(build_control(messages))


@contextlib.contextmanager
def telling(calls: Calls, via: Protocol) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Connected sockets that may use the flag; skips on a kernel without it."""
    with zerocopy_pair(calls, via) as (here, there):
        control = control_of(placeholder(0))
        # Without the flag, the one that is not known is ignored, the other one refused.
        if via.stream and outcome(tell, calls, here, b"", control, FLAG) == "EINVAL":
            pytest.skip("this kernel is without MSG_ZEROCOPY_UARG (EINVAL)")
        if not via.stream:
            if outcome(tell, calls, here, b"?", control, FLAG) == "EINVAL":
                pytest.skip("this kernel is without MSG_ZEROCOPY_UARG (EINVAL)")
            assert calls.recv(there.fileno(), 1) == b"?"
        yield here, there


def tell(calls: Calls, end: socket.socket, data: bytes, control: Segment, flags: int) -> int:
    """sendmsg() with a control buffer in which the answer can be read afterwards."""
    message = Message(segments=(Segment.of(data),), control_memory=control)
    return calls.sendmsg(end.fileno(), message, flags)


def send_and_wait(calls: Calls, here: socket.socket, there: socket.socket, count: int) -> None:
    """Send one byte so many times without a copy, until the last one's notification is there."""
    for _ in range(count):
        calls.send(here.fileno(), Segment.of(b"z"), MSG_ZEROCOPY)
        assert calls.recv(there.fileno(), 1) == b"z"
        wait_for_one(here)


@documented("notifications that have been queued until then")
@each
def test_call_tells_what_has_completed(calls: Calls, via: Protocol) -> None:
    """Each is told of once, by the next call at the latest.

    A call may tell of itself: on loopback, where data is copied, it is complete at once.
    """
    told: list[Completion] = []
    with telling(calls, via) as (here, there):
        send_and_wait(calls, here, there, 3)
        for before in (3, 4, 5):
            control, data = control_of(placeholder(8)), payload(5000)
            assert tell(calls, here, data, control, BOTH) == len(data)
            assert calls.recv(there.fileno(), len(data), socket.MSG_WAITALL) == data
            told += ranges(control)
            assert numbers(told) in (list(range(before)), list(range(before + 1)))
            if len(numbers(told)) == before:
                wait_for_one(here)
        left = 6 - len(numbers(told))
        rest = read_all(calls, here, left)
        assert numbers([*told, *rest]) == list(range(6))
        assert all(one.copied for one in told)
        assert read_one(calls, here) is None


@documented("says nothing about the data of the call: combine it with MSG_ZEROCOPY")
@each
def test_flag_alone_sends_a_copy(calls: Calls, via: Protocol) -> None:
    """Without MSG_ZEROCOPY the call tells of others, and is not counted itself."""
    with telling(calls, via) as (here, there):
        send_and_wait(calls, here, there, 1)
        control = control_of(placeholder(8))
        assert tell(calls, here, b"copy", control, FLAG) == 4
        assert calls.recv(there.fileno(), 4) == b"copy"
        assert numbers(ranges(control)) == [0]
        assert read_one(calls, here) is None


@documented("What did not fit stays in the error queue")
@each
def test_without_room_nothing_is_lost(calls: Calls, via: Protocol) -> None:
    """A placeholder without room for a range is good, and what it could not take stays."""
    with telling(calls, via) as (here, there):
        send_and_wait(calls, here, there, 2)
        control = control_of(placeholder(0, count=7))
        assert tell(calls, here, b"copy", control, FLAG) == 4
        assert calls.recv(there.fileno(), 4) == b"copy"
        assert ranges(control) == []
        assert numbers(read_all(calls, here, 2)) == [0, 1]


@documented("No notification is lost", "put back in front of the error queue")
@each
def test_unwritable_placeholder_loses_nothing(calls: Calls, via: Protocol) -> None:
    """The data are sent as ever, and the error queue has the notification again."""
    with telling(calls, via) as (here, there):
        send_and_wait(calls, here, there, 1)
        pages = GuardedPages(calls, 1)
        control = pages.tail(build_control([placeholder(8)]))
        calls.mprotect(pages.start, pages.size, 1)  # PROT_READ
        assert tell(calls, here, b"sent", control, FLAG) == 4
        assert calls.recv(there.fileno(), 4) == b"sent"
        assert ranges(control) == []
        assert numbers(read_all(calls, here, 1)) == [0]


@documented("when it tries to and fails", "EAGAIN")
@each
def test_failed_call_tells_too(calls: Calls, via: Protocol) -> None:
    """Notifications come back although the payload cannot be read."""
    with telling(calls, via) as (here, there):
        send_and_wait(calls, here, there, 1)
        control = control_of(placeholder(8))
        message = Message(segments=(Segment(0, 9),), control_memory=control)
        assert outcome(calls.sendmsg, here.fileno(), message, FLAG) == "EFAULT"
        assert numbers(ranges(control)) == [0]
        assert read_one(calls, here) is None


@documented("EINVAL if there is no placeholder, more than one")
@each
def test_unsound_placeholders_are_refused(calls: Calls, via: Protocol) -> None:
    """None, two, one that is too short, one with something in ``reserved``: nothing is sent."""
    short = ControlMessage(socket.SOL_SOCKET, TYPE, bytes(HEAD - 1))
    with telling(calls, via) as (here, there):
        for messages in (
            (),
            (placeholder(1), placeholder(1)),
            (short,),
            (placeholder(1, reserved=1),),
        ):
            assert outcome(tell, calls, here, b"no", control_of(*messages), FLAG) == "EINVAL"
        assert calls.send(here.fileno(), Segment.of(b"next")) == 4
        assert calls.recv(there.fileno(), 100) == b"next"


@documented("Without SO_ZEROCOPY the flag is ignored", "that the protocol does not know")
@each
def test_socket_without_the_option_ignores_the_flag(calls: Calls, via: Protocol) -> None:
    """A call is the same with the flag and without it, and no byte of the placeholder changes."""
    with telling(calls, via), via.pair(calls) as (plain, there):
        for messages in ((), (placeholder(1, count=7),)):
            control = control_of(*messages)
            before = control.read()
            results = {outcome(tell, calls, plain, b"data", control, f) for f in (0, FLAG, BOTH)}
            assert results == ({"EINVAL"} if messages else {4})
            assert control.read() == before
        for _ in (0, FLAG, BOTH):
            assert calls.recv(there.fileno(), 4) == b"data"


@documented("``count`` set to ~0 on an idle socket with SO_ZEROCOPY", "has to be 0 on return")
@each
def test_idle_socket_shows_that_the_kernel_tells(calls: Calls, via: Protocol) -> None:
    """Nothing has completed, and the count says so."""
    with telling(calls, via) as (here, there):
        control = control_of(placeholder(0, count=0xFFFFFFFF))
        assert tell(calls, here, b"data", control, FLAG) == 4
        assert calls.recv(there.fileno(), 4) == b"data"
        assert ranges(control) == []


@documented("The message at which it stops is told nothing, unless it is the first")
@each
def test_batch_that_stops(calls: Calls, via: Protocol) -> None:
    """Only the first one's failure is the result of the call, and told like one."""
    unreadable = Segment(0, 9)
    with telling(calls, via) as (here, there):
        send_and_wait(calls, here, there, 1)
        good, bad = control_of(placeholder(0)), control_of(placeholder(8, count=7))
        before = bad.read()
        batch = [
            Message(segments=(Segment.of(b"m"),), control_memory=good),
            Message(segments=(unreadable,), control_memory=bad),
        ]
        assert calls.sendmmsg(here.fileno(), batch, FLAG) == (1,)
        assert calls.recv(there.fileno(), 1) == b"m"
        assert bad.read() == before
        here.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # the second one's
        assert outcome(lambda: calls.sendmmsg(here.fileno(), batch[1:], FLAG)[0]) == "EFAULT"
        assert numbers(ranges(bad)) == [0]
        assert read_one(calls, here) is None


@pytest.mark.parametrize("via", DATAGRAMS, ids=lambda p: p.name, indirect=True)
def test_other_control_messages_do_their_work(calls: Calls, via: Protocol) -> None:
    """A placeholder before, between and behind others changes nothing for them."""
    level, option, receiving = HOPS[via.family]
    hops = ControlMessage(level, option, bytes(ctypes.c_int(77)))
    with telling(calls, via) as (here, there):
        there.setsockopt(level, receiving, 1)
        for messages in ((placeholder(2), hops), (hops, placeholder(2))):
            control = control_of(*messages)
            assert tell(calls, here, b"x", control, FLAG) == 1
            got = calls.recvmsg(there.fileno(), 1, control=256)
            assert got.data == b"x"
            assert [m.data for m in got.control] == [hops.data]


@each
def test_batch_tells_in_every_message(calls: Calls, via: Protocol) -> None:
    """sendmmsg() has a placeholder for each of its messages."""
    with telling(calls, via) as (here, there):
        send_and_wait(calls, here, there, 2)
        controls = [control_of(placeholder(8)) for _ in range(3)]
        batch = [
            Message(segments=(Segment.of(b"m"),), control_memory=control) for control in controls
        ]
        assert calls.sendmmsg(here.fileno(), batch, BOTH) == (1, 1, 1)
        for _ in batch:
            assert calls.recv(there.fileno(), 1) == b"m"
        told = [one for control in controls for one in ranges(control)]
        left = 5 - len(numbers(told))
        assert numbers([*told, *read_all(calls, here, left)]) == [0, 1, 2, 3, 4]
        assert numbers(ranges(controls[0]))[:2] == [0, 1]
