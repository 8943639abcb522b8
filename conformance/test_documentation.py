# SPDX-License-Identifier: GPL-2.0-only
"""The kernel keeps what its own documentation says, as far as programs can tell.

Each test names the document and the section that it goes by; ``test_claims`` looks
whether they still say so.  What the documents say of one feature, and its module tests
anyway, is not repeated here.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conformance.attempts import Attempt, Seen, by_send, difference, each_call, payload
from conformance.claims import claim
from conformance.completions import allow, numbers, read_all, read_one, zerocopy_pair
from conformance.features import constant
from conformance.network import Namespace
from conformance.protocols import (
    DATAGRAMS,
    PATIENCE,
    SENDING,
    STREAMS,
    Lacking,
    Protocol,
    each,
    failure,
    protocol,
)
from conformance.sockets import Calls, GuardedPages, Segment
from conformance.sockets.uapi import MSG_ERRQUEUE, MSG_ZEROCOPY, So
from conformance.stamps import set_option

ZEROCOPY, NTCOPY = "msg_zerocopy.rst", "msg_ntcopy.rst"
Pair = Callable[[Protocol], contextlib.AbstractContextManager[tuple[socket.socket, socket.socket]]]


@pytest.fixture
def zerocopy(calls: Calls) -> Pair:
    """Makes connected sockets that may send without copies."""
    return partial(zerocopy_pair, calls)


# msg_zerocopy.rst


@claim(ZEROCOPY, "Socket Setup", "undefined flags", "setting a socket option")
@each(SENDING)
def test_flag_is_ignored_without_the_option(calls: Calls, via: Protocol) -> None:
    """Without SO_ZEROCOPY the flag does nothing: the data arrive, nobody is notified."""
    with via.pair(calls) as (here, there):
        assert calls.send(here.fileno(), Segment.of(b"plain"), MSG_ZEROCOPY) == 5
        assert calls.recv(there.fileno(), 5) == b"plain"
        assert read_one(calls, here) is None


@claim(ZEROCOPY, "Notifications", "unsigned 32-bit counter", "successfully sends data increments")
@each(SENDING)
def test_each_socket_counts_its_calls_from_zero(
    calls: Calls, via: Protocol, zerocopy: Pair
) -> None:
    """Every socket has a counter, and a call that sends something moves it by one."""
    with zerocopy(via) as (here, there), zerocopy(via) as (here2, there2):
        for number in range(3):
            for sender, receiver in ((here, there), (here2, there2)):
                calls.send(sender.fileno(), Segment.of(b"counted"), MSG_ZEROCOPY)
                assert numbers(read_all(calls, sender, 1)) == [number]
                calls.recv(receiver.fileno(), 7)


@claim(ZEROCOPY, "Notifications", "not incremented on failure")
@each(SENDING)
def test_failures_do_not_count(calls: Calls, via: Protocol, zerocopy: Pair) -> None:
    """A call that fails leaves the counter alone."""
    with zerocopy(via) as (here, _):
        for number in range(3):
            unreadable = Segment(0, 9)
            failing = partial(calls.send, here.fileno(), unreadable, MSG_ZEROCOPY)
            assert failure(failing) == "EFAULT"
            calls.send(here.fileno(), Segment.of(b"sent"), MSG_ZEROCOPY)
            assert numbers(read_all(calls, here, 1)) == [number]


#: Seen in 6.12 and 6.18.  A length that includes the UDP header is never zero.
_COUNTS_EMPTY = pytest.mark.xfail(
    strict=True, reason="the kernel counts empty datagrams, which the document does not say"
)


@claim(ZEROCOPY, "Notifications", "not incremented", "called with length zero")
@pytest.mark.parametrize(
    "via",
    [*STREAMS, *(pytest.param(p, marks=_COUNTS_EMPTY) for p in DATAGRAMS)],
    ids=lambda p: p.name,
    indirect=True,
)
def test_empty_calls_do_not_count(calls: Calls, via: Protocol, zerocopy: Pair) -> None:
    """A call with length zero leaves the counter alone."""
    with zerocopy(via) as (here, _):
        for number in range(3):
            assert calls.send(here.fileno(), Segment.of(b""), MSG_ZEROCOPY) == 0
            calls.send(here.fileno(), Segment.of(b"sent"), MSG_ZEROCOPY)
            assert numbers(read_all(calls, here, 1)) == [number]


@claim(ZEROCOPY, "Notifications", "counts system call invocations, not bytes")
@each(STREAMS)
def test_long_call_counts_once(calls: Calls, via: Protocol, zerocopy: Pair) -> None:
    """However many packets a call makes, it is one for the counter."""
    data = payload(300_000)
    with zerocopy(via) as (here, there):
        at = counted = 0
        while at < len(data):
            piece = Segment.of(data[at:])
            sent = calls.send(here.fileno(), piece, MSG_ZEROCOPY | socket.MSG_DONTWAIT)
            assert calls.recv(there.fileno(), sent, socket.MSG_WAITALL) == data[at : at + sent]
            assert numbers(read_all(calls, here, 1)) == [counted]
            at, counted = at + sent, counted + 1
        assert counted < 10  # far fewer than packets


@claim(ZEROCOPY, "Transmission", "ENOBUFS", "exceeds its optmem limit")
@each(SENDING)
def test_no_option_memory_is_enobufs(calls: Calls, via: Protocol) -> None:
    """A socket that has no option memory left for the notification refuses the call."""
    limit = Path("/proc/sys/net/core/optmem_max")
    with contextlib.ExitStack() as stack:
        try:
            alone = Namespace(calls)
        except Lacking as err:
            pytest.skip(str(err))
        stack.callback(alone.close)
        stack.enter_context(alone.entered())
        if not limit.exists():
            pytest.skip("this kernel has one optmem_max for all network namespaces")
        here, there = stack.enter_context(via.pair(calls))
        allow(here)
        limit.write_text("1")
        segment = Segment.of(b"no room")
        assert failure(lambda: calls.send(here.fileno(), segment, MSG_ZEROCOPY)) == "ENOBUFS"
        # Who does not ask to be notified needs no memory for that.
        assert calls.send(here.fileno(), segment) == segment.length
        assert calls.recv(there.fileno(), 100) == b"no room"


@claim(ZEROCOPY, "Transmission", "ENOBUFS", "ulimit on locked pages")
@each(SENDING)
def test_too_many_locked_pages_are_enobufs(calls: Calls, via: Protocol) -> None:
    """Without a right to lock pages, the call fails and the socket goes on."""

    def limited() -> str:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        with via.pair(calls) as (here, there):
            here.setsockopt(socket.SOL_SOCKET, So.ZEROCOPY, 1)
            segment = Segment.of(payload(20000))
            found = failure(lambda: calls.send(here.fileno(), segment, MSG_ZEROCOPY))
            calls.send(here.fileno(), segment)
            got = calls.recv(there.fileno(), 20000, socket.MSG_WAITALL)
            return found if got == segment.read() else "other data"

    with via.pair(calls) as (here, _):
        allow(here)
    assert in_child(limited) == "ENOBUFS"


def in_child(work: Callable[[], str]) -> str:
    """What ``work`` returns, done in a process of its own, or how it failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, work().encode())
        except BaseException as err:
            os.write(writer, repr(err).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        ready, _, _ = select.select([answer], [], [], 2 * PATIENCE)
        text = answer.read().decode() if ready else "no answer"
    if not ready:
        os.kill(child, 9)
    os.waitpid(child, 0)
    return text


@claim(ZEROCOPY, "Mixing copy avoidance and copying", "safe to mix calls")
@each(SENDING)
def test_calls_with_and_without_the_flag_may_be_mixed(
    calls: Calls, via: Protocol, zerocopy: Pair
) -> None:
    """All data arrive in order; those with the flag are counted."""
    with zerocopy(via) as (here, there):
        for index, size in enumerate((10, 5000, 100, 20000, 1, 4096)):
            data = payload(size, seed=size)
            flags = MSG_ZEROCOPY if index % 2 else 0
            assert calls.send(here.fileno(), Segment.of(data), flags) == size
            assert calls.recv(there.fileno(), size, socket.MSG_WAITALL) == data
        assert numbers(read_all(calls, here, 3)) == [0, 1, 2]


@claim(ZEROCOPY, "Notification Reception", "always a non-blocking operation")
@each(SENDING)
def test_error_queue_never_blocks(calls: Calls, via: Protocol, zerocopy: Pair) -> None:
    """To read from an empty error queue fails at once, on a blocking socket too."""
    with zerocopy(via) as (here, _):
        assert here.getblocking()
        before = time.monotonic()
        found = failure(lambda: calls.recvmsg(here.fileno(), 1, flags=MSG_ERRQUEUE))
        assert found == "EAGAIN"
        assert time.monotonic() - before < PATIENCE / 2


@claim(ZEROCOPY, "Notification Reception", "POLLERR", "Errors are signaled unconditionally")
@each(SENDING)
def test_poll_tells_of_notifications_unasked(calls: Calls, via: Protocol, zerocopy: Pair) -> None:
    """POLLERR comes although no event was asked for, and goes with the notification."""
    with zerocopy(via) as (here, _):
        waiting = select.poll()
        waiting.register(here, 0)
        assert waiting.poll(0) == []
        calls.send(here.fileno(), Segment.of(b"x"), MSG_ZEROCOPY)
        assert waiting.poll(PATIENCE * 1000) == [(here.fileno(), select.POLLERR)]
        read_all(calls, here, 1)
        assert waiting.poll(0) == []


@claim(ZEROCOPY, "Notification Reception", "zero error code", "not block send and recv calls")
@each(SENDING)
def test_outstanding_notification_blocks_nothing(
    calls: Calls, via: Protocol, zerocopy: Pair
) -> None:
    """Sending and receiving goes on while a notification waits to be read."""
    with zerocopy(via) as (here, there):
        calls.send(here.fileno(), Segment.of(b"x"), MSG_ZEROCOPY)
        assert here.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert calls.recv(there.fileno(), 1) == b"x"
        for one, other in ((here, there), (there, here)):
            assert calls.send(one.fileno(), Segment.of(b"y")) == 1
            assert calls.recv(other.fileno(), 1) == b"y"
        assert numbers(read_all(calls, here, 1)) == [0]


@claim(ZEROCOPY, "Notification Batching", "not a single value, but a range", "coalesces")
@each(SENDING)
def test_consecutive_notifications_are_one_range(
    calls: Calls, via: Protocol, zerocopy: Pair
) -> None:
    """Several calls whose notifications nobody has read are told of at once."""
    with zerocopy(via) as (here, there):
        for _ in range(5):
            calls.send(here.fileno(), Segment.of(b"x"), MSG_ZEROCOPY)
            assert calls.recv(there.fileno(), 1) == b"x"
        (found,) = read_all(calls, here, 5)
        assert (found.lo, found.hi) == (0, 4)
        assert read_one(calls, here) is None


@claim(ZEROCOPY, "Deferred copies", "SO_EE_CODE_ZEROCOPY_COPIED")
@claim(ZEROCOPY, "Loopback", "looped to a local socket", "incur a deferred copy")
@each(SENDING)
def test_loopback_copies_and_says_so(calls: Calls, via: Protocol, zerocopy: Pair) -> None:
    """What is sent to this host is copied after all, so that its receiver may take its time."""
    with zerocopy(via) as (here, there):
        segment = Segment.of(payload(20000))
        calls.send(here.fileno(), segment, MSG_ZEROCOPY)
        # The receiver has not taken anything yet.
        (found,) = read_all(calls, here, 1)
        assert found.copied
        got = calls.recv(there.fileno(), segment.length, socket.MSG_WAITALL)
        assert got == segment.read()


@claim(ZEROCOPY, "Intro", "currently implemented for TCP, UDP and VSOCK")
def test_option_is_refused_elsewhere(calls: Calls) -> None:
    """A socket of AF_UNIX, which is not in the list, may not ask for it."""
    with protocol("tcp4").pair(calls) as (here, _):
        allow(here)
    with protocol("unix_stream").pair(calls) as (here, _):
        setting = partial(set_option, calls, here, So.ZEROCOPY, 1)
        assert failure(setting) in ("EOPNOTSUPP", "ENOTSUP")


# msg_ntcopy.rst

of_the_flag = partial(claim, NTCOPY, feature="msg_ntcopy")


@of_the_flag(
    "Intro",
    "Return values, the bytes on the wire, blocking, partial sends and errors",
)
@of_the_flag("Interface", f"{constant('MSG_NTCOPY'):#x}", "Nothing is remembered")
@each((*SENDING, protocol("unix_stream"), protocol("unix_dgram")))
def test_flag_changes_nothing_that_can_be_seen(calls: Calls, via: Protocol) -> None:
    """Good payloads, none, one that is too short and one that cannot be read: as ever.

    The thorough form of this is ``test_msg_ntcopy``.
    """
    pages = GuardedPages(calls, 1)
    segments = [Segment.of(payload(n, seed=n)) for n in (1, 4097, 20000)]
    batches = [[segment] for segment in (*segments, pages.tail(b"end", 50), segments[0])]
    attempt = Attempt(protocol=via, act=each_call(calls, by_send, *batches))
    plain: Seen = attempt.run(calls, 0)
    assert difference(plain, attempt.run(calls, constant("MSG_NTCOPY"))) == ""
