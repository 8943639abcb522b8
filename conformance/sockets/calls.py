# SPDX-License-Identifier: GPL-2.0-only
"""The calls."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ctypes_callable import callable as is_callable

from conformance.sockets.address import parse_address
from conformance.sockets.cmsg import ControlMessage, build_control, parse_control
from conformance.sockets.layout import IoVec, MMsgHdr, MsgHdr
from conformance.sockets.memory import Segment

_INT = ctypes.c_int
_SIZE = ctypes.c_size_t
_ADDRESS = ctypes.c_void_p

#: Function -> (type of the result, types of the arguments).
_PROTOTYPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "send": (ctypes.c_ssize_t, (_INT, _ADDRESS, _SIZE, _INT)),
    "sendto": (ctypes.c_ssize_t, (_INT, _ADDRESS, _SIZE, _INT, _ADDRESS, ctypes.c_uint32)),
    "sendmsg": (ctypes.c_ssize_t, (_INT, ctypes.POINTER(MsgHdr), _INT)),
    "sendmmsg": (_INT, (_INT, ctypes.POINTER(MMsgHdr), ctypes.c_uint, _INT)),
    "recv": (ctypes.c_ssize_t, (_INT, _ADDRESS, _SIZE, _INT)),
    "recvmsg": (ctypes.c_ssize_t, (_INT, ctypes.POINTER(MsgHdr), _INT)),
    "getsockopt": (_INT, (_INT, _INT, _INT, _ADDRESS, ctypes.POINTER(ctypes.c_uint32))),
    "setsockopt": (_INT, (_INT, _INT, _INT, _ADDRESS, ctypes.c_uint32)),
    "mprotect": (_INT, (_ADDRESS, _SIZE, _INT)),
    "unshare": (_INT, (_INT,)),
    "setns": (_INT, (_INT, _INT)),
}


class MissingFunctionError(LookupError):
    """The C library lacks a function, or has something else under its name."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """What a ``msghdr`` describes when sending; ``address`` is a packed ``sockaddr``."""

    segments: tuple[Segment, ...] = ()
    control: tuple[ControlMessage, ...] = ()
    address: bytes = b""
    #: Memory to use in place of ``control``, whatever is in it.
    control_memory: Segment | None = None


@dataclass(frozen=True, kw_only=True)
class Received:
    """What ``recvmsg`` returned."""

    data: bytes
    control: tuple[ControlMessage, ...] = ()
    flags: int = 0  #: msg_flags: MSG_TRUNC, MSG_CTRUNC, MSG_EOR ...
    address: Any = None  #: the sender's, in the way of Python's socket, if the kernel gave it
    length: int = 0  #: the returned value; more than ``data`` has with MSG_TRUNC


class Calls:
    """Socket calls of one C library, by default the one this process runs with.

    Every call raises the OSError subclass of its errno, naming the call; EINTR is
    no exception to that (InterruptedError), because no call is made twice.
    """

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        """Look up every function.  Raises MissingFunctionError naming the first one missing."""
        library = library or ctypes.CDLL(None, use_errno=True)
        name = library._name or "the C library"
        self._functions = {f: _function(library, name, f) for f in _PROTOTYPES}

    def _call(self, name: str, *arguments: Any) -> int:
        ctypes.set_errno(0)
        result = int(self._functions[name](*arguments))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        return result

    def send(self, fd: int, segment: Segment, flags: int = 0) -> int:
        """Bytes taken."""
        return self._call("send", fd, segment.address, segment.length, flags)

    def sendto(self, fd: int, segment: Segment, flags: int, address: bytes) -> int:
        """Bytes taken; ``address`` is a packed ``sockaddr``."""
        target = Segment.of(address)
        return self._call(
            "sendto", fd, segment.address, segment.length, flags, target.address, target.length
        )

    def sendmsg(self, fd: int, message: Message, flags: int = 0) -> int:
        """Bytes taken."""
        header = _Header(message)
        return self._call("sendmsg", fd, ctypes.byref(header.raw), flags)

    def sendmmsg(self, fd: int, messages: Sequence[Message], flags: int = 0) -> tuple[int, ...]:
        """Bytes taken of each message that was sent; fewer entries than messages if one failed.

        Raises only if the first one failed, as the kernel does.
        """
        headers = [_Header(m) for m in messages]
        vector = (MMsgHdr * max(len(headers), 1))()
        for entry, header in zip(vector, headers, strict=False):
            entry.msg_hdr = header.raw
        sent = self._call("sendmmsg", fd, vector, len(headers), flags)
        return tuple(int(entry.msg_len) for entry in vector[:sent])

    def recv(self, fd: int, length: int, flags: int = 0) -> bytes:
        """At most ``length`` bytes."""
        room = Segment.room(length)
        # With MSG_TRUNC the result tells the whole length of a longer message.
        return room.read(min(self._call("recv", fd, room.address, length, flags), length))

    def recvmsg(
        self, fd: int, length: int, *, control: int = 0, address: int = 128, flags: int = 0
    ) -> Received:
        """At most ``length`` bytes, with room for so many bytes of control and address.

        Raises CmsgError or ValueError if what the kernel wrote makes no sense.
        """
        data, extra, name = Segment.room(length), Segment.room(control), Segment.room(address)
        iov = IoVec(data.address, data.length)
        header = MsgHdr(
            msg_name=name.address if address else None,
            msg_namelen=address,
            msg_iov=ctypes.pointer(iov),
            msg_iovlen=1,
            msg_control=extra.address if control else None,
            msg_controllen=control,
        )
        got = self._call("recvmsg", fd, ctypes.byref(header), flags)
        return Received(
            data=data.read(min(got, length)),
            control=parse_control(extra.read(int(header.msg_controllen))),
            flags=int(header.msg_flags),
            address=parse_address(name.read(min(int(header.msg_namelen), address)))[1],
            length=got,
        )

    def getsockopt(self, fd: int, level: int, option: int, length: int) -> bytes:
        """The value, with room for ``length`` bytes."""
        room, size = Segment.room(length), ctypes.c_uint32(length)
        self._call("getsockopt", fd, level, option, room.address, ctypes.byref(size))
        return room.read(min(size.value, length))

    def setsockopt(self, fd: int, level: int, option: int, value: Segment) -> None:
        """Set an option from memory, which need not be readable."""
        self._call("setsockopt", fd, level, option, value.address, value.length)

    def mprotect(self, address: int, length: int, protection: int) -> None:
        """Change what may be done with whole pages."""
        self._call("mprotect", address, length, protection)

    def unshare(self, what: int) -> None:
        """Leave some of what this thread has in common with others, CLONE_NEW*."""
        self._call("unshare", what)

    def setns(self, fd: int, what: int) -> None:
        """Enter the namespace that the descriptor is of, for this thread."""
        self._call("setns", fd, what)


def _function(library: ctypes.CDLL, library_name: str, name: str) -> Any:
    try:
        # By index, because that makes a new object: the caller's own prototypes stay.
        function = library[name]
    except AttributeError:
        function = None
    # A name can be there and be no function, or be resolved to no address.
    if function is None or not is_callable(function) or not _address(function):
        raise MissingFunctionError(
            f"{library_name} has no function {name}(): these tests need a C library for Linux "
            "such as glibc"
        )
    function.restype, function.argtypes = _PROTOTYPES[name]
    return function


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _Header:
    """A ``msghdr`` with all that it points to."""

    def __init__(self, message: Message) -> None:
        count = len(message.segments)
        self._iov = (IoVec * max(count, 1))()
        for entry, segment in zip(self._iov, message.segments, strict=False):
            entry.iov_base, entry.iov_len = segment.address, segment.length
        self._control = message.control_memory or Segment.of(build_control(message.control))
        self._name = Segment.of(message.address)
        self._message = message
        self.raw = MsgHdr(
            msg_name=self._name.address if message.address else None,
            msg_namelen=self._name.length,
            msg_iov=self._iov,
            msg_iovlen=count,
            msg_control=self._control.address if self._control.length else None,
            msg_controllen=self._control.length,
        )
