# SPDX-License-Identifier: GPL-2.0-only
"""Consoles as KUnit of Linux 6.12 leaves them."""

from __future__ import annotations

from collections.abc import Iterable

from ktest_ntcopy.machine.base import ConsoleLine

BEFORE = ("Linux version 6.12.117 (user@host)", "smp: Brought up 1 node, 2 CPUs")
AFTER = ("Freeing unused kernel image (initmem) memory: 1060K", "Run /init as init process")
PANIC = (
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "Oops: Oops: 0002 [#1] SMP",
    "RIP: 0010:demo_breaks+0x12/0x40",
    "Kernel panic - not syncing: Fatal exception",
)
WARNING = (
    "------------[ cut here ]------------",
    "WARNING: CPU: 0 PID: 41 at net/core/demo.c:7 demo_warns+0x10/0x20",
    "CPU: 0 UID: 0 PID: 41 Comm: kunit_try_catch Not tainted 6.12.117 #1",
    "Call Trace:",
    " demo_warns+0x10/0x20",
    "---[ end trace 0000000000000000 ]---",
)


def head(suites: int = 1) -> list[str]:
    """What KUnit says first."""
    return ["KTAP version 1", f"1..{suites}"]


def begin(suite: str, cases: int) -> list[str]:
    """A suite up to its first case."""
    return [
        "    KTAP version 1",
        f"    # Subtest: {suite}",
        "    # module: demo",
        f"    1..{cases}",
    ]


def ok(number: int, name: str) -> list[str]:
    return [f"    ok {number} {name}"]


def skipped(number: int, name: str, reason: str) -> list[str]:
    return [f"    ok {number} {name} # SKIP {reason}"]


def failed(number: int, name: str, where: str = "net/core/demo.c:12") -> list[str]:
    return [
        f"    # {name}: EXPECTATION FAILED at {where}",
        "    Expected got == want, but",
        "        got == 1 (0x1)",
        "        want == 2 (0x2)",
        f"    not ok {number} {name}",
    ]


def parameterised(number: int, name: str, **params: bool) -> list[str]:
    lines = ["        KTAP version 1", f"        # Subtest: {name}"]
    for at, (param, well) in enumerate(params.items(), 1):
        if not well:
            lines += failed(at, name)[:-1]
        lines.append(f"        {'' if well else 'not '}ok {at} {param}")
    bad = sum(not well for well in params.values())
    total = len(params)
    lines.append(f"    # {name}: pass:{total - bad} fail:{bad} skip:0 total:{total}")
    return [*lines, f"    {'not ' if bad else ''}ok {number} {name}"]


def end(suite: str, *, well: bool = True) -> list[str]:
    return [f"# {suite}: pass:1 fail:0 skip:0 total:1", f"{'' if well else 'not '}ok 1 {suite}"]


def console(lines: Iterable[str], *, start: float = 100.0) -> tuple[ConsoleLine, ...]:
    """Lines with printk's time stamps, a tenth of a second apart."""
    return tuple(
        ConsoleLine(start + n / 10, f"[{n / 10:12.6f}] {line}") for n, line in enumerate(lines)
    )
