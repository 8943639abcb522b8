# SPDX-License-Identifier: GPL-2.0-only
"""Read what KUnit printed while a kernel booted.  Pure functions.

Accepted format, after the printk prefix; any other line may come in between::

    KTAP version 1
    1..N                                  suites that the filter let through
        KTAP version 1
        # Subtest: SUITE
        1..M                              cases
            KTAP version 1                of a case with parameters only
            # Subtest: CASE
            ok 1 PARAMETER
        # CASE: EXPECTATION FAILED at FILE:LINE
        Expected a == b, but
            a == 1 (0x1)
        ok 1 CASE [# SKIP reason]
    ok 1 SUITE
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ktest_ntcopy.machine.base import Chunk, ConsoleLine, End, Outcome

from .ktap import Directive, Document, Point, parse_all
from .model import Cause, Status
from .splats import strip_printk
from .verdict import Claim, claim_of_point

_INDENT = " " * 4
_HEADER = re.compile(r"KTAP version [0-9]+\s*$")
_PLAN = re.compile(_INDENT + r"1\.\.([0-9]{1,9})\s*$")
_FAILED = re.compile(r"\s*# \S+: (?:EXPECTATION|ASSERTION) FAILED at (\S+)\s*$")
_TIMED_OUT = re.compile(r"\s*# \S+: test case (?:cleanup )?timed out\s*$")
_REMARK = re.compile(r"\s*# \S+: (?!pass:[0-9]+ fail:[0-9]+ )(.*\S)\s*$")
_STRUCTURE = re.compile(r"\s*(?:(?:not )?ok [0-9]|# |KTAP version |1\.\.[0-9])")
#: Lines of one failed expectation that its message takes.
_EXPLANATION = 8


@dataclass(frozen=True, kw_only=True)
class KernelCase:
    """One case that the kernel reported."""

    point: Point
    lines: tuple[ConsoleLine, ...]  #: printed since the verdict before, its own included
    began: float  #: host clock (time.monotonic) of the verdict before

    @property
    def name(self) -> str:
        """Name of the C function."""
        return self.point.name


@dataclass(frozen=True, kw_only=True)
class SuiteLog:
    """What one boot says about one suite.

    ``head`` is what was printed from KUnit's start to the first case, ``tail`` what came
    after the last verdict on a case; splats and panics in them belong to no case that ended.
    """

    started: bool = False  #: KUnit got as far as saying so
    suites: int | None = None  #: suites that ran, by the kernel's own plan
    plan: int | None = None  #: cases that were to run; None if the suite did not begin
    cases: tuple[KernelCase, ...] = ()
    verdict: Point | None = None  #: on the whole suite
    head: tuple[ConsoleLine, ...] = ()
    tail: tuple[ConsoleLine, ...] = ()
    problems: tuple[str, ...] = ()  #: how the log contradicts itself

    @property
    def absent(self) -> bool:
        """KUnit ran, but this kernel has no such suite or case."""
        return self.started and self.suites == 0 and self.plan is None and self.verdict is None

    def named(self, name: str) -> tuple[KernelCase, ...]:
        """The reports on one case: one, unless the kernel lies."""
        return tuple(c for c in self.cases if c.name == name)


def read_suite(lines: Sequence[ConsoleLine], suite: str) -> SuiteLog:
    """Find a suite in the console of a boot, which may end anywhere.  Never raises."""
    texts = _texts(lines)
    start = next((i for i, t in enumerate(texts) if _HEADER.match(t)), None)
    if start is None:
        return SuiteLog()
    documents = parse_all("\n".join(texts[start:]))
    document = next((d for d in documents if _has(d, suite)), documents[0])
    verdicts = document.named(suite)
    points: tuple[Point, ...] = ()
    if verdicts:
        points = verdicts[0].children
    elif document.unfinished is not None:
        points = document.unfinished.points
    planned = next(
        ((i, m) for i, t in enumerate(texts) if i > start and (m := _PLAN.match(t))), None
    )
    problems = [p.message for p in document.problems]
    if len(documents) > 1:
        problems.append("KUnit started more than once")
    if len(verdicts) > 1:
        problems.append(f"{len(verdicts)} verdicts on the suite")
    first = start + min((p.line for p in points), default=len(texts)) - 1
    before = planned[0] if planned and planned[0] < first else start
    head = tuple(lines[start : before + 1])
    cases = []
    for point in sorted(points, key=lambda p: p.line):
        at = start + point.line - 1
        part = tuple(lines[before + 1 : at + 1])
        cases.append(KernelCase(point=point, lines=part, began=lines[before].time))
        before = at
    return SuiteLog(
        started=True,
        suites=document.plan,
        plan=int(planned[1][1]) if planned else None,
        cases=tuple(cases),
        verdict=verdicts[0] if verdicts else None,
        head=head,
        tail=tuple(lines[before + 1 :]),
        problems=tuple(problems),
    )


def read_names(lines: Sequence[ConsoleLine], suite: str) -> tuple[str, ...]:
    """Cases in the order they run in, from the console of a boot with ``kunit.action=list``."""
    prefix = f"{suite}."
    texts = [t.strip() for t in _texts(lines)]
    start = next((i for i, t in enumerate(texts) if _HEADER.match(t)), len(texts))
    return tuple(
        t.removeprefix(prefix) for t in texts[start:] if t.startswith(prefix) and " " not in t
    )


def outcome(
    lines: Sequence[ConsoleLine],
    *,
    end: End = End.EXITED,
    detail: str = "",
    start: float = 0.0,
    duration: float = 0.0,
) -> Outcome:
    """A stretch of a boot as an outcome; the output is what KUnit printed there."""
    said = [t.removeprefix(_INDENT) for t in _texts(lines) if t.startswith(_INDENT)]
    data = "".join(f"{t}\n" for t in said).encode("utf-8", "backslashreplace")
    return Outcome(
        end=end,
        output=(Chunk(0.0, data),) if data else (),
        console=tuple(lines),
        start=start,
        duration=duration,
        detail=detail,
    )


def claim_of_case(reports: Sequence[KernelCase]) -> Claim:
    """What the kernel says about one case; ``reports`` are all it made on it, at least one."""
    if len(reports) > 1:
        text = f"{len(reports)} verdicts on {reports[0].name}, expected one"
        return Claim(Status.ERROR, Cause.MALFORMED, text)
    case = reports[0]
    failed = [p.name for p in case.point.children if not p.ok and p.directive is not Directive.SKIP]
    listed = ", ".join(failed[:5]) + (f" and {len(failed) - 5} more" if len(failed) > 5 else "")
    claim = claim_of_point(case.point)
    if claim.status is not Status.FAIL:
        if failed:
            text = f"'{claim.status}' contradicts the verdict on its parameter {listed}"
            return Claim(Status.ERROR, Cause.MALFORMED, text)
        return claim
    cause, message = _complaint(_texts(case.lines))
    if failed:
        message += f" (failed for {listed})"
    return Claim(Status.FAIL, cause, message)


def claim_of_suite(log: SuiteLog, known: Collection[str]) -> Claim:
    """Whether a suite that was not cut short is consistent and has no case but the known ones.

    Failed cases are not counted: they have verdicts of their own.
    """
    extra = [c for c in log.cases if c.name not in known]
    if extra:
        told = ", ".join(f"{c.name} ({claim_of_point(c.point).status})" for c in extra)
        text = f"the kernel ran cases that the feature file does not list: {told}"
        return Claim(Status.FAIL, Cause.MALFORMED, text)
    if log.verdict is None:
        return Claim(Status.ERROR, Cause.NO_VERDICT, "no verdict on the suite")
    if log.problems:
        return Claim(Status.ERROR, Cause.MALFORMED, "; ".join(log.problems[:5]))
    if not log.cases:
        return failed_to_begin(log)
    failed = any(not c.point.ok for c in log.cases)
    if not log.verdict.ok and not failed:
        said = _last_word(log.verdict)
        return Claim(Status.FAIL, Cause.ASSERTION, f"the suite failed, but no case did: {said}")
    if log.verdict.ok and failed:
        text = "the suite is reported as ok although a case failed"
        return Claim(Status.ERROR, Cause.MALFORMED, text)
    return Claim(Status.PASS)


def failed_to_begin(log: SuiteLog) -> Claim:
    """The claim on every case of a suite that has a verdict, but ran no case."""
    said = _last_word(log.verdict) if log.verdict else "no verdict on the suite"
    return Claim(Status.FAIL, Cause.ASSERTION, f"the suite ran no case: {said}")


def _texts(lines: Sequence[ConsoleLine]) -> list[str]:
    return [strip_printk(x.text)[0] for x in lines]


def _has(document: Document, suite: str) -> bool:
    return bool(document.named(suite)) or document.unfinished is not None


def _complaint(texts: Sequence[str]) -> tuple[Cause, str]:
    """Why a case failed: its first expectation that did, else its last remark."""
    for number, text in enumerate(texts):
        if found := _FAILED.match(text):
            # What starts at the margin is the rest of the kernel, talking in between.
            inner = (t for t in texts[number + 1 :] if t.startswith(_INDENT))
            rest = takewhile(lambda t: not _STRUCTURE.match(t), inner)
            told = " ".join(t.strip() for _, t in zip(range(_EXPLANATION), rest, strict=False))
            return Cause.ASSERTION, f"{found[1]}: {told}" if told else found[1]
    if any(_TIMED_OUT.match(t) for t in texts):
        return Cause.TIMEOUT, "over KUnit's own time limit"
    remarks = [m[1] for m in map(_REMARK.match, texts) if m]
    return Cause.ASSERTION, remarks[-1] if remarks else "failed without a word"


def _last_word(point: Point) -> str:
    said = [" ".join(t.replace("#", " ").split()) for t in point.diagnostics]
    return next((t for t in reversed(said) if t), "it does not say why")
