# SPDX-License-Identifier: GPL-2.0-only
"""SOCK_TIMESTAMPING_ANY does not change what sockets report: it equals this table.

All of this holds on any kernel that has the options.  A kernel with the feature decides
by one bit of ``sk_flags`` whether a receive call reports at all; were that bit to lag
behind ``sk_tsflags``, reports would be missing here.  Which packets are spared the way
past ``sk_tsflags`` is not to be seen from here: the C selftest ``timestamping_any``
probes it.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from conformance.features import constant
from conformance.protocols import PROTOCOLS, Protocol, be_patient, protocol
from conformance.sockets import Calls
from conformance.sockets.uapi import So, Sof
from conformance.stamps import Witness, get_option, next_report, set_option

SOFTWARE = Sof(constant("SOF_TIMESTAMPING_SOFTWARE"))
HARDWARE = Sof(constant("SOF_TIMESTAMPING_RAW_HARDWARE"))
OLD, NEW = So.TIMESTAMPING_OLD, So.TIMESTAMPING_NEW
#: Bits that report nothing by themselves.
SILENT = Sof.RX_SOFTWARE | Sof.RX_HARDWARE | Sof.SYS_HARDWARE | Sof.OPT_CMSG | Sof.OPT_TSONLY
UNKNOWN = 1 << 30


@dataclass(frozen=True)
class Row:
    """Options set one after the other on a receiver, and who reports the next packet."""

    steps: tuple[tuple[So, int], ...] = ()
    inet: tuple[So, ...] = ()
    #: AF_UNIX packets are stamped only for SO_TIMESTAMP and SO_TIMESTAMPNS.
    unix: tuple[So, ...] = ()

    def __str__(self) -> str:
        return ",".join(f"{option.name}={value:#x}" for option, value in self.steps) or "nothing"


def one(option: So) -> tuple[So, ...]:
    """Just this one reports."""
    return (option,)


ROWS: tuple[Row, ...] = (
    Row(),
    *(Row(((option, SOFTWARE),), one(option)) for option in (OLD, NEW)),
    *(Row(((option, SOFTWARE | Sof.RX_SOFTWARE),), one(option)) for option in (OLD, NEW)),
    *(Row(((option, SILENT),)) for option in (OLD, NEW)),
    *(Row(((option, HARDWARE),)) for option in (OLD, NEW)),
    Row(((OLD, SOFTWARE | HARDWARE),), one(OLD)),
    Row(((NEW, SOFTWARE | SILENT),), one(NEW)),
    # What was set last counts, and gives the form.
    Row(((OLD, SOFTWARE), (NEW, SOFTWARE)), one(NEW)),
    Row(((NEW, SOFTWARE), (OLD, SOFTWARE)), one(OLD)),
    Row(((OLD, SOFTWARE), (OLD, 0))),
    Row(((NEW, SOFTWARE | HARDWARE), (OLD, 0))),
    Row(((OLD, SOFTWARE | HARDWARE), (OLD, SOFTWARE)), one(OLD)),
    Row(((OLD, SOFTWARE | HARDWARE), (OLD, HARDWARE))),
    Row(((OLD, HARDWARE), (NEW, SILENT), (NEW, SOFTWARE)), one(NEW)),
    # The older options, alone and beside SO_TIMESTAMPING.
    *(
        Row(((option, 1),), one(option), one(option))
        for option in (
            So.TIMESTAMP_OLD,
            So.TIMESTAMP_NEW,
            So.TIMESTAMPNS_OLD,
            So.TIMESTAMPNS_NEW,
        )
    ),
    Row(((So.TIMESTAMP_OLD, 1), (So.TIMESTAMP_OLD, 0))),
    Row(
        ((OLD, SOFTWARE), (So.TIMESTAMP_OLD, 1)),
        (So.TIMESTAMP_OLD, OLD),
        (So.TIMESTAMP_OLD, OLD),
    ),
    Row(
        ((So.TIMESTAMPNS_NEW, 1), (NEW, SOFTWARE)),
        (So.TIMESTAMPNS_NEW, NEW),
        (So.TIMESTAMPNS_NEW, NEW),
    ),
    Row(((So.TIMESTAMPNS_OLD, 1), (OLD, SOFTWARE), (So.TIMESTAMPNS_OLD, 0)), one(OLD)),
    Row(((OLD, SOFTWARE), (So.TIMESTAMP_OLD, 1), (OLD, 0)), *[one(So.TIMESTAMP_OLD)] * 2),
)
TABLED = tuple(
    p for p in PROTOCOLS if p.name in ("udp4", "udp6", "tcp4", "tcp6", "unix_dgram", "unix_stream")
)
OVER_IP = tuple(p for p in TABLED if p.family != socket.AF_UNIX)
each = pytest.mark.parametrize("via", TABLED, ids=lambda p: p.name, indirect=True)
each_over_ip = pytest.mark.parametrize("via", OVER_IP, ids=lambda p: p.name, indirect=True)
each_form = pytest.mark.parametrize("option", [OLD, NEW], ids=lambda o: o.name)


@pytest.fixture(scope="module", autouse=True)
def stamping(calls: Calls) -> Iterator[None]:
    """Have the kernel stamp all packets."""
    witness = Witness(calls)
    yield
    witness.close()


def set_all(calls: Calls, end: socket.socket, row: Row) -> None:
    """Set what a row says.  Skips on a kernel that does not know an option."""
    for option, value in row.steps:
        try:
            set_option(calls, end, option, value)
        except OSError as err:
            if err.errno != errno.ENOPROTOOPT:
                raise
            pytest.skip(f"this kernel is without SO_{option.name} (ENOPROTOOPT)")


def expected(via: Protocol, row: Row) -> tuple[So, ...]:
    """What the table says for a protocol."""
    if via.family != socket.AF_UNIX:
        return row.inet
    return () if via.stream else row.unix


@each
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_report_is_as_the_table_says(calls: Calls, via: Protocol, row: Row) -> None:
    with via.pair(calls) as (here, there):
        set_all(calls, there, row)
        assert next_report(calls, here, there) == expected(via, row)


@each
def test_every_setting_holds_from_the_call_on(calls: Calls, via: Protocol) -> None:
    """One socket goes through all rows; none leaves anything behind for the next."""
    with via.pair(calls) as (here, there):
        for row in ROWS:
            for option in (So.TIMESTAMP_OLD, NEW):
                set_option(calls, there, option, 0)
            set_all(calls, there, row)
            assert next_report(calls, here, there) == expected(via, row), str(row)


@each_form
@pytest.mark.parametrize("bits", [SOFTWARE, HARDWARE, SOFTWARE | SILENT, Sof(0)], ids=hex)
def test_getsockopt_tells_what_was_set(calls: Calls, option: So, bits: Sof) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        set_option(calls, end, option, bits)
        assert get_option(calls, end, option) == bits


@each_form
@each_over_ip
def test_refused_call_changes_nothing(calls: Calls, via: Protocol, option: So) -> None:
    with via.pair(calls) as (here, there):
        for value, after in ((SOFTWARE, one(option)), (0, ())):
            set_option(calls, there, option, value)
            for refused in (UNKNOWN, UNKNOWN | SOFTWARE):
                with pytest.raises(OSError, match="setsockopt") as caught:
                    set_option(calls, there, option, refused)
                assert caught.value.errno == errno.EINVAL
                assert get_option(calls, there, option) == value
                assert next_report(calls, here, there) == after


@each_form
@pytest.mark.parametrize("bits", [SOFTWARE, HARDWARE, SILENT, Sof(0)], ids=hex)
@pytest.mark.parametrize(
    "via", [protocol("tcp4"), protocol("tcp6")], ids=lambda p: p.name, indirect=True
)
def test_accepted_socket_inherits(calls: Calls, via: Protocol, option: So, bits: Sof) -> None:
    address = "127.0.0.1" if via.family == socket.AF_INET else "::1"
    with socket.create_server((address, 0), family=via.family) as listener:
        be_patient(calls, listener)
        set_option(calls, listener, option, bits)
        with socket.create_connection(listener.getsockname()[:2]) as here:
            there, _ = listener.accept()
            with there:
                assert get_option(calls, there, option) == bits
                reports = one(option) if bits & SOFTWARE else ()
                assert next_report(calls, here, there) == reports
                # The listener's setting and the accepted socket's are apart from now on.
                set_option(calls, listener, option, SOFTWARE ^ bits)
                assert next_report(calls, here, there) == reports


def test_setting_of_one_socket_is_not_that_of_another(calls: Calls) -> None:
    via = protocol("udp4")
    with via.pair(calls) as (here, there), via.pair(calls) as (here2, there2):
        set_option(calls, there, OLD, SOFTWARE)
        assert next_report(calls, here2, there2) == ()
        assert next_report(calls, here, there) == one(OLD)
