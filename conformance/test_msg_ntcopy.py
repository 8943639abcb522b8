# SPDX-License-Identifier: GPL-2.0-only
"""MSG_NTCOPY does not change what a call does: a flagged call equals a plain one.

Every claim here but one holds on any kernel, with the feature or without: kernels
ignore flags they do not know (kernel TLS, which refuses them, is the exception, and
refuses this one too).  So these tests do not tell whether a kernel has the feature.
That the payload really takes the other path is proven by the C selftest
``msg_ntcopy``, which counts the kernel's copies.
"""

from __future__ import annotations

import array
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from conformance.attempts import (
    SENDERS,
    Attempt,
    Seen,
    Sender,
    by_send,
    by_sendmsg,
    difference,
    each_call,
    fill,
    identity,
    outcome,
    payload,
)
from conformance.protocols import PROTOCOLS, Protocol, protocol
from conformance.sockets import (
    Calls,
    ControlMessage,
    GuardedPages,
    Message,
    Segment,
    pack_address,
)
from ktest_ntcopy.features.model import load_features

FLAG = next(
    define.value
    for feature in load_features()
    for define in feature.defines
    if define.name == "MSG_NTCOPY"
)

SIZES = (1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 32769, 65500)
#: Readable bytes before the first unreadable one.
READABLE = (1, 7, 8, 9, 64, 4095, 4096, 4097, 40000)
#: Addresses that are never readable, whatever the process has mapped.
NOWHERE = {"null": 0, "kernel": 1 << (8 * struct.calcsize("P") - 1)}

STREAMS = tuple(p for p in PROTOCOLS if p.stream)
RECORDS = tuple(p for p in PROTOCOLS if not p.stream)
OVER_IP = tuple(p for p in RECORDS if p.family in (socket.AF_INET, socket.AF_INET6))
LOCAL = tuple(p for p in PROTOCOLS if p.family == socket.AF_UNIX)
FILLABLE = tuple(p for p in PROTOCOLS if p.can_fill)


def each(protocols: Sequence[Protocol]) -> pytest.MarkDecorator:
    """Run a test for each of these protocols."""
    return pytest.mark.parametrize("via", protocols, ids=lambda p: p.name, indirect=True)


every_sender = pytest.mark.parametrize("sender", SENDERS.values(), ids=SENDERS)


def compare(calls: Calls, attempt: Attempt) -> Seen:
    """Make an attempt plain and flagged; both must show the same.  The flagged one's.

    How much fits is a matter of timing for some protocols: there the flagged attempt
    must show, within a few rounds, what the plain one of the same round did.
    """
    found = ""
    for _ in range(1 if attempt.protocol.exact else 3):
        plain = attempt.run(calls, 0)
        flagged = attempt.run(calls, FLAG)
        found = difference(plain, flagged)
        if not found:
            return flagged
    pytest.fail(f"with the flag: {found}", pytrace=False)


def must_be(expected: Seen, seen: Seen) -> None:
    """Fail unless this was seen."""
    if found := difference(expected, seen):
        pytest.fail(found, pytrace=False)


def arrived(via: Protocol, *records: bytes) -> tuple[bytes, ...]:
    """What is received if these were sent."""
    return (b"".join(records),) if via.stream else records


def all_arrives(calls: Calls, via: Protocol, sender: Sender, data: Sequence[bytes]) -> None:
    """Fail unless each of these is taken by one call, and arrives."""
    # UDP drops what the receiver has no room for: one at a time.
    for group in [data] if via.can_fill else [[d] for d in data]:
        act = each_call(calls, sender, *([Segment.of(d)] for d in group))
        seen = compare(calls, Attempt(protocol=via, act=act))
        must_be(Seen(tuple(map(len, group)), arrived(via, *group)), seen)


def faults(via: Protocol, seen: Seen, readable: Sequence[bytes]) -> None:
    """Fail unless each call failed, or took a first part of what is readable, as it arrived.

    Records are taken whole or not at all.
    """
    taken = []
    for result, data in zip(seen.results, readable, strict=True):
        if isinstance(result, int):
            assert via.stream
            assert 0 < result <= len(data)
            taken.append(data[:result])
        else:
            assert result in via.fault
    must_be(Seen(seen.results, arrived(via, *taken)), seen)


# Payloads that can be read


@every_sender
@each(PROTOCOLS)
def test_payload_arrives(calls: Calls, via: Protocol, sender: Sender) -> None:
    all_arrives(calls, via, sender, [payload(size, seed=size) for size in SIZES])


@each(PROTOCOLS)
def test_payload_at_odd_addresses_arrives(calls: Calls, via: Protocol) -> None:
    data = payload(5000)
    for offset in (1, 3, 4, 7, 9, 15):
        segment = Segment.of(data, offset=offset)
        seen = compare(calls, Attempt(protocol=via, act=each_call(calls, by_send, [segment])))
        must_be(Seen((len(data),), (data,)), seen)


@each(PROTOCOLS)
def test_segments_arrive_in_order(calls: Calls, via: Protocol) -> None:
    pieces = [payload(n, seed=n) for n in (1, 0, 7, 8, 9, 4096, 0, 3, 20000, 64, 1)]
    segments = [Segment.of(p, offset=i) for i, p in enumerate(pieces)]
    whole = b"".join(pieces)
    for sender in (SENDERS["sendmsg"], SENDERS["sendmmsg"]):
        seen = compare(calls, Attempt(protocol=via, act=each_call(calls, sender, segments)))
        must_be(Seen((len(whole),), (whole,)), seen)


@every_sender
@each(PROTOCOLS)
def test_empty_payload(calls: Calls, via: Protocol, sender: Sender) -> None:
    seen = compare(calls, Attempt(protocol=via, act=each_call(calls, sender, [Segment.of(b"")])))
    assert seen.results == (0,)


@each(STREAMS)
def test_long_payload_arrives_while_the_call_sleeps(calls: Calls, via: Protocol) -> None:
    data = payload(1 << 20)
    seen = compare(calls, Attempt(protocol=via, act=each_call(calls, by_send, [Segment.of(data)])))
    must_be(Seen((len(data),), (data,)), seen)


@each(PROTOCOLS)
def test_flagged_and_plain_share_a_socket(calls: Calls, via: Protocol) -> None:
    pieces = [payload(size, seed=size) for size in (100, 4096, 9, 5000, 1, 800)]

    def act(fd: int, flags: int) -> Sequence[int | str]:
        # Flagged first, plain first: both orders occur when flags is 0 and FLAG.
        return [
            outcome(calls.send, fd, Segment.of(p), flags ^ (FLAG * (i % 2)))
            for i, p in enumerate(pieces)
        ]

    seen = compare(calls, Attempt(protocol=via, act=act))
    must_be(Seen(tuple(map(len, pieces)), arrived(via, *pieces)), seen)


@each(tuple(p for p in PROTOCOLS if p.family != socket.AF_VSOCK))
def test_more_follows(calls: Calls, via: Protocol) -> None:
    first, second = payload(3000, seed=3), payload(700, seed=4)

    def act(fd: int, flags: int) -> Sequence[int | str]:
        more = flags | socket.MSG_MORE
        return (
            outcome(calls.send, fd, Segment.of(first), more),
            outcome(calls.send, fd, Segment.of(second), flags),
        )

    seen = compare(calls, Attempt(protocol=via, act=act))
    # AF_UNIX keeps two records apart, with or without MSG_MORE.
    apart = not via.stream and via.family == socket.AF_UNIX
    must_be(Seen((3000, 700), (first, second) if apart else (first + second,)), seen)


@each(OVER_IP)
def test_address_with_the_message(calls: Calls, via: Protocol) -> None:
    data = payload(2000)
    address = b""

    def prepare(_: socket.socket, there: socket.socket) -> None:
        nonlocal address
        address = pack_address(via.family, there.getsockname())

    def act(fd: int, flags: int) -> Sequence[int | str]:
        message = Message(segments=(Segment.of(data),), address=address)
        return (
            outcome(calls.sendmsg, fd, message, flags),
            outcome(calls.sendto, fd, Segment.of(data), flags, address),
        )

    seen = compare(calls, Attempt(protocol=via, act=act, prepare=prepare))
    must_be(Seen((len(data), len(data)), (data, data)), seen)


@each(LOCAL)
def test_file_descriptors_travel_along(calls: Calls, via: Protocol) -> None:
    data = payload(5000)
    with Path(__file__).open("rb") as file:
        rights = ControlMessage(
            socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]).tobytes()
        )
        message = Message(segments=(Segment.of(data),), control=(rights,))
        attempt = Attempt(
            protocol=via,
            act=lambda fd, flags: (outcome(calls.sendmsg, fd, message, flags),),
            control=64,
        )
        seen = compare(calls, attempt)
        arrived = ControlMessage(rights.level, rights.type, identity(file.fileno()))
    must_be(Seen((len(data),), (data,), (arrived,)), seen)


# Payloads that cannot be read, or not in whole


@every_sender
@each(PROTOCOLS)
def test_unreadable_payload(calls: Calls, via: Protocol, sender: Sender) -> None:
    pages = GuardedPages(calls, 1)
    batches = [
        [Segment(address, length, pages)]
        for address in (pages.end, *NOWHERE.values())
        for length in (1, 100, 20000)
    ]
    seen = compare(calls, Attempt(protocol=via, act=each_call(calls, sender, *batches)))
    faults(via, seen, [b""] * len(batches))


@every_sender
@each(PROTOCOLS)
def test_payload_that_runs_into_an_unreadable_page(
    calls: Calls, via: Protocol, sender: Sender
) -> None:
    pages = GuardedPages(calls, 16)
    data = payload(max(READABLE))
    pages.tail(data)
    batches = [
        [Segment(pages.end - readable, readable + beyond, pages)]
        for readable in READABLE
        for beyond in (1, 20000)
    ]
    seen = compare(calls, Attempt(protocol=via, act=each_call(calls, sender, *batches)))
    faults(via, seen, [data[-readable:] for readable in READABLE for _ in range(2)])


@each(PROTOCOLS)
def test_later_segment_is_unreadable(calls: Calls, via: Protocol) -> None:
    pages = GuardedPages(calls, 1)
    first = [payload(readable, seed=readable) for readable in (1, 9, 100, 4096, 40000)]
    batches = [
        [Segment.of(data), Segment(pages.end, 50, pages), Segment.of(b"never")] for data in first
    ]
    seen = compare(calls, Attempt(protocol=via, act=each_call(calls, by_sendmsg, *batches)))
    faults(via, seen, first)


@each(PROTOCOLS)
def test_batch_stops_at_an_unreadable_message(calls: Calls, via: Protocol) -> None:
    pages = GuardedPages(calls, 1)
    good = [payload(n, seed=n) for n in (300, 5000)]
    batch = [
        *(Message(segments=(Segment.of(data),)) for data in good),
        Message(segments=(Segment(pages.end, 10, pages),)),
        Message(segments=(Segment.of(b"never"),)),
    ]
    attempt = Attempt(protocol=via, act=lambda fd, flags: calls.sendmmsg(fd, batch, flags))
    must_be(Seen((300, 5000), arrived(via, *good)), compare(calls, attempt))


# Calls that the socket cannot serve


def small_buffer(here: socket.socket, _: socket.socket) -> None:
    """Let the sender have little room."""
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)


@every_sender
@each(FILLABLE)
def test_nonblocking_calls_stop_when_the_socket_is_full(
    calls: Calls, via: Protocol, sender: Sender
) -> None:
    data = payload(4 << 20)
    attempt = Attempt(
        protocol=via,
        # AF_VSOCK sends a first part of a record that does not fit, and still says
        # EAGAIN: this length divides all that it has room for.
        act=fill(calls, sender, data, 0 if via.stream else 1024),
        prepare=small_buffer,
        hold=True,
    )
    runs = [compare(calls, attempt)] if via.exact else [attempt.run(calls, f) for f in (0, FLAG)]
    for seen in runs:
        assert seen.results[-1] == "EAGAIN"
        assert 0 < seen.taken < len(data)
        joined = Seen(seen.results, (b"".join(seen.received),))
        must_be(Seen(seen.results, (data[: seen.taken],)), joined)


@every_sender
@each(RECORDS)
def test_record_that_is_too_long(calls: Calls, via: Protocol, sender: Sender) -> None:
    segment = Segment.of(payload(1 << 20))
    attempt = Attempt(protocol=via, act=each_call(calls, sender, [segment]), prepare=small_buffer)
    must_be(Seen(("EMSGSIZE",), ()), compare(calls, attempt))


@every_sender
@each(STREAMS)
def test_stream_that_is_shut_down(calls: Calls, via: Protocol, sender: Sender) -> None:
    attempt = Attempt(
        protocol=via,
        act=each_call(calls, sender, [Segment.of(b"late")], extra=socket.MSG_NOSIGNAL),
        prepare=lambda here, _: here.shutdown(socket.SHUT_WR),
    )
    must_be(Seen(("EPIPE",), (b"",)), compare(calls, attempt))


@every_sender
@each(PROTOCOLS)
def test_socket_without_a_peer(calls: Calls, via: Protocol, sender: Sender) -> None:
    def attempt(flags: int) -> int | str:
        with socket.socket(via.family, via.type, via.number) as alone:
            flags |= socket.MSG_NOSIGNAL
            return outcome(sender, calls, alone.fileno(), [Segment.of(b"x")], flags)

    plain = attempt(0)
    assert isinstance(plain, str)
    assert attempt(FLAG) == plain


# Kernel TLS

SOL_TLS, TLS_TX, TLS_RX, TCP_ULP = 282, 1, 2, 31
#: struct tls12_crypto_info_aes_gcm_128: version, cipher, iv, key, salt, record number.
_VERSION, _AES_GCM_128 = {"1.2": 0x0303, "1.3": 0x0304}, 51


def start_tls(version: str) -> Callable[[socket.socket, socket.socket], None]:
    """For :attr:`Attempt.prepare`: the sender encrypts, the receiver decrypts."""
    info = struct.pack("=HH", _VERSION[version], _AES_GCM_128) + bytes(8 + 16 + 4 + 8)

    def prepare(here: socket.socket, there: socket.socket) -> None:
        try:
            for end in (here, there):
                end.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        except FileNotFoundError:
            pytest.skip("kernel TLS: CONFIG_TLS is not set, or its module is not loaded (ENOENT)")
        try:
            here.setsockopt(SOL_TLS, TLS_TX, info)
            there.setsockopt(SOL_TLS, TLS_RX, info)
        except FileNotFoundError:
            pytest.skip("kernel TLS: CONFIG_CRYPTO_GCM or CONFIG_CRYPTO_AES is not set (ENOENT)")

    return prepare


@every_sender
@pytest.mark.parametrize("version", _VERSION)
@each((protocol("tcp4"), protocol("tcp6")))
def test_kernel_tls_refuses_the_flag(
    calls: Calls, via: Protocol, sender: Sender, version: str
) -> None:
    before, refused, after = payload(100, seed=1), payload(5000, seed=2), payload(300, seed=3)

    def act(fd: int, flags: int) -> Sequence[int | str]:
        return [
            outcome(sender, calls, fd, [Segment.of(data)], f)
            for data, f in ((before, 0), (refused, flags), (after, 0))
        ]

    attempt = Attempt(protocol=via, act=act, prepare=start_tls(version))
    must_be(Seen((100, 5000, 300), (before + refused + after,)), attempt.run(calls, 0))
    must_be(Seen((100, "EOPNOTSUPP", 300), (before + after,)), attempt.run(calls, FLAG))
