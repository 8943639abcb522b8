# SPDX-License-Identifier: GPL-2.0-only
"""What ``timestamping.rst`` says, held against the kernel; see ``test_documentation``."""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest

from conformance.attempts import payload
from conformance.claims import claim
from conformance.protocols import (
    DATAGRAMS,
    SENDING,
    STREAMS,
    Protocol,
    each,
    failure,
)
from conformance.sockets import Calls, ControlMessage, Message, Segment
from conformance.sockets.uapi import So, Sof
from conformance.stamps import ROOM, Witness, get_option, looped, next_report, reported, set_option

STAMPING = "timestamping.rst"
OPTIONS = "1.3.3 Timestamp Options"


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
