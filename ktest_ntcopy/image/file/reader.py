# SPDX-License-Identifier: GPL-2.0-only
"""Bytes of a file or of memory, read by position and never beyond what was asked.

Files are read with pread(2) rather than mapped: a file that shrinks under a mapping kills
the process, here it is one :class:`~ktest_ntcopy.errors.ConfigError` line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from ktest_ntcopy.errors import ConfigError

_KINDS = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISBLK, "block device"),
    (stat.S_ISCHR, "character device"),
)

_CHUNK = 1 << 20  # bytes


def kind_of_file(mode: int) -> str:
    """What a file that is no regular file is called, from its st_mode."""
    return next((name for test, name in _KINDS if test(mode)), "special file")


class Source(Protocol):
    """Something with bytes at positions."""

    path: Path  #: for messages
    size: int  #: bytes

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes.  Raises ConfigError if there are fewer."""

    def close(self) -> None:
        """Give up what the source holds."""


class FileSource:
    """A regular file.  Raises ConfigError for anything else, without waiting for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        try:
            # O_NONBLOCK: a FIFO would wait for its writer.
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            facts = os.fstat(self._fd)
        except (OSError, ValueError) as err:
            self.close()
            raise ConfigError(f"{path}: cannot be read: {_said(err)}") from err
        if not stat.S_ISREG(facts.st_mode):
            self.close()
            raise ConfigError(f"{path}: is a {kind_of_file(facts.st_mode)}, not a kernel file")
        self.size = facts.st_size

    def read(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        left = size
        try:
            while left > 0:
                part = os.pread(self._fd, left, offset)
                if not part:
                    break
                parts.append(part)
                offset += len(part)
                left -= len(part)
        except (OSError, OverflowError) as err:
            raise ConfigError(f"{self.path}: cannot be read: {_said(err)}") from err
        if left > 0:
            # Callers compare with the size at opening first, so the file has changed since.
            raise ConfigError(
                f"{self.path}: ended at byte {offset} while it was read (truncated meanwhile?); "
                "wait until it is written and run again"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class MemorySource:
    """What was unpacked from a file."""

    def __init__(self, path: Path, data: bytes | bytearray) -> None:
        self.path = path
        self.size = len(data)
        self._data = memoryview(data)

    def read(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset + size > self.size:
            raise ConfigError(
                f"{self.path}: what was unpacked ends at byte {self.size}, not at "
                f"{offset + size}; build it again"
            )
        return bytes(self._data[offset : offset + size])

    def close(self) -> None:
        """Nothing to do: the bytes may be shared."""


def occurrences(source: Source, pattern: bytes, *, start: int, size: int) -> Iterator[int]:
    """Positions of a pattern in a part of a source, read piece by piece."""
    end = min(start + size, source.size)
    overlap = len(pattern) - 1
    for at in range(start, end, _CHUNK):
        data = source.read(at, min(_CHUNK + overlap, end - at))
        inside = data.find(pattern)
        while inside >= 0:
            yield at + inside
            inside = data.find(pattern, inside + 1)


def _said(err: Exception) -> str:
    return getattr(err, "strerror", None) or str(err)
