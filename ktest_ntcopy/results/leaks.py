# SPDX-License-Identifier: GPL-2.0-only
"""What kmemleak reports, and which command of a guest lost it.

kmemleak says when an object was allocated in jiffies.  The guest's agent prints jiffies
before and after it waits for objects to be old enough; with the times at which it did, a
moment on the clock of printk is found for any count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ktest_ntcopy.machine.base import Chunk

_OBJECT = re.compile(r"unreferenced object 0x[0-9a-f]+ \(size (\d{1,12})\):$")
_OWNER = re.compile(r' +comm "(.*)", pid (\d{1,10}), jiffies (\d{1,20})')
_FRAME = re.compile(r" +(?:\[<[0-9a-f]+>\] )?([A-Za-z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+")
_JIFFIES = re.compile(rb"^jiffies (\d{1,20})$", re.MULTILINE)
#: How allocators' own functions begin; a leak is named after who called them.
_ALLOCATORS = ("kmem_cache_", "kmalloc", "__kmalloc", "kvmalloc", "__kvmalloc", "__vmalloc")


@dataclass(frozen=True)
class Leak:
    """An object that nobody refers to."""

    size: int  #: bytes
    comm: str  #: task that allocated it
    pid: int
    time: float  #: when, seconds on printk's clock; -1 if it cannot be known
    frames: tuple[str, ...]  #: functions, innermost first
    lines: tuple[str, ...]  #: as kmemleak printed it

    @property
    def site(self) -> str:
        """The function, with parentheses, that allocated it, past the allocator's own."""
        callers = (f"{f}()" for f in self.frames if not f.startswith(_ALLOCATORS))
        return next(callers, "an unknown place")

    def __str__(self) -> str:
        """One line."""
        return f'{self.size} bytes from {self.site} by "{self.comm}" (pid {self.pid})'


def read_leaks(output: Sequence[Chunk]) -> tuple[Leak, ...]:
    """The leaks in what the agent's command printed; unknown lines are passed over."""
    text = b"".join(chunk.data for chunk in output).decode("utf-8", "backslashreplace")
    clock = _Clock.read(output)
    return tuple(_leak(lines, clock) for lines in _objects(text.splitlines()))


@dataclass(frozen=True)
class _Clock:
    """Jiffies as seconds on printk's clock."""

    jiffies: int
    time: float
    rate: float  #: jiffies per second; 0 if not known

    @classmethod
    def read(cls, output: Sequence[Chunk]) -> _Clock:
        seen = [
            (int(found[1]), chunk.time)
            for chunk in output
            for found in _JIFFIES.finditer(chunk.data)
        ]
        if len(seen) < 2 or seen[-1][1] <= seen[0][1]:
            return cls(0, 0.0, 0.0)
        (first, began), (last, ended) = seen[0], seen[-1]
        return cls(last, ended, (last - first) / (ended - began))

    def seconds(self, jiffies: int) -> float:
        return self.time - (self.jiffies - jiffies) / self.rate if self.rate > 0 else -1.0


def _objects(lines: Iterable[str]) -> Iterator[list[str]]:
    current: list[str] = []
    for line in lines:
        if _OBJECT.match(line):
            if current:
                yield current
            current = [line]
        elif current:
            current.append(line)
    if current:
        yield current


def _leak(lines: list[str], clock: _Clock) -> Leak:
    head = _OBJECT.match(lines[0])
    assert head is not None
    owner = next((found for line in lines if (found := _OWNER.match(line))), None)
    return Leak(
        size=int(head[1]),
        comm=owner[1] if owner else "?",
        pid=int(owner[2]) if owner else 0,
        time=clock.seconds(int(owner[3])) if owner else -1.0,
        frames=tuple(found[1] for line in lines if (found := _FRAME.match(line))),
        lines=tuple(lines),
    )
