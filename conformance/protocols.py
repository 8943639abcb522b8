# SPDX-License-Identifier: GPL-2.0-only
"""Connected pairs of sockets of every protocol that is looked at, on loopback."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from conformance.sockets import Calls, Segment

#: Seconds after which a blocking call gives up with EAGAIN: a kernel that loses
#: bytes must not hang the tests.  Set as a socket option, because Python's own
#: time-outs make the socket non-blocking.
PATIENCE = 20


def be_patient(calls: Calls, end: socket.socket) -> None:
    """Have the blocking calls of a socket give up after PATIENCE seconds."""
    # Python sets options of AF_VSOCK sockets only to numbers.
    limit = Segment.of(struct.pack("@ll", PATIENCE, 0))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        calls.setsockopt(end.fileno(), socket.SOL_SOCKET, option, limit)


_VMADDR_CID_LOCAL = 1
_VMADDR_PORT_ANY = 0xFFFFFFFF
_IPPROTO_UDPLITE = 136
_IPPROTO_MPTCP = 262


class Lacking(Exception):
    """This kernel or this host has no such protocol; says which option would bring it."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One protocol, and what the claims need to know of it."""

    name: str
    family: socket.AddressFamily
    type: socket.SocketKind
    number: int = 0
    can_fill: bool = True  #: a sender is stopped when nobody receives
    exact: bool = True  #: how much it takes until then does not depend on timing
    #: Names of the errors that say that a payload cannot be read.
    fault: frozenset[str] = frozenset({"EFAULT"})
    lacking: Mapping[int, str] = field(default_factory=dict, hash=False)  #: errno -> what it means

    @property
    def stream(self) -> bool:
        """True if message boundaries are not kept."""
        return self.type is socket.SOCK_STREAM

    @contextlib.contextmanager
    def pair(self, calls: Calls) -> Iterator[tuple[socket.socket, socket.socket]]:
        """Two connected sockets.  Raises Lacking, or OSError for what has no known reason."""
        with contextlib.ExitStack() as stack:
            try:
                ends = self._connect(stack)
            except OSError as err:
                if err.errno is None or err.errno not in self.lacking:
                    raise
                said = errno.errorcode.get(err.errno, str(err.errno))
                raise Lacking(f"{self.name}: {self.lacking[err.errno]} ({said})") from err
            for end in ends:
                be_patient(calls, end)
            yield ends

    def _socket(self, stack: contextlib.ExitStack) -> socket.socket:
        return stack.enter_context(socket.socket(self.family, self.type, self.number))

    def _connect(self, stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
        if self.family == socket.AF_UNIX:
            left, right = socket.socketpair(self.family, self.type)
            return stack.enter_context(left), stack.enter_context(right)
        there = self._socket(stack)
        there.bind(self._loopback())
        here = self._socket(stack)
        if self.type is socket.SOCK_DGRAM:
            here.bind(self._loopback())
            here.connect(there.getsockname())
            there.connect(here.getsockname())
            return here, there
        there.listen(1)
        here.connect(there.getsockname())
        accepted, _ = there.accept()
        return here, stack.enter_context(accepted)

    def _loopback(self) -> tuple[object, ...]:
        if self.family == socket.AF_VSOCK:
            return _VMADDR_CID_LOCAL, _VMADDR_PORT_ANY
        return ("::1", 0, 0, 0) if self.family == socket.AF_INET6 else ("127.0.0.1", 0)


_UNIX = {errno.EAFNOSUPPORT: "CONFIG_UNIX is not set"}
_NO_LOOPBACK = "the loopback device is down, try `ip link set lo up`"
_V4 = {errno.EAFNOSUPPORT: "CONFIG_INET is not set", errno.EADDRNOTAVAIL: _NO_LOOPBACK}
_V6 = {
    errno.EAFNOSUPPORT: "CONFIG_IPV6 is not set, or IPv6 is off (ipv6.disable=1)",
    errno.EADDRNOTAVAIL: "::1 is not there: IPv6 is off on lo "
    "(sysctl net.ipv6.conf.lo.disable_ipv6=0 turns it on), or lo is down",
}
_VSOCK = {
    errno.EAFNOSUPPORT: "CONFIG_VSOCKETS is not set",
    errno.ESOCKTNOSUPPORT: "CONFIG_VSOCKETS is of a kernel before 5.12, without this type",
    # Without the loopback transport nobody has the address that the test binds to.
    errno.EADDRNOTAVAIL: "CONFIG_VSOCKETS_LOOPBACK is not set",
    errno.ENODEV: "CONFIG_VSOCKETS_LOOPBACK is not set",
}
#: Up to some version, AF_VSOCK takes every failure to make a packet for lack of memory.
_VSOCK_FAULT = frozenset({"EFAULT", "ENOMEM"})


def _over_ip(shape: Protocol, *, absent4: str, absent6: str) -> tuple[Protocol, Protocol]:
    """A protocol over IPv4 and over IPv6, and what it means that one is not there."""

    def over(version: int, family: socket.AddressFamily, common: Mapping[int, str]) -> Protocol:
        absent = {errno.EPROTONOSUPPORT: absent4 if version == 4 else absent6}
        lacking = {**common, **shape.lacking, **absent}
        return replace(shape, name=f"{shape.name}{version}", family=family, lacking=lacking)

    return over(4, socket.AF_INET, _V4), over(6, socket.AF_INET6, _V6)


PROTOCOLS: tuple[Protocol, ...] = (
    Protocol(
        name="unix_stream",
        family=socket.AF_UNIX,
        type=socket.SOCK_STREAM,
        lacking=_UNIX,
    ),
    Protocol(
        name="unix_dgram",
        family=socket.AF_UNIX,
        type=socket.SOCK_DGRAM,
        lacking=_UNIX,
    ),
    Protocol(
        name="unix_seqpacket",
        family=socket.AF_UNIX,
        type=socket.SOCK_SEQPACKET,
        lacking=_UNIX,
    ),
    *_over_ip(
        Protocol(name="tcp", family=socket.AF_INET, type=socket.SOCK_STREAM, exact=False),
        absent4="CONFIG_INET is not set",
        absent6="CONFIG_IPV6 is not set",
    ),
    *_over_ip(
        Protocol(
            name="udp",
            family=socket.AF_INET,
            type=socket.SOCK_DGRAM,
            can_fill=False,
        ),
        absent4="CONFIG_INET is not set",
        absent6="CONFIG_IPV6 is not set",
    ),
    *_over_ip(
        Protocol(
            name="udplite",
            family=socket.AF_INET,
            type=socket.SOCK_DGRAM,
            number=_IPPROTO_UDPLITE,
            can_fill=False,
        ),
        absent4="this kernel is without UDP-Lite",
        absent6="this kernel is without UDP-Lite",
    ),
    *_over_ip(
        Protocol(
            name="mptcp",
            family=socket.AF_INET,
            type=socket.SOCK_STREAM,
            number=_IPPROTO_MPTCP,
            exact=False,
            lacking={errno.ENOPROTOOPT: "MPTCP is off, try `sysctl net.mptcp.enabled=1`"},
        ),
        absent4="CONFIG_MPTCP is not set",
        absent6="CONFIG_MPTCP or CONFIG_MPTCP_IPV6 is not set",
    ),
    Protocol(
        name="vsock_stream",
        family=socket.AF_VSOCK,
        type=socket.SOCK_STREAM,
        fault=_VSOCK_FAULT,
        lacking=_VSOCK,
    ),
    Protocol(
        name="vsock_seqpacket",
        family=socket.AF_VSOCK,
        type=socket.SOCK_SEQPACKET,
        fault=_VSOCK_FAULT,
        lacking=_VSOCK,
    ),
)


def protocol(name: str) -> Protocol:
    """One of :data:`PROTOCOLS`."""
    return next(p for p in PROTOCOLS if p.name == name)


#: Those that the documents speak of.
SENDING = tuple(p for p in PROTOCOLS if p.name in ("tcp4", "tcp6", "udp4", "udp6"))
STREAMS = tuple(p for p in SENDING if p.stream)
DATAGRAMS = tuple(p for p in SENDING if not p.stream)


def each(protocols: tuple[Protocol, ...]) -> pytest.MarkDecorator:
    """Run a test for each of these protocols."""
    return pytest.mark.parametrize("via", protocols, ids=lambda p: p.name, indirect=True)


def failure(call: Callable[[], object]) -> str:
    """The name of the errno that a call fails with; empty if it does not."""
    try:
        call()
    except OSError as err:
        return errno.errorcode.get(err.errno or 0, str(err.errno))
    return ""
