# SPDX-License-Identifier: GPL-2.0-only
"""One call on a fresh pair of sockets, and everything an application sees of it."""

from __future__ import annotations

import array
import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec

from conformance.protocols import PATIENCE, Protocol
from conformance.sockets import Calls, ControlMessage, Message, Segment

#: Sent plain after the calls: the last record, or the end of the stream.  A socket must
#: go on after a call that failed; and MPTCP keeps what a call took before a fault until
#: something else is sent (seen in 6.12 and 6.18), so that without it nothing would arrive.
_MARKER = b"conformance: this is the last"
#: EOPNOTSUPP has two names in Python, and the other one comes first.
_NAMES = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP"}
_P = ParamSpec("_P")
_RECEIVE = 1 << 20  # bytes per call, more than any record has

#: Makes one call with (calls, fd, segments, flags); returns how many bytes were taken.
Sender = Callable[[Calls, int, Sequence[Segment], int], int]


class Silence(AssertionError):
    """Nothing came, not even the end, for as long as one can wait."""


def by_send(calls: Calls, fd: int, segments: Sequence[Segment], flags: int) -> int:
    """``send()``, which takes one segment."""
    (segment,) = segments
    return calls.send(fd, segment, flags)


def by_sendmsg(calls: Calls, fd: int, segments: Sequence[Segment], flags: int) -> int:
    """``sendmsg()``."""
    return calls.sendmsg(fd, Message(segments=tuple(segments)), flags)


def by_sendmmsg(calls: Calls, fd: int, segments: Sequence[Segment], flags: int) -> int:
    """``sendmmsg()`` of one message."""
    (taken,) = calls.sendmmsg(fd, [Message(segments=tuple(segments))], flags)
    return taken


SENDERS: dict[str, Sender] = {"send": by_send, "sendmsg": by_sendmsg, "sendmmsg": by_sendmmsg}


@dataclass(frozen=True)
class Seen:
    """What an application sees: returned values or errno names, and what arrived."""

    results: tuple[int | str, ...]
    #: One entry per record, or all of a stream as one; control messages beside them.
    received: tuple[bytes, ...]
    #: Of SCM_RIGHTS the data are what :func:`identity` makes of each descriptor.
    control: tuple[ControlMessage, ...] = ()

    @property
    def taken(self) -> int:
        """Bytes that the calls said they took."""
        return sum(r for r in self.results if isinstance(r, int))


def difference(expected: Seen, seen: Seen) -> str:
    """What differs, in one line that does not show the payload; empty if nothing does."""
    if expected.results != seen.results:
        return f"calls gave {_short(seen.results)}, not {_short(expected.results)}"
    lengths = [len(r) for r in expected.received], [len(r) for r in seen.received]
    if lengths[0] != lengths[1]:
        return f"received records of {_short(lengths[1])} bytes, not {_short(lengths[0])}"
    for number, (one, other) in enumerate(zip(expected.received, seen.received, strict=True)):
        if one != other:
            at = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
            return f"record {number}: byte {at} is {other[at]:#04x}, not {one[at]:#04x}"
    if expected.control != seen.control:
        return f"control messages {seen.control}, not {expected.control}"
    return ""


def _short(values: Sequence[object]) -> str:
    shown = ", ".join(str(v) for v in values[:8])
    return f"({shown}{', ...' if len(values) > 8 else ''}; {len(values)} in all)"


def payload(length: int, seed: int = 1) -> bytes:
    """Bytes that tell where they come from: no part equals another."""
    return random.Random(seed).randbytes(length)


def outcome(call: Callable[_P, int], *args: _P.args, **kwargs: _P.kwargs) -> int | str:
    """What a call returned, or the name of its errno."""
    try:
        return call(*args, **kwargs)
    except OSError as err:
        return _NAMES.get(err.errno or 0, str(err.errno))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Calls to make on a fresh connected pair; see :meth:`run`."""

    protocol: Protocol
    #: Makes the calls on a descriptor with these flags.
    act: Callable[[int, int], Sequence[int | str]]
    prepare: Callable[[socket.socket, socket.socket], None] | None = None
    hold: bool = False  #: receive only after the calls are over
    control: int = 0  #: bytes of room for control messages

    def run(self, calls: Calls, flags: int) -> Seen:
        """Do it.  Raises Lacking, Silence, or what ``act`` raises.

        The calls are made in a thread of their own: a thread's first send finds no
        leftover page fragment, so what a fault cuts off does not depend on history.
        """
        with self.protocol.pair(calls) as (here, there):
            if self.prepare:
                self.prepare(here, there)
            called = threading.Event()
            results: list[int | str] = []
            errors: list[BaseException] = []
            marked: list[bytes] = []

            def send() -> None:
                try:
                    results.extend(self.act(here.fileno(), flags))
                except BaseException as err:
                    errors.append(err)
                finally:
                    called.set()
                    marked.extend(self._finish(here, errors))

            thread = threading.Thread(target=send, daemon=True)
            thread.start()
            if self.hold:
                called.wait(2 * PATIENCE)
            try:
                received, control = self._receive(calls, there)
            finally:
                thread.join(2 * PATIENCE)
            if thread.is_alive():
                raise Silence(f"{self.protocol.name}: a call did not return")
            if errors:
                raise errors[0]
            if self.protocol.stream and marked:
                (stream,) = received
                if not stream.endswith(_MARKER):
                    raise AssertionError(f"{self.protocol.name}: the stream lost its end")
                received = (stream.removesuffix(_MARKER),)
            return Seen(tuple(results), received, control)

    def _finish(self, here: socket.socket, errors: list[BaseException]) -> list[bytes]:
        """Say that nothing more comes; the marker, if the socket takes one."""
        try:
            here.sendall(_MARKER)
            if self.protocol.stream:
                here.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            return []
        except OSError as err:
            errors.append(err)
        return [_MARKER]

    def _receive(
        self, calls: Calls, there: socket.socket
    ) -> tuple[tuple[bytes, ...], tuple[ControlMessage, ...]]:
        parts: list[bytes] = []
        control: list[ControlMessage] = []
        while True:
            try:
                got = calls.recvmsg(there.fileno(), _RECEIVE, control=self.control, address=0)
            except BlockingIOError:
                size = sum(map(len, parts))
                raise Silence(
                    f"{self.protocol.name}: after {size} bytes in {len(parts)} pieces "
                    f"nothing came for {PATIENCE} s"
                ) from None
            control += map(_take_descriptors, got.control)
            if self.protocol.stream and not got.data:
                break
            if not self.protocol.stream and got.data.endswith(_MARKER):
                # AF_VSOCK ends no record that it took only a part of.
                parts += filter(None, [got.data.removesuffix(_MARKER)])
                break
            parts.append(got.data)
        return (b"".join(parts),) if self.protocol.stream else tuple(parts), tuple(control)


def identity(fd: int) -> bytes:
    """What tells an open file from another one."""
    found = os.fstat(fd)
    return f"{found.st_dev}:{found.st_ino}".encode()


def _take_descriptors(message: ControlMessage) -> ControlMessage:
    """Close the descriptors that came along, and keep what they were."""
    if (message.level, message.type) != (socket.SOL_SOCKET, socket.SCM_RIGHTS):
        return message
    descriptors = array.array("i", message.data)
    kept = replace(message, data=b" ".join(map(identity, descriptors)))
    for fd in descriptors:
        os.close(fd)
    return kept


def each_call(
    calls: Calls, sender: Sender, *batches: Sequence[Segment], extra: int = 0
) -> Callable[[int, int], Sequence[int | str]]:
    """For :attr:`Attempt.act`: one call after the other, each with its segments."""
    return lambda fd, flags: [
        outcome(sender, calls, fd, segments, flags | extra) for segments in batches
    ]


def fill(
    calls: Calls, sender: Sender, data: bytes, record: int
) -> Callable[[int, int], Sequence[int | str]]:
    """For :attr:`Attempt.act`: non-blocking calls until one takes nothing.

    With ``record`` each sends so many bytes, else as much as there is left.
    """

    def act(fd: int, flags: int) -> Sequence[int | str]:
        results: list[int | str] = []
        at = 0
        while True:
            piece = Segment.of(data[at : at + record] if record else data[at:])
            result = outcome(sender, calls, fd, [piece], flags | socket.MSG_DONTWAIT)
            results.append(result)
            if isinstance(result, str) or not piece.length:
                return results
            at += result

    return act
