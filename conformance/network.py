# SPDX-License-Identifier: GPL-2.0-only
"""Network namespaces, and the devices in them: what no test may do to the host's own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from conformance.protocols import Lacking
from conformance.sockets import Calls
from conformance.sockets.ethtool import IfReq, IfReqValue

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8913, 0x8914, 0x1, 0x40
# Of <linux/netlink.h>, <linux/rtnetlink.h>, <linux/if_link.h>, <linux/veth.h>.
_NLMSG_ERROR, _NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_EXCL, _NLM_F_CREATE = 2, 1, 4, 0x200, 0x400
_RTM_NEWLINK, _RTM_NEWADDR = 16, 20
_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 3, 18, 28
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFINFOMSG = bytes(16)
_PATIENCE = 10.0  # seconds


class Namespace:
    """A network namespace of its own, with its loopback device up.

    Only the thread that is inside ``entered()`` is in it.  Raises Lacking if this
    process may not have one.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        with _current() as home:
            try:
                calls.unshare(_CLONE_NEWNET)
            except OSError as err:
                if err.errno not in (errno.EPERM, errno.EINVAL):
                    raise
                why = "CAP_SYS_ADMIN" if err.errno == errno.EPERM else "CONFIG_NET_NS"
                raise Lacking(f"a network namespace needs {why}") from err
            try:
                self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                up("lo")
            finally:
                calls.setns(home, _CLONE_NEWNET)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread in it: sockets made meanwhile stay in it."""
        with _current() as home:
            self._calls.setns(self.fd, _CLONE_NEWNET)
            try:
                yield
            finally:
                self._calls.setns(home, _CLONE_NEWNET)

    def close(self) -> None:
        """Let it go, with its devices, once no socket is in it any more."""
        os.close(self.fd)


@contextlib.contextmanager
def _current() -> Iterator[int]:
    fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def up(device: str) -> None:
    """Bring a device of this thread's namespace up."""
    flags = _flags(device)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = IfReq(device.encode(), IfReqValue(ifru_flags=flags | _IFF_UP))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, bytes(request))


def wait_running(device: str) -> None:
    """Wait until a device has its carrier.  Raises TimeoutError."""
    end = time.monotonic() + _PATIENCE
    while not _flags(device) & _IFF_RUNNING:
        if time.monotonic() > end:
            raise TimeoutError(f"{device} has no carrier after {_PATIENCE:.0f} s")
        time.sleep(0.001)


def _flags(device: str) -> int:
    request = bytearray(IfReq(device.encode()))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
    return int(IfReq.from_buffer(request).ifr_ifru.ifru_flags)


def add_device(name: str, kind: str) -> None:
    """A new device that needs no more than its kind, such as "dummy".  Raises Lacking."""
    info = _attribute(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, kind.encode()))
    _add_link(kind, _attribute(_IFLA_IFNAME, name.encode() + b"\0") + info)


def add_veth(name: str, away: Namespace) -> None:
    """A link to another namespace; its ends have the same name.  Raises Lacking."""
    named = _attribute(_IFLA_IFNAME, name.encode() + b"\0")
    there = _attribute(_IFLA_NET_NS_FD, struct.pack("=I", away.fd))
    peer = _attribute(_VETH_INFO_PEER, _IFINFOMSG + named + there)
    kind = _attribute(_IFLA_INFO_KIND, b"veth") + _attribute(_IFLA_INFO_DATA, peer)
    _add_link("veth", named + _attribute(_IFLA_LINKINFO, kind))


def add_address(device: str, address: str, prefix: int) -> None:
    """Give a device an IPv4 address."""
    number = socket.inet_aton(address)
    head = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(device))
    _ask(_RTM_NEWADDR, head + _attribute(_IFA_LOCAL, number) + _attribute(_IFA_ADDRESS, number))


def _add_link(kind: str, attributes: bytes) -> None:
    try:
        _ask(_RTM_NEWLINK, _IFINFOMSG + attributes)
    except OSError as err:
        if err.errno != errno.EOPNOTSUPP:
            raise
        raise Lacking(f"CONFIG_{kind.upper()} is not set, or its module is not loaded") from err


def _attribute(number: int, data: bytes) -> bytes:
    length = struct.calcsize("=HH") + len(data)
    return struct.pack("=HH", length, number) + data + bytes(-length % 4)


def _ask(kind: int, body: bytes) -> None:
    """One request to rtnetlink.  Raises the OSError that it answers with."""
    flags = _NLM_F_REQUEST | _NLM_F_ACK | _NLM_F_CREATE | _NLM_F_EXCL
    header = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(1 << 16)
    (answered,) = struct.unpack_from("=H", answer, 4)
    error = int.from_bytes(answer[16:20], sys.byteorder, signed=True)
    if answered != _NLMSG_ERROR or error:
        number = -error if answered == _NLMSG_ERROR else errno.EPROTO
        raise OSError(number, os.strerror(number), "rtnetlink")


def setting(path: str) -> str:
    """A setting below /proc/sys, of this thread's namespace where it has its own."""
    return Path("/proc/sys", path).read_text().strip()
