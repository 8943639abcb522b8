# SPDX-License-Identifier: GPL-2.0-only
"""Frames between the host and the guest agent, as ``guest/protocol.h`` lays them down.

Pure: bytes in, messages out.  Whatever is not a frame is skipped and counted,
because a test with root rights can write into the agent's files.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

PORT_NAME = "ktest.ctl"
SHARE_TAG = "ktest.host"
FATAL_MARK = "ktest-agent: fatal: "

VERSION = 1
REQUEST_MAX = 262144
REPLY_MAX = 16384
ARGS_MAX = 1024
HELLO_SHARE = 1

#: Seconds; the agent counts nanoseconds in 64 bits.
_LIMIT_MAX = 1e9

_HEADER = struct.Struct("<III")
_HELLO = struct.Struct("<II")
_RUN = struct.Struct("<QQIIII")
_PING = struct.Struct("<I")
_READY = struct.Struct("<QQQII")
_STARTED = struct.Struct("<QII")
_OUTPUT = struct.Struct("<QII")
_EXIT = struct.Struct("<QIIiI")
_PONG = struct.Struct("<I")


class Kind(enum.IntEnum):
    """Type of a frame."""

    HELLO = 1
    RUN = 2
    PING = 3
    READY = 16
    STARTED = 17
    OUTPUT = 18
    EXIT = 19
    PONG = 20


class Reason(enum.IntEnum):
    """Why a command is over."""

    EXITED = 1
    SIGNALED = 2
    TIMEOUT = 3
    FLOOD = 4
    REFUSED = 5


@dataclass(frozen=True)
class Ready:
    """The agent answers.  Times in seconds."""

    version: int
    time: float
    compute: float
    kernel: float
    release: str
    kernel_version: str
    arch: str


@dataclass(frozen=True)
class Started:
    id: int
    pid: int
    time: float


@dataclass(frozen=True)
class Output:
    id: int
    time: float
    data: bytes


@dataclass(frozen=True)
class Exit:
    """The command is over; ``stuck`` processes survive even SIGKILL."""

    id: int
    reason: Reason
    value: int
    stuck: int
    time: float
    note: str


@dataclass(frozen=True)
class Pong:
    sequence: int


Message = Ready | Started | Output | Exit | Pong


def _frame(token: int, kind: Kind, payload: bytes) -> bytes:
    return _HEADER.pack(token, len(payload), kind) + payload


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError(f"{text!r} holds a NUL character")
    return data + b"\0"


def hello(token: int, *, share: bool) -> bytes:
    """First frame to the agent; it uses ``token`` from then on."""
    return _frame(token, Kind.HELLO, _HELLO.pack(VERSION, HELLO_SHARE if share else 0))


def ping(token: int, sequence: int) -> bytes:
    return _frame(token, Kind.PING, _PING.pack(sequence & 0xFFFFFFFF))


def run(
    token: int,
    *,
    id: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    root: str,
    cwd: str,
    limit: float,
    output_limit: int,
) -> bytes:
    """Ask for a command.  ``limit`` in seconds.  Raises ValueError for what cannot be sent."""
    if not argv:
        raise ValueError("the command has no words")
    if len(argv) > ARGS_MAX or len(env) > ARGS_MAX:
        raise ValueError(f"more than {ARGS_MAX} arguments or variables")
    strings = [root, cwd, *argv, *(f"{name}={value}" for name, value in env.items())]
    limit_ms = max(1, round(min(limit, _LIMIT_MAX) * 1000))
    fixed = _RUN.pack(limit_ms, max(0, output_limit), id, len(argv), len(env), 0)
    payload = fixed + b"".join(map(_string, strings))
    if len(payload) > REQUEST_MAX:
        raise ValueError(f"command and environment are longer than {REQUEST_MAX} bytes")
    return _frame(token, Kind.RUN, payload)


def _strings(payload: bytes) -> list[str]:
    return [part.decode("utf-8", "backslashreplace") for part in payload.split(b"\0")]


def decode(kind: int, payload: bytes) -> Message | None:
    """One message of the guest, or None if this is not one."""
    try:
        match kind:
            case Kind.READY:
                time, compute, kernel, version, _ = _READY.unpack_from(payload)
                release, kernel_version, arch = _strings(payload[_READY.size :])[:3]
                return Ready(
                    version, time / 1e9, compute / 1e9, kernel / 1e9, release, kernel_version, arch
                )
            case Kind.STARTED:
                time, id, pid = _STARTED.unpack(payload)
                return Started(id, pid, time / 1e9)
            case Kind.OUTPUT:
                time, id, _ = _OUTPUT.unpack_from(payload)
                return Output(id, time / 1e9, payload[_OUTPUT.size :])
            case Kind.EXIT:
                time, id, reason, value, stuck = _EXIT.unpack_from(payload)
                note = _strings(payload[_EXIT.size :])[0]
                return Exit(id, Reason(reason), value, stuck, time / 1e9, note)
            case Kind.PONG:
                return Pong(*_PONG.unpack(payload))
    except (struct.error, ValueError):
        pass
    return None


class Decoder:
    """Cut a byte stream into messages of the guest.

    ``noise`` counts bytes that belonged to no message.
    """

    def __init__(self, token: int) -> None:
        self._mark = _HEADER.pack(token, 0, 0)[:4]
        self._buffer = bytearray()
        self.noise = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield every message that is complete now."""
        self._buffer += data
        while self._synchronise() and len(self._buffer) >= _HEADER.size:
            _, length, kind = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + length
            if length <= REPLY_MAX and len(self._buffer) < end:
                return
            message = None
            if length <= REPLY_MAX:
                message = decode(kind, bytes(self._buffer[_HEADER.size : end]))
            if message is None:
                self._skip(1)
                continue
            del self._buffer[:end]
            yield message

    def _synchronise(self) -> bool:
        """Drop bytes up to the next token; False if there is none yet."""
        at = self._buffer.find(self._mark)
        if at < 0:
            # Its first bytes may be the last ones we have.
            keep = next(
                (n for n in (3, 2, 1) if self._buffer.endswith(self._mark[:n])),
                0,
            )
            self._skip(len(self._buffer) - keep)
            return False
        self._skip(at)
        return True

    def _skip(self, count: int) -> None:
        self.noise += count
        del self._buffer[:count]
