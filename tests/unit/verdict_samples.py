# SPDX-License-Identifier: GPL-2.0-only
"""A case, the ways in which its run can end, and its verdict."""

from __future__ import annotations

from collections.abc import Sequence

from ktest_ntcopy.machine.base import Chunk, ConsoleLine, End, Outcome
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.results.verdict import Case

NAME = "tcp6.payload"
WARN = (
    "[    9.000000] ------------[ cut here ]------------",
    "[    9.000001] WARNING: CPU: 0 PID: 4 at net/core/stream.c:212 sk_stream_kill_queues+0x5/0x6",
    "[    9.000002] Call Trace:",
    "[    9.000003]  tcp_close+0x1/0x2",
    "[    9.000004] ---[ end trace 0000000000000000 ]---",
)
PANIC = ("[   10.000000] Kernel panic - not syncing: Fatal exception",)


def case(name: str = NAME, allowed: Sequence[str] = ()) -> Case:
    """A case with something in every field."""
    return Case(
        target="kselftest.net",
        program="msg_ntcopy",
        case=name,
        reproducer="pytest --kernel=vmlinux -k tcp6",
        nodeid="n::id",
        worker="gw1",
        attempt=2,
        properties={"feature": "msg_ntcopy"},
        allowed_splats=allowed,
    )


def outcome(
    output: str | bytes = "",
    *,
    end: End = End.EXITED,
    exit_code: int | None = 0,
    signal: int | None = None,
    console: Sequence[str] = (),
    detail: str = "",
    limit: float = 0.0,
) -> Outcome:
    """How its run ended; a line of the console a second."""
    data = output.encode() if isinstance(output, str) else output
    return Outcome(
        end=end,
        exit_code=exit_code if end is End.EXITED else None,
        signal=signal,
        output=(Chunk(1.0, data),),
        console=tuple(ConsoleLine(float(n), x) for n, x in enumerate(console)),
        start=1000.0,
        duration=2.5,
        limit=limit,
        detail=detail,
    )


def verdict(result: Result) -> tuple[Status, Cause]:
    """The two fields that the run's outcome depends on."""
    return result.status, result.cause


def ktap(line: str, before: str = "") -> str:
    """What a program prints whose only result is ``line``."""
    return f"TAP version 13\n1..1\n{before}{line}\n"
