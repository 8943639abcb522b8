# SPDX-License-Identifier: GPL-2.0-only
"""A run as text for a terminal: counts, what failed and why, one line of summary."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from ktest_ntcopy.machine.base import ConsoleLine
from ktest_ntcopy.results.journal import Run
from ktest_ntcopy.results.model import Result, Status
from ktest_ntcopy.results.splats import detect, serious
from ktest_ntcopy.results.text import clean, one_line

_COLUMNS = (Status.PASS, Status.FAIL, Status.ERROR, Status.SKIP, Status.XFAIL, Status.XPASS)
_COLOURS = {
    Status.PASS: "32",
    Status.FAIL: "31",
    Status.ERROR: "31",
    Status.XPASS: "31",
    Status.SKIP: "33",
    Status.XFAIL: "33",
}
#: Console lines shown with a failure, so that a screen holds more than one.
_CONSOLE_LINES = 12
_WIDTH_MIN = 40


def to_table(run: Run, *, width: int | None = None, colour: bool = False) -> str:
    """The whole report, ended by a line feed.

    ``width`` is in columns; the terminal's if None.  Names are cut to fit; reproducers
    never are, because they are there to be copied.
    """
    width = max(_WIDTH_MIN, width or shutil.get_terminal_size((80, 24)).columns)
    paint = _Paint(colour)
    cases = run.cases()
    blocks = [_counts(cases, width, paint), *_failures(cases, width, paint)]
    if skipped := _skips(cases, width, paint):
        blocks.append(skipped)
    blocks += [[paint("33", one_line(f"journal: {p}", width))] for p in run.problems[:10]]
    blocks.append([_summary(run, cases, paint)])
    return "\n".join("\n".join(block) + "\n" for block in blocks if block)


class _Paint:
    """Wraps text in a colour, or does not."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on else text


def _counts(cases: Sequence[Result], width: int, paint: _Paint) -> list[str]:
    """One row per program and, indented, one per fixture and variant."""
    columns = [s for s in _COLUMNS if any(c.status is s for c in cases)]
    rows: list[tuple[str, Counter[Status]]] = []
    programs: dict[str, dict[str, Counter[Status]]] = {}
    for case in cases:
        groups = programs.setdefault(one_line(f"{case.target}: {case.program}"), {})
        groups.setdefault(_group(case.case), Counter())[case.status] += 1
    for program, groups in programs.items():
        total: Counter[Status] = Counter()
        for counter in groups.values():
            total.update(counter)
        rows.append((program, total))
        if list(groups) != [""]:
            rows += [(f"  {group or '(alone)'}", counter) for group, counter in groups.items()]
    if not rows:
        return []
    cells = max(5, *(len(str(n)) for _, counter in rows for n in counter.values())) + 1
    room = max(12, width - cells * len(columns))
    names = min(room, max(len(name) for name, _ in rows))
    lines = [" " * names + "".join(f"{s.value:>{cells}}" for s in columns)]
    for name, counter in rows:
        line = f"{_fitted(name, names):<{names}}"
        for status in columns:
            count = counter[status]
            cell = f"{count or '.':>{cells}}"
            line += paint(_COLOURS[status], cell) if count else cell
        lines.append(line)
    return lines


def _fitted(name: str, limit: int) -> str:
    """A row's name cut to ``limit`` columns; the indentation is part of it."""
    indent = name[: len(name) - len(name.lstrip(" "))]
    return indent + one_line(name, max(4, limit - len(indent)))


def _failures(cases: Sequence[Result], width: int, paint: _Paint) -> Iterable[list[str]]:
    for case in cases:
        if case.status.ok:
            continue
        word = paint("1;" + _COLOURS[case.status], case.status.value.upper())
        block = [f"{word} {one_line(case.program)} {one_line(case.case)} [{case.cause.value}]"]
        block += _wrapped(case.message, width)
        block += [f"  | {x}"[:width] for x in _console(case.console)]
        if case.reproducer:
            block.append(f"  $ {one_line(case.reproducer, 4000)}")
        yield block


def _console(text: str) -> list[str]:
    """The beginning of the first serious splat; without one, the end of the console."""
    lines = [x for x in clean(text).expandtabs().split("\n") if x.strip()]
    splats = serious(detect(ConsoleLine(0.0, x) for x in lines))
    shown = splats[0].lines[:_CONSOLE_LINES] if splats else lines[-_CONSOLE_LINES:]
    left_out = len(lines) - len(shown)
    return [*shown, *([f"... {left_out} more console lines are in the report"] if left_out else [])]


def _skips(cases: Sequence[Result], width: int, paint: _Paint) -> list[str]:
    """Skip reasons, each once with its count: a skip without its reason hides a gap."""
    reasons = Counter(one_line(c.message) for c in cases if c.status is Status.SKIP)
    return [
        f"{paint('33', 'SKIP')} {one_line(f'{count} x {reason}', max(20, width - 5))}"
        for reason, count in reasons.most_common(20)
    ]


def _summary(run: Run, cases: Sequence[Result], paint: _Paint) -> str:
    totals = Counter(c.status for c in cases)
    counted = [f"{totals[s]} {s.value}" for s in _COLUMNS if totals[s]]
    bad = not cases or any(not c.status.ok for c in cases)
    head = f"{len(cases)} cases: " + ", ".join(counted) if cases else "no case was run"
    header = run.header
    facts = []
    if header.release:
        facts.append(f"Linux {header.release} {header.arch}".rstrip())
    if header.accel:
        slowdown = f" (x{header.slowdown:.1f})" if header.slowdown else ""
        facts.append(f"{header.machine} {header.accel}".strip() + slowdown)
    if seconds := _elapsed(run):
        facts.append(f"{seconds:.1f} s")
    line = "; ".join([head, *(one_line(f) for f in facts)])
    return paint("1;31" if bad else "1;32", line)


def _elapsed(run: Run) -> float:
    """Seconds from the run's start to the end of the last case."""
    ends = [r.start + r.duration for r in run.results if r.start]
    begin = run.header.start or min((r.start for r in run.results if r.start), default=0.0)
    return max(0.0, max(ends) - begin) if ends else 0.0


def _wrapped(message: str, width: int) -> list[str]:
    return textwrap.wrap(one_line(message), width, initial_indent="  ", subsequent_indent="    ")


def _group(case: str) -> str:
    """Fixture and variant: all but the last part of the name."""
    return one_line(case.rpartition(".")[0])
