# SPDX-License-Identifier: GPL-2.0-only
"""The guest's console: bytes of any kind in, printable lines out, in bounded memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from ktest_ntcopy.machine.base import ConsoleLine
from ktest_ntcopy.machine.diagnose import DECISIVE

#: A longer line is cut into pieces of this many bytes.
LINE_MAX = 4096
#: Lines kept from the start and from the end of a window.
HEAD = 1000
TAIL = 1000
#: Lines kept from the start of a boot: tests that the kernel runs there print many.
BOOT_HEAD = 20_000
#: The log file takes this many characters, then says that it is full.
LOG_MAX = 64 << 20

_DECISIVE_MAX = 500

_UNPRINTABLE = re.compile(r"[^\t\x20-\x7e]")


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def sanitise(data: bytes) -> str:
    """Text of one line: everything that does not print becomes a visible escape."""
    return _UNPRINTABLE.sub(_escape, data.decode("utf-8", "backslashreplace"))


class Window:
    """Lines from one moment on: the first ones, the last ones, and how many fell out."""

    def __init__(self, *, head: int = HEAD, tail: int = TAIL) -> None:
        self._room = head
        self._head: list[ConsoleLine] = []
        self._tail: deque[ConsoleLine] = deque(maxlen=tail)
        self._decisive: list[str] = []
        self.dropped = 0

    def add(self, line: ConsoleLine) -> None:
        if DECISIVE.search(line.text) and len(self._decisive) < _DECISIVE_MAX:
            self._decisive.append(line.text)
        if len(self._head) < self._room:
            self._head.append(line)
            return
        if len(self._tail) == self._tail.maxlen:
            self.dropped += 1
        self._tail.append(line)

    @property
    def decisive(self) -> tuple[str, ...]:
        """Lines about panics, faults, reboots and killed processes, in order."""
        return tuple(self._decisive)

    def lines(self) -> tuple[ConsoleLine, ...]:
        gap: Iterable[ConsoleLine] = ()
        if self.dropped:
            text = f"[... {self.dropped} lines of console output left out ...]"
            gap = (ConsoleLine(self._tail[0].time, text),)
        return (*self._head, *gap, *self._tail)


class Console:
    """Split the console into lines, log them, and keep those of the current window."""

    def __init__(self, log: Path | None = None, *, log_max: int = LOG_MAX) -> None:
        self._partial = bytearray()
        self._log = log.open("w", encoding="utf-8", newline="\n") if log else None
        self._log_room = log_max
        self.window = Window(head=BOOT_HEAD)
        self.last_time = 0.0  #: time.monotonic() of the last byte
        self.log_error = ""  #: why the log is incomplete, if it is

    def restart(self) -> Window:
        """Begin a new window; the old one is no longer written to."""
        self.window = Window()
        return self.window

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes that arrived at ``now`` (time.monotonic())."""
        self.last_time = now
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._partial += part
            self._cut(now)
            self._line(bytes(self._partial), now)
            self._partial.clear()
        self._partial += rest
        self._cut(now)

    def flush(self, now: float) -> None:
        """Take an unfinished line as it is: nothing more will come."""
        if self._partial:
            self._line(bytes(self._partial), now)
            self._partial.clear()

    def close(self) -> None:
        if self._log:
            try:
                self._log.close()
            except OSError as err:
                self.log_error = self.log_error or str(err)
            self._log = None

    def _cut(self, now: float) -> None:
        while len(self._partial) > LINE_MAX:
            self._line(bytes(self._partial[:LINE_MAX]), now)
            del self._partial[:LINE_MAX]

    def _line(self, data: bytes, now: float) -> None:
        line = ConsoleLine(now, sanitise(data.rstrip(b"\r")))
        self.window.add(line)
        self._write(line.text + "\n")

    def _write(self, text: str) -> None:
        if not self._log or self.log_error:
            return
        try:
            if len(text) > self._log_room:
                self.log_error = "the console log reached its greatest size"
                text = f"[{self.log_error}]\n"
            self._log.write(text)
            self._log_room -= len(text)
            self._log.flush()
        except OSError as err:
            self.log_error = str(err)
