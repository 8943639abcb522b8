# SPDX-License-Identifier: GPL-2.0-only
"""Socket addresses as the bytes a ``msghdr`` points to.

Addresses look as they do in Python's ``socket``: (host, port), (host, port, flow,
scope), (cid, port), a path; an abstract AF_UNIX name begins with a NUL.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from typing import Any, TypeVar

from conformance.sockets.layout import (
    SockAddr,
    SockAddrIn,
    SockAddrIn6,
    SockAddrUn,
    SockAddrVm,
)

_Shape = TypeVar("_Shape", bound=ctypes.Structure)


def pack_address(family: int, address: Any) -> bytes:
    """The ``sockaddr`` of an address.  Hosts are numeric.  Raises ValueError, OSError."""
    if family == socket.AF_INET:
        host, port = address
        return _bytes(
            SockAddrIn(
                family,
                _octets(2, struct.pack("!H", _port(port))),
                _octets(4, socket.inet_pton(family, host)),
            )
        )
    if family == socket.AF_INET6:
        host, port, flow, scope = (*address, 0, 0)[:4]
        return _bytes(
            SockAddrIn6(
                family,
                _octets(2, struct.pack("!H", _port(port))),
                _octets(4, struct.pack("!I", flow)),
                _octets(16, socket.inet_pton(family, host)),
                scope,
            )
        )
    if family == socket.AF_UNIX:
        path = os.fsencode(address)
        if len(path) > 107 + path.startswith(b"\0"):
            raise ValueError(f"an AF_UNIX path of {len(path)} bytes is too long")
        # The kernel ends a path for itself; of an abstract name every byte counts.
        return struct.pack("@H", family) + path + (b"" if path.startswith(b"\0") else b"\0")
    if family == socket.AF_VSOCK:
        cid, port = address
        return _bytes(SockAddrVm(svm_family=family, svm_port=port, svm_cid=cid))
    raise ValueError(f"address family {family} is not one of INET, INET6, UNIX, VSOCK")


def parse_address(raw: bytes) -> tuple[int, Any]:
    """Family and address of a ``sockaddr``; no bytes are (AF_UNSPEC, None).

    Raises ValueError if it is shorter than its family demands.
    """
    if not raw:
        return socket.AF_UNSPEC, None
    family = _read(SockAddr, raw).sa_family
    if family == socket.AF_INET:
        v4 = _read(SockAddrIn, raw)
        return family, (socket.inet_ntop(family, bytes(v4.sin_addr)), _number(v4.sin_port))
    if family == socket.AF_INET6:
        v6 = _read(SockAddrIn6, raw)
        host = socket.inet_ntop(family, bytes(v6.sin6_addr))
        return family, (
            host,
            _number(v6.sin6_port),
            _number(v6.sin6_flowinfo),
            int(v6.sin6_scope_id),
        )
    if family == socket.AF_UNIX:
        path = raw[SockAddrUn.sun_path.offset :]
        if path.startswith(b"\0"):
            return family, path  # an abstract name is bytes in Python's socket too
        return family, os.fsdecode(path.partition(b"\0")[0])
    if family == socket.AF_VSOCK:
        vm = _read(SockAddrVm, raw)
        return family, (int(vm.svm_cid), int(vm.svm_port))
    raise ValueError(f"address family {family} is not one of INET, INET6, UNIX, VSOCK")


def _port(port: int) -> int:
    if not 0 <= port <= 0xFFFF:
        raise ValueError(f"port {port} is not between 0 and 65535")
    return port


def _octets(count: int, raw: bytes) -> ctypes.Array[ctypes.c_uint8]:
    return (ctypes.c_uint8 * count).from_buffer_copy(raw)


def _bytes(shape: ctypes.Structure) -> bytes:
    return ctypes.string_at(ctypes.addressof(shape), ctypes.sizeof(shape))


def _number(octets: ctypes.Array[ctypes.c_uint8]) -> int:
    return int.from_bytes(bytes(octets), "big")


def _read(shape: type[_Shape], raw: bytes) -> _Shape:
    size = ctypes.sizeof(shape)
    if len(raw) < size:
        raise ValueError(f"{shape.__name__} needs {size} bytes, there are {len(raw)}")
    return shape.from_buffer_copy(raw)
