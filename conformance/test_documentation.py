# SPDX-License-Identifier: GPL-2.0-only
"""The kernel keeps what its own documentation says, as far as programs can tell.

Each test names the document and the section that it goes by; ``test_claims`` looks
whether they still say so.  What the documents say of one feature, and its module tests
anyway, is not repeated here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from conformance.attempts import Attempt, Seen, by_send, difference, each_call, payload
from conformance.claims import claim
from conformance.completions import allow, numbers, read_all, read_one, zerocopy_pair
from conformance.features import constant
from conformance.network import Namespace
from conformance.protocols import PATIENCE, PROTOCOLS, Lacking, Protocol, protocol
from conformance.sockets import Calls, ControlMessage, GuardedPages, Message, Segment
from conformance.sockets.uapi import MSG_ERRQUEUE, MSG_ZEROCOPY, So, Sof
from conformance.stamps import ROOM, Witness, get_option, looped, next_report, reported, set_option

ZEROCOPY, STAMPING, NTCOPY = "msg_zerocopy.rst", "timestamping.rst", "msg_ntcopy.rst"
OPTIONS = "1.3.3 Timestamp Options"
SENDING = tuple(p for p in PROTOCOLS if p.name in ("tcp4", "tcp6", "udp4", "udp6"))
STREAMS = tuple(p for p in SENDING if p.stream)
DATAGRAMS = tuple(p for p in SENDING if not p.stream)


def each(protocols: tuple[Protocol, ...]) -> pytest.MarkDecorator:
    """Run a test for each of these protocols."""
    return pytest.mark.parametrize("via", protocols, ids=lambda p: p.name, indirect=True)


Pair = Callable[[Protocol], contextlib.AbstractContextManager[tuple[socket.socket, socket.socket]]]


@pytest.fixture
def zerocopy(calls: Calls) -> Pair:
    """Makes connected sockets that may send without copies."""
    return partial(zerocopy_pair, calls)


def failure(call: Callable[[], object]) -> str:
    """The name of the errno that a call fails with; empty if it does not."""
    try:
        call()
    except OSError as err:
        return errno.errorcode.get(err.errno or 0, str(err.errno))
    return ""


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


# timestamping.rst


@pytest.fixture
def stamping(calls: Calls) -> Iterator[None]:
    """Have the kernel stamp all packets meanwhile."""
    witness = Witness(calls)
    yield
    witness.close()


@claim(
    STAMPING,
    "1.3 SO_TIMESTAMPING (also SO_TIMESTAMPING_OLD and SO_TIMESTAMPING_NEW)",
    "returns EINVAL and does not change the current state",
)
@each(SENDING)
@pytest.mark.parametrize("option", [So.TIMESTAMPING_OLD, So.TIMESTAMPING_NEW], ids=lambda o: o.name)
def test_other_bits_are_refused(calls: Calls, via: Protocol, option: So) -> None:
    """A bit without a meaning is EINVAL, and what was set before stays."""
    with via.pair(calls) as (here, _):
        set_option(calls, here, option, Sof.SOFTWARE)
        for bit in (30, 29, 24):
            assert failure(partial(set_option, calls, here, option, 1 << bit)) == "EINVAL"
            assert get_option(calls, here, option) == Sof.SOFTWARE


@claim(
    STAMPING,
    "1.3.2 Timestamp Reporting",
    "control which timestamps will be reported",
    "deprecated and ignored",
)
@each(SENDING)
def test_nothing_is_reported_without_reporting_bits(
    calls: Calls, via: Protocol, stamping: None
) -> None:
    """To request stamps reports none; neither does the deprecated bit."""
    with via.pair(calls) as (here, there):
        for bits in (0, Sof.RX_SOFTWARE, Sof.SYS_HARDWARE, Sof.RX_SOFTWARE | Sof.SYS_HARDWARE):
            set_option(calls, there, So.TIMESTAMPING_NEW, bits)
            assert next_report(calls, here, there) == ()
        set_option(calls, there, So.TIMESTAMPING_NEW, Sof.SOFTWARE | Sof.SYS_HARDWARE)
        assert next_report(calls, here, there) == (So.TIMESTAMPING_NEW,)


@claim(STAMPING, "1.3.2 Timestamp Reporting", "take immediate effect")
@each(SENDING)
def test_reporting_bits_count_when_a_packet_is_read(
    calls: Calls, via: Protocol, stamping: None
) -> None:
    """Packets that wait already are reported as the bits say when they are taken."""
    with via.pair(calls) as (here, there):
        before = time.time_ns()
        for bits in (Sof.SOFTWARE, Sof(0), Sof.SOFTWARE):
            set_option(calls, there, So.TIMESTAMPING_NEW, Sof(0) if bits else Sof.SOFTWARE)
            calls.send(here.fileno(), Segment.of(b"x"))
            set_option(calls, there, So.TIMESTAMPING_NEW, bits)
            got = calls.recvmsg(there.fileno(), 1, control=ROOM)
            found = reported(got.control, before, time.time_ns())
            assert found == ((So.TIMESTAMPING_NEW,) if bits else ())


@claim(STAMPING, OPTIONS, "report a receive timestamp only if the matching", "RX_FILTER")
@each(SENDING)
def test_filter_drops_what_others_asked_for(calls: Calls, via: Protocol, stamping: None) -> None:
    """With OPT_RX_FILTER a socket hears only of stamps that it requested itself."""
    with via.pair(calls) as (here, there):
        wanted = Sof.SOFTWARE | Sof.OPT_RX_FILTER
        try:
            set_option(calls, there, So.TIMESTAMPING_NEW, wanted)
        except OSError as err:
            if err.errno != errno.EINVAL:
                raise
            pytest.skip("this kernel is without SOF_TIMESTAMPING_OPT_RX_FILTER")
        assert next_report(calls, here, there) == ()
        set_option(calls, there, So.TIMESTAMPING_NEW, wanted | Sof.RX_SOFTWARE)
        assert next_report(calls, here, there) == (So.TIMESTAMPING_NEW,)


@claim(STAMPING, OPTIONS, "It must be used together with SOF_TIMESTAMPING_OPT_TSONLY")
@each(SENDING)
def test_stats_need_tsonly(calls: Calls, via: Protocol) -> None:
    """OPT_STATS alone is refused."""
    with via.pair(calls) as (here, _):
        alone = partial(set_option, calls, here, So.TIMESTAMPING_NEW, Sof.OPT_STATS)
        assert failure(alone) == "EINVAL"
        set_option(calls, here, So.TIMESTAMPING_NEW, Sof.OPT_STATS | Sof.OPT_TSONLY)


SENT = Sof.TX_SOFTWARE | Sof.SOFTWARE | Sof.OPT_TSONLY | Sof.OPT_ID


@claim(
    STAMPING,
    OPTIONS,
    "The counter starts at zero",
    "increments with each sent packet",
    "reset each time the option is enabled after having been disabled",
    "alongside an empty packet",
)
@each(DATAGRAMS)
def test_datagrams_are_numbered_from_zero(calls: Calls, via: Protocol) -> None:
    """OPT_ID counts packets; disabled and enabled again it begins anew."""
    with via.pair(calls) as (here, _):
        for _round in range(2):
            set_option(calls, here, So.TIMESTAMPING_NEW, SENT)
            for number in range(3):
                calls.send(here.fileno(), Segment.of(b"numbered"))
                assert looped(calls, here) == number
            set_option(calls, here, So.TIMESTAMPING_NEW, SENT & ~Sof.OPT_ID)


@claim(STAMPING, OPTIONS, "increments with every byte", "with counter N-1")
@each(STREAMS)
def test_bytes_are_numbered_from_zero(calls: Calls, via: Protocol) -> None:
    """With OPT_ID_TCP the number is that of the last byte of the call, from zero."""
    with via.pair(calls) as (here, there):
        calls.send(here.fileno(), Segment.of(b"before"))
        try:
            set_option(calls, here, So.TIMESTAMPING_NEW, SENT | Sof.OPT_ID_TCP)
        except OSError as err:
            if err.errno != errno.EINVAL:
                raise
            pytest.skip("this kernel is without SOF_TIMESTAMPING_OPT_ID_TCP")
        at = 0
        for size in (1, 100, 7):
            calls.send(here.fileno(), Segment.of(payload(size)))
            at += size
            assert looped(calls, here) == at - 1
        assert len(calls.recv(there.fileno(), at + 6, socket.MSG_WAITALL)) == at + 6


@claim(
    STAMPING,
    "1.3.4. Enabling timestamps via control messages",
    "per write via cmsg",
    "must still enable timestamp reporting",
)
@each(DATAGRAMS)
def test_single_calls_ask_by_control_message(calls: Calls, via: Protocol) -> None:
    """Only the call that asks is stamped, and it is told of only if that is enabled."""
    wish = int(Sof.TX_SOFTWARE).to_bytes(4, sys.byteorder)
    asking = ControlMessage(socket.SOL_SOCKET, So.TIMESTAMPING_OLD, wish)
    with via.pair(calls) as (here, _):
        for enabled in (False, True):
            bits = Sof.SOFTWARE | Sof.OPT_TSONLY if enabled else Sof.OPT_TSONLY
            set_option(calls, here, So.TIMESTAMPING_NEW, bits)
            for control in ((), (asking,), ()):
                message = Message(segments=(Segment.of(b"x"),), control=control)
                calls.sendmsg(here.fileno(), message)
            assert (looped(calls, here) is not None) == enabled
            assert looped(calls, here) is None


@claim(
    STAMPING,
    "1.2 SO_TIMESTAMPNS (also SO_TIMESTAMPNS_OLD and SO_TIMESTAMPNS_NEW)",
    "struct __kernel_timespec",
)
@claim(
    STAMPING,
    "1.1 SO_TIMESTAMP (also SO_TIMESTAMP_OLD and SO_TIMESTAMP_NEW)",
    "struct __kernel_sock_timeval",
)
@each(SENDING)
@pytest.mark.parametrize("option", [So.TIMESTAMP_NEW, So.TIMESTAMPNS_NEW], ids=lambda o: o.name)
def test_new_options_always_have_64_bits(
    calls: Calls, via: Protocol, option: So, stamping: None
) -> None:
    """Their times have two words of 64 bits, whatever the program's are."""
    with via.pair(calls) as (here, there):
        set_option(calls, there, option, 1)
        assert next_report(calls, here, there) == (option,)


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
