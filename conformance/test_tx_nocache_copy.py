# SPDX-License-Identifier: GPL-2.0-only
"""The device feature tx-nocache-copy: who offers it, who may switch it, and what it leaves alone.

Devices are made in namespaces of their own.  That payloads really take the other path
is proven by the C selftest ``tx_nocache_copy``, which counts the kernel's copies.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from conformance.attempts import payload
from conformance.features import feature
from conformance.network import (
    Namespace,
    add_address,
    add_device,
    add_veth,
    up,
    wait_running,
)
from conformance.protocols import Lacking, be_patient
from conformance.sockets import Calls, Message, Segment
from conformance.sockets.ethtool import ETHTOOL_F_UNSUPPORTED, Device

#: As ethtool writes it.
NAME = feature("tx_nocache_copy").name.replace("_", "-")
KINDS = ("veth", "dummy")
LINK = "ktest0"
HERE, THERE = "192.0.2.1", "192.0.2.2"
SIZES = (1, 7, 8, 63, 64, 65, 4095, 4097, 70000)

each_kind = pytest.mark.parametrize("device", KINDS, indirect=True)


@contextlib.contextmanager
def namespaces(calls: Calls, count: int) -> Iterator[list[Namespace]]:
    """Network namespaces; skips if this process may have none."""
    with contextlib.ExitStack() as stack:
        made: list[Namespace] = []
        try:
            for _ in range(count):
                made.append(Namespace(calls))
                stack.callback(made[-1].close)
        except Lacking as err:
            pytest.skip(str(err))
        yield made


@contextlib.contextmanager
def opened(name: str) -> Iterator[Device]:
    """A device of this thread's namespace, to be asked for its features."""
    with contextlib.closing(Device(name)) as device:
        yield device


def number(device: Device) -> int:
    """Which feature it is; skips on a kernel that does not know it."""
    names = device.names()
    if NAME not in names:
        pytest.skip(f"this kernel has no device feature {NAME}")
    return names.index(NAME)


def added(kind: str, name: str, away: Namespace) -> None:
    """Make a device of a kind; skips if the kernel has none of it."""
    try:
        if kind == "veth":
            add_veth(name, away)
        else:
            add_device(name, kind)
    except Lacking as err:
        pytest.skip(str(err))


@pytest.fixture
def device(request: pytest.FixtureRequest, calls: Calls) -> Iterator[Device]:
    """A new device, in whose namespace the test runs."""
    with namespaces(calls, 2) as (home, away), home.entered():
        added(request.param, LINK, away)
        with opened(LINK) as device:
            yield device


@each_kind
def test_new_device_offers_it_and_does_not_have_it(device: Device) -> None:
    state = device.states()[number(device)]
    assert state.available
    assert not state.fixed
    assert not state.requested
    assert not state.active


@each_kind
def test_goes_on_and_off_as_it_is_told(device: Device) -> None:
    it = number(device)
    for on in (True, True, False, False, True):
        assert device.switch(it, on) == 0
        state = device.states()[it]
        assert (state.requested, state.active) == (on, on)


@each_kind
def test_switching_changes_no_other_feature(device: Device) -> None:
    it = number(device)
    before = list(device.states())
    for on in (True, False):
        device.switch(it, on)
        after = list(device.states())
        assert after[:it] + after[it + 1 :] == before[:it] + before[it + 1 :]


def test_other_devices_do_not_follow(calls: Calls) -> None:
    with namespaces(calls, 2) as (home, away), home.entered():
        added("veth", LINK, away)
        with opened(LINK) as device, opened("lo") as loopback:
            it = number(device)
            device.switch(it, True)
            assert device.states()[it].active
            assert not loopback.states()[it].active
        with away.entered(), opened(LINK) as far_end:
            assert not far_end.states()[it].active


def test_loopback_neither_has_nor_takes_it(calls: Calls) -> None:
    with namespaces(calls, 1) as (home,), home.entered(), opened("lo") as loopback:
        it = number(loopback)
        assert not loopback.states()[it].available
        assert not loopback.states()[it].active
        assert loopback.switch(it, True) & ETHTOOL_F_UNSUPPORTED
        assert not loopback.states()[it].active


@contextlib.contextmanager
def linked(calls: Calls) -> Iterator[tuple[Namespace, Namespace]]:
    """Two namespaces with a link between them, that has HERE and THERE."""
    with namespaces(calls, 2) as (here, there):
        with here.entered():
            added("veth", LINK, there)
        for end, address in ((here, HERE), (there, THERE)):
            with end.entered():
                add_address(LINK, address, 24)
                up(LINK)
        for end in (here, there):
            with end.entered():
                wait_running(LINK)
        yield here, there


@contextlib.contextmanager
def connected(
    calls: Calls, here: Namespace, there: Namespace, kind: socket.SocketKind
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets that talk through the link."""
    with contextlib.ExitStack() as stack:
        with there.entered():
            receiver = stack.enter_context(socket.socket(socket.AF_INET, kind))
        with here.entered():
            sender = stack.enter_context(socket.socket(socket.AF_INET, kind))
        for end in (sender, receiver):
            be_patient(calls, end)
        receiver.bind((THERE, 0))
        if kind is socket.SOCK_STREAM:
            receiver.listen(1)
        sender.connect(receiver.getsockname())
        if kind is socket.SOCK_STREAM:
            receiver = stack.enter_context(receiver.accept()[0])
        yield sender, receiver


@pytest.mark.parametrize("on", [False, True], ids=("off", "on"))
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=("tcp", "udp"))
def test_payload_arrives(calls: Calls, kind: socket.SocketKind, on: bool) -> None:
    """All sizes around those that the copy treats in another way, at odd addresses."""
    stream = kind is socket.SOCK_STREAM
    with linked(calls) as (here, there):
        with here.entered(), opened(LINK) as device:
            assert device.switch(number(device), on) == 0
            assert device.states()[number(device)].active == on
        with connected(calls, here, there, kind) as (sender, receiver):
            for size in SIZES:
                data = payload(size if stream else min(size, 1400), seed=size)
                for offset in (0, 3, 8, 13):
                    segment = Segment.of(data, offset=offset)
                    assert calls.send(sender.fileno(), segment) == len(data)
                    flags = socket.MSG_WAITALL if stream else 0
                    assert calls.recv(receiver.fileno(), len(data), flags) == data


def test_segments_arrive_while_the_device_is_switched(calls: Calls) -> None:
    pieces = [payload(n, seed=n) for n in (1, 0, 7, 8, 9, 4096, 3, 20000, 64)]
    message = Message(segments=tuple(Segment.of(p, offset=i) for i, p in enumerate(pieces)))
    whole = b"".join(pieces)
    with linked(calls) as (here, there):
        with here.entered():
            device = Device(LINK)
        with contextlib.closing(device):
            it = number(device)
            for before, during in ((False, True), (True, False)):
                device.switch(it, before)
                with connected(calls, here, there, socket.SOCK_STREAM) as (sender, receiver):
                    for state in (before, during, before):
                        device.switch(it, state)
                        assert calls.sendmsg(sender.fileno(), message) == len(whole)
                        got = calls.recv(receiver.fileno(), len(whole), socket.MSG_WAITALL)
                        assert got == whole
