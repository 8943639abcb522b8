# SPDX-License-Identifier: GPL-2.0-only
"""MSG_ZEROCOPY from base pages, transparent huge pages and hugetlb pages.

That a kernel joins adjacent pages of a compound page is to be seen from here in one
place: how many segments a datagram may have.  All else holds for any kernel.  The C
selftest ``zerocopy_combine`` counts fragments and page references.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import socket
from collections.abc import Iterator, Sequence

import pytest

from conformance.attempts import payload
from conformance.completions import memory, numbers, read_all, read_one, zerocopy_pair
from conformance.pages import KINDS, Block, block, free_huge_pages, one_cpu, still_held
from conformance.protocols import PROTOCOLS, Lacking, Protocol, protocol
from conformance.sockets import Calls, Message, Segment
from conformance.sockets.uapi import MSG_ZEROCOPY

SENDING = tuple(p for p in PROTOCOLS if p.name in ("tcp4", "tcp6", "udp4", "udp6"))
PAGE = mmap.PAGESIZE
#: Where payloads begin in their block, and how long they are.
SPANS = (
    (0, 1),
    (0, PAGE),
    (1, PAGE),
    (PAGE - 1, 2),
    (PAGE - 7, 3 * PAGE + 14),
    (5 * PAGE + 3, 50001),
)
CALLS = 5

each = pytest.mark.parametrize("via", SENDING, ids=lambda p: p.name, indirect=True)
each_kind = pytest.mark.parametrize("pages", KINDS, indirect=True)


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> Iterator[Block]:
    """Memory of some kind of page, filled with bytes that tell where they come from."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(block(request.param))
        except Lacking as err:
            pytest.skip(str(err))
        made.write(payload(64 * PAGE))
        yield made


def receive(calls: Calls, there: socket.socket, via: Protocol, length: int) -> bytes:
    """So many bytes of a stream, or one datagram."""
    flags = socket.MSG_WAITALL if via.stream else 0
    return calls.recv(there.fileno(), max(length, 1), flags)


@each
@each_kind
def test_payload_arrives_and_every_call_is_notified(
    calls: Calls, via: Protocol, pages: Block
) -> None:
    with zerocopy_pair(calls, via) as (here, there):
        for offset, length in SPANS:
            segment = pages.segment(offset, length)
            assert calls.send(here.fileno(), segment, MSG_ZEROCOPY) == length
            assert receive(calls, there, via, length) == segment.read()
        found = read_all(calls, here, len(SPANS))
        assert numbers(found) == list(range(len(SPANS)))
        assert read_one(calls, here) is None


@each
@each_kind
def test_segments_arrive_in_order(calls: Calls, via: Protocol, pages: Block) -> None:
    """Some follow each other in memory, some leave a gap, some go back."""
    places = [(0, 100), (100, 4000), (4100, 100), (5000, 300), (4900, 100), (8190, 5), (0, 7)]
    segments = tuple(pages.segment(offset, length) for offset, length in places)
    whole = b"".join(segment.read() for segment in segments)
    with zerocopy_pair(calls, via) as (here, there):
        message = Message(segments=segments)
        assert calls.sendmsg(here.fileno(), message, MSG_ZEROCOPY) == len(whole)
        assert receive(calls, there, via, len(whole)) == whole
        assert numbers(read_all(calls, here, 1)) == [0]


@each
@each_kind
def test_memory_may_be_written_again_after_the_notification(
    calls: Calls, via: Protocol, pages: Block
) -> None:
    with zerocopy_pair(calls, via) as (here, there):
        for number in range(CALLS):
            data = payload(9000, seed=number)
            pages.write(data, 123)
            calls.send(here.fileno(), pages.segment(123, len(data)), MSG_ZEROCOPY)
            (done,) = read_all(calls, here, 1)
            assert (done.lo, done.hi) == (number, number)
            pages.write(bytes(len(data)), 123)
            assert receive(calls, there, via, len(data)) == data


@each
@each_kind
def test_everything_is_given_back(calls: Calls, via: Protocol, pages: Block) -> None:
    with zerocopy_pair(calls, via) as (here, there), one_cpu():
        for _ in range(CALLS):
            calls.send(here.fileno(), pages.segment(100, 50000), MSG_ZEROCOPY)
            receive(calls, there, via, 50000)
        read_all(calls, here, CALLS)
        assert memory(calls, here) == (0, 0)
        held = unmapped(pages)
    assert not held, f"the kernel still holds page frames {held}"


def unmapped(pages: Block) -> Sequence[int]:
    """Unmap a block; page frames that the kernel has not got back."""
    if pages.kind == "hugetlb":
        frame, free = 0, free_huge_pages()
        pages.unmap()
        return [frame] if free_huge_pages() != free + 1 else []
    try:
        frames = sorted({pages.frame(at) for at in range(0, 64 * PAGE, PAGE)})
        pages.unmap()
        return still_held(frames)
    except Lacking as err:
        pytest.skip(str(err))


@each
@each_kind
def test_unreadable_payload_is_refused_and_not_counted(
    calls: Calls, via: Protocol, pages: Block
) -> None:
    nowhere = Segment(0, 100)
    with zerocopy_pair(calls, via) as (here, there):
        with pytest.raises(OSError, match="sendmsg") as caught:
            calls.sendmsg(
                here.fileno(),
                Message(segments=(pages.segment(0, 100), nowhere)),
                MSG_ZEROCOPY,
            )
        assert caught.value.errno == errno.EFAULT
        good = pages.segment(200, 300)
        assert calls.send(here.fileno(), good, MSG_ZEROCOPY) == 300
        assert receive(calls, there, via, 300) == good.read()
        assert numbers(read_all(calls, here, 1)) == [0]


def most_segments(calls: Calls, pages: Block) -> int:
    """How many segments a datagram may have that all reach from one 4 KiB into the next."""
    segments = [pages.segment((2 * i + 1) * PAGE - 50, 100) for i in range(30)] * 2
    with zerocopy_pair(calls, protocol("udp4")) as (here, there):
        for count in range(1, len(segments)):
            try:
                calls.sendmsg(
                    here.fileno(), Message(segments=tuple(segments[:count])), MSG_ZEROCOPY
                )
            except OSError as err:
                if err.errno != errno.EMSGSIZE:
                    raise
                return count - 1
            whole = b"".join(segment.read() for segment in segments[:count])
            assert calls.recv(there.fileno(), 65536) == whole
            read_all(calls, here, 1)
    return len(segments)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_segment_of_a_huge_page_is_one_fragment(calls: Calls, kind: str) -> None:
    """It takes two of base pages, so that half as many fit into a packet."""
    with contextlib.ExitStack() as stack:
        try:
            base, huge = (stack.enter_context(block(k)) for k in ("base", kind))
        except Lacking as err:
            pytest.skip(str(err))
        for each_block in (base, huge):
            each_block.write(payload(64 * PAGE))
        few, many = most_segments(calls, base), most_segments(calls, huge)
    assert many // 2 == few, f"{many} segments of a huge page fit, and {few} of base pages"
