# SPDX-License-Identifier: GPL-2.0-only
"""Talk to QEMU's monitor (QMP): one JSON object per line, answers and events mixed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any

#: Events that end or stop a guest, and what they mean to us.
_LINE_MAX = 1 << 20


class QmpError(Exception):
    """The monitor refused a command, is gone, or speaks nonsense."""


class Qmp:
    """A connected monitor.  Events collect in :attr:`events`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._answers: dict[int, dict[str, Any]] = {}
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self.closed = False
        sock.setblocking(False)

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self.closed = True
        self._sock.close()

    def pump(self) -> None:
        """Take what has arrived; never waits."""
        while not self.closed:
            try:
                data = self._sock.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        if len(rest) > _LINE_MAX:
            self.closed = True
        self._buffer = bytearray(rest)
        for line in lines:
            self._take(bytes(line))

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        if "event" in message:
            self.events.append(message)
        elif isinstance(number := message.get("id"), int):
            self._answers[number] = message

    def send(self, command: str, arguments: Mapping[str, Any] | None = None) -> int:
        """Send a command without waiting; returns its number."""
        self._number += 1
        message: dict[str, Any] = {"execute": command, "id": self._number}
        if arguments:
            message["arguments"] = dict(arguments)
        try:
            self._sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError as err:
            self.closed = True
            raise QmpError(f"{command}: the monitor is gone: {err.strerror}") from err
        return self._number

    def call(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float = 5.0,
    ) -> Any:
        """Send a command and return its answer.  Raises QmpError after ``timeout`` seconds."""
        number = self.send(command, arguments)
        deadline = time.monotonic() + timeout
        while number not in self._answers:
            self.pump()
            if number in self._answers:
                break
            if self.closed:
                raise QmpError(f"{command}: the monitor is gone")
            if time.monotonic() > deadline:
                raise QmpError(f"{command}: no answer within {timeout:g} s")
            time.sleep(0.002)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise QmpError(f"{command}: {answer['error'].get('desc', 'refused')}")
        return answer.get("return")

    def event(self, name: str) -> dict[str, Any] | None:
        """The data of the last event called ``name``, or None."""
        for message in reversed(self.events):
            if message["event"] == name:
                data = message.get("data", {})
                return data if isinstance(data, dict) else {}
        return None

    def status(self) -> str:
        """QEMU's run state, "running", "paused", "internal-error" ...; empty if unknown."""
        try:
            return str(self.call("query-status", timeout=2.0)["status"])
        except (QmpError, TypeError, KeyError):
            return ""
