# SPDX-License-Identifier: GPL-2.0-only
"""From what a program printed and how it ended to one :class:`Result`.

The order of authority: what happened to the machine, then what the kernel said, then
how the program ended, then what it claims.  A claim alone never makes a pass: it has to
be there exactly once, within the plan, and the exit status has to agree.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ktest_ntcopy.machine.base import End, Outcome

from .ktap import Directive, Document, Flaw, Point, Problem, parse
from .model import Cause, Result, Status
from .splats import Kind, Splat, detect, serious
from .text import clean, excerpt, excerpt_lines, one_line

#: Bounds of what a result keeps, in characters.
CONSOLE_MAX = 16 << 10
DETAIL_MAX = 64 << 10

#: Exit status of a kselftest program, by what it says.
KSFT_FAIL, KSFT_XFAIL, KSFT_XPASS, KSFT_SKIP = 1, 2, 3, 4

_END_CAUSES = {
    End.PANIC: Cause.PANIC,
    End.HANG: Cause.HANG,
    End.DOWN: Cause.DOWN,
    End.LOST: Cause.LOST,
    End.OOM: Cause.OOM,
    End.TIMEOUT: Cause.TIMEOUT,
    End.FLOOD: Cause.FLOOD,
    End.SIGNALED: Cause.SIGNAL,
}
#: Ends that say more than any splat: the splat is named beside them.
_ABOVE_SPLATS = frozenset({End.PANIC, End.HANG, End.DOWN, End.LOST, End.OOM})

# "file.c:12:test:text", as the harness prints assertions and a test's own remarks; the
# name may hold dots.
_LOGGED = re.compile(r"([^\s:]+\.[A-Za-z]+:[0-9]+:[^\s:]*:)(.+)")
_CHILD_SIGNAL = re.compile(r"\S+: Test terminated unexpectedly by signal ([0-9]{1,3})$")
_CHILD_TIMEOUT = re.compile(r"\S+: Test terminated by timeout$")
_PROGRESS = re.compile(
    r" *(?:RUN|OK|FAIL|SKIP) +\S|Starting [0-9]+ tests|Totals: |(?:PASS|FAIL)ED: "
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """The case that was asked for, and what its result should carry along."""

    target: str
    program: str
    case: str
    reproducer: str = ""
    worker: str = ""
    nodeid: str = ""
    attempt: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    allowed_splats: Sequence[str] = ()  #: see :func:`ktest_ntcopy.results.splats.serious`


@dataclass(frozen=True)
class Claim:
    """A status and why, before or after it is weighed against what else happened."""

    status: Status
    cause: Cause = Cause.NONE
    message: str = ""


def judge(
    case: Case,
    outcome: Outcome,
    document: Document | None = None,
    splats: Sequence[Splat] | None = None,
    *,
    slowdown: float = 1.0,
) -> Result:
    """The verdict on ``case`` from the outcome of the command that ran it.

    ``document`` and ``splats`` are read from the outcome unless given; ``slowdown`` is
    the machine's, for the message on a time limit.  Raises only re.error, for an
    ``allowed_splats`` pattern that is none.
    """
    if document is None:
        # What a program claimed before it was stopped counts for nothing: a flood is not read.
        document = parse(outcome.text) if outcome.end is End.EXITED else Document()
    claim = _claimed(case.case, outcome, document)
    points = document.named(case.case)
    return judge_claim(case, outcome, claim, points, splats, slowdown=slowdown)


def judge_claim(
    case: Case,
    outcome: Outcome,
    claim: Claim,
    points: Sequence[Point] = (),
    splats: Sequence[Splat] | None = None,
    *,
    slowdown: float = 1.0,
) -> Result:
    """The verdict on ``case`` from a claim that is already checked, made in ``points``.

    For tests without a program; else as :func:`judge`.
    """
    found = detect(outcome.console) if splats is None else tuple(splats)
    against = serious(found, case.allowed_splats)
    end = _ended(outcome, found, slowdown)
    verdict = _weigh(end, outcome.end, against, claim)
    return Result(
        target=case.target,
        program=case.program,
        case=case.case,
        status=verdict.status,
        cause=verdict.cause,
        message=one_line(verdict.message),
        # Cut twice: cleaning a flood takes long, and escapes make text longer.
        detail=excerpt(clean(excerpt(outcome.text, DETAIL_MAX)), DETAIL_MAX),
        console=_console(outcome, against),
        reproducer=case.reproducer,
        start=outcome.start,
        duration=outcome.duration,
        worker=case.worker,
        nodeid=case.nodeid,
        attempt=case.attempt,
        properties=_properties(
            case, outcome, points, (*against, *(s for s in found if s not in against))
        ),
    )


def could_not_boot(case: Case, message: str, console: str = "") -> Result:
    """The result of a case whose machine never came up."""
    return Result(
        target=case.target,
        program=case.program,
        case=case.case,
        status=Status.ERROR,
        cause=Cause.BOOT,
        message=one_line(message),
        console=excerpt_lines(clean(console).split("\n"), CONSOLE_MAX),
        reproducer=case.reproducer,
        worker=case.worker,
        nodeid=case.nodeid,
        attempt=case.attempt,
        properties=dict(case.properties),
    )


def signal_name(number: int | None) -> str:
    """ "SIGSEGV" for 11, "signal 200" for what has no name, "an unknown signal" for None."""
    if number is None:
        return "an unknown signal"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# -- the order of authority -----------------------------------------------------


def _weigh(end: Claim | None, how: End, against: Sequence[Splat], claim: Claim) -> Claim:
    """Set the claim against the command's end and the kernel's complaints."""
    if end is not None and how in _ABOVE_SPLATS:
        # A panic is often the consequence of the splat before it, a hang its first sign.
        # That panic itself is told already; in a hang it comes from the NMI of whoever asks.
        known = (End.PANIC, End.HANG)
        led = [s.title for s in against if s.kind is not Kind.PANIC or how not in known]
        return replace(end, message=f"{end.message}; {led[0]}") if led else end
    below = claim if end is None else end
    if not against:
        return below
    more = f" (and {len(against) - 1} more)" if len(against) > 1 else ""
    also = f"; {below.message}" if below.message else ""
    status = Status.ERROR if below.status is Status.ERROR else Status.FAIL
    return Claim(status, Cause.SPLAT, f"{against[0].title}{more}{also}")


def _ended(outcome: Outcome, found: Sequence[Splat], slowdown: float) -> Claim | None:
    """The verdict if the command did not come to an end of its own."""
    cause = _END_CAUSES.get(outcome.end)
    if cause is None:
        return None
    told = outcome.detail
    match outcome.end:
        case End.PANIC:
            panics = [s.title for s in found if s.kind is Kind.PANIC]
            message = panics[-1] if panics else told or "the kernel panicked"
        case End.TIMEOUT:
            message = f"over its time limit of {outcome.limit:.4g} s"
            if slowdown > 0 and abs(slowdown - 1) > 0.01:
                message += f" ({outcome.limit / slowdown:.4g} s x {slowdown:.2f} for this machine)"
        case End.FLOOD:
            printed = sum(len(c.data) for c in outcome.output)
            message = told or f"printed without end, stopped after {printed} bytes"
        case End.OOM:
            message = "killed by the kernel's out-of-memory killer"
        case End.SIGNALED:
            message = f"killed by {signal_name(outcome.signal)}"
        case End.HANG:
            message = told or f"the guest stopped answering after {outcome.duration:.3g} s"
        case End.DOWN:
            message = told or "the guest powered off or rebooted"
        case _:
            message = told or "the machine went away"
    return Claim(Status.ERROR, cause, message)


def _claimed(name: str, outcome: Outcome, document: Document) -> Claim:
    """What the program claims, checked against its plan and its exit status."""
    code = outcome.exit_code
    points = document.named(name)
    if not points:
        return _no_verdict(name, code, document)
    if len(points) > 1:
        return Claim(
            Status.ERROR, Cause.MALFORMED, f"{len(points)} verdicts on {name}, expected one"
        )
    verdict = claim_of_point(points[0])
    flaws = [_foreign(p) for p in document.points if p.name != name]
    flaws += [p for p in document.problems if p.level == 0]
    if flaws and verdict.status is not Status.FAIL:
        return Claim(Status.ERROR, Cause.MALFORMED, _told(flaws))
    if not _agrees(verdict.status, code):
        says = f"exit status {code}" if code is not None else "no exit status"
        contradiction = f"{says} contradicts the verdict '{verdict.status}'"
        if verdict.status is Status.FAIL:
            return replace(verdict, message=f"{verdict.message}; {contradiction}")
        return Claim(Status.FAIL, Cause.EXIT, contradiction)
    return verdict


def _no_verdict(name: str, code: int | None, document: Document) -> Claim:
    if document.plan_skip is not None and code in (0, KSFT_SKIP):
        return Claim(Status.SKIP, Cause.SKIP, document.plan_skip or "no reason given")
    if document.bail_out is not None:
        reason = document.bail_out or "no reason given"
        return Claim(Status.ERROR, Cause.BAIL_OUT, f"the program gave up: {reason}")
    if document.plan == 0:
        return Claim(
            Status.ERROR,
            Cause.NO_VERDICT,
            f"the program ran no test (plan 1..0): it knows no case named {name}",
        )
    flaws = [_foreign(p) for p in document.points]
    flaws += [p for p in document.problems if p.level == 0 and p.flaw is not Flaw.MISSING]
    if flaws:
        return Claim(Status.ERROR, Cause.MALFORMED, f"no verdict on {name}; {_told(flaws)}")
    if code:
        return Claim(Status.ERROR, Cause.EXIT, f"{_exit(code)} and no verdict on {name}")
    return Claim(Status.ERROR, Cause.NO_VERDICT, f"no verdict on {name}, exit status 0")


def claim_of_point(point: Point) -> Claim:
    """What one verdict line says."""
    reason = "" if point.reason == "unknown" else point.reason  # the harness's filler
    match point.directive:
        case Directive.SKIP:
            return Claim(Status.SKIP, Cause.SKIP, reason or "no reason given")
        case Directive.XFAIL:
            return Claim(Status.XFAIL, Cause.XFAIL, reason or _complaint(point).message)
        case Directive.XPASS:
            return _XPASS
        case Directive.TODO:
            return (
                _XPASS
                if point.ok
                else Claim(Status.XFAIL, Cause.XFAIL, reason or _complaint(point).message)
            )
        case Directive.TIMEOUT:
            return Claim(Status.FAIL, Cause.TIMEOUT, f"timed out: {reason}".rstrip(": "))
        case Directive.EXIT if reason != "0":
            return Claim(Status.FAIL, Cause.EXIT, f"exit status {reason}")
    return Claim(Status.PASS) if point.ok else _complaint(point)


_XPASS = Claim(Status.XPASS, Cause.XPASS, "passed although it is marked as expected to fail")


def _complaint(point: Point) -> Claim:
    """Cause and message of a failed point, from what was printed before it."""
    if asserted := _asserted(point.diagnostics):
        return Claim(Status.FAIL, Cause.ASSERTION, asserted)
    for line in point.diagnostics:
        if killed := _CHILD_SIGNAL.match(line):
            name = signal_name(int(killed[1]))
            return Claim(Status.FAIL, Cause.SIGNAL, f"test killed by {name}")
        if _CHILD_TIMEOUT.match(line):
            return Claim(Status.FAIL, Cause.TIMEOUT, "over the test's own time limit")
    said = [x for x in point.diagnostics if not _PROGRESS.match(x)]
    text = point.reason or (said[-1] if said else "failed without a word")
    return Claim(Status.FAIL, Cause.ASSERTION, text)


def _asserted(lines: Sequence[str]) -> str:
    """The first assertion with the remark made on it; the first remark if there is none."""
    logged = [m for m in map(_LOGGED.match, lines) if m]
    for index, match in enumerate(logged):
        if match[2].startswith("Expected "):
            remarks = [m[2] for m in logged[index + 1 : index + 2] if m[1] == match[1]]
            return "; ".join([match[0], *remarks])
    return logged[0][0] if logged else ""


def _agrees(status: Status, code: int | None) -> bool:
    """Whether a kselftest program ends with this status after this verdict."""
    match status:
        case Status.PASS:
            return code == 0
        case Status.SKIP:
            return code in (0, KSFT_SKIP)
        case Status.XFAIL:
            return code in (0, KSFT_XFAIL)
        case Status.XPASS:
            return code in (0, KSFT_XPASS)
        case _:
            return code not in (0, None)


def _exit(code: int) -> str:
    if code == 126:
        return "exit status 126 (found, but not executable)"
    if code == 127:
        return "exit status 127 (program or library not found)"
    if 128 < code < 193:
        return f"exit status {code} (128 + {signal_name(code - 128)})"
    return f"exit status {code}"


def _foreign(point: Point) -> Problem:
    verdict = "ok" if point.ok else "not ok"
    return Problem(
        Flaw.UNPLANNED,
        f"'{verdict} {point.number} {point.name[:80]}' was not asked for",
        point.line,
    )


def _told(flaws: Sequence[Problem]) -> str:
    more = f" (and {len(flaws) - 1} more)" if len(flaws) > 1 else ""
    return flaws[0].message + more


# -- what goes along --------------------------------------------------------------


def _console(outcome: Outcome, against: Sequence[Splat]) -> str:
    lines = [clean(x.text).replace("\n", " ") for x in outcome.console]
    focus = None
    if against and against[0].lines:
        first = against[0].lines[0]
        focus = next((i for i, x in enumerate(outcome.console) if x.text == first), None)
    return excerpt_lines(lines, CONSOLE_MAX, focus)


def _properties(
    case: Case, outcome: Outcome, points: Sequence[Point], found: Sequence[Splat]
) -> dict[str, str]:
    """Facts for reports; ``found`` has the splats that count first."""
    properties = dict(case.properties)
    properties["end"] = outcome.end.value
    if outcome.exit_code is not None:
        properties["exit"] = str(outcome.exit_code)
    if outcome.signal is not None:
        properties["signal"] = signal_name(outcome.signal)
    if outcome.detail:
        properties["end.detail"] = one_line(outcome.detail)
    if outcome.guest_seconds:
        properties["guest.seconds"] = f"{outcome.guest_seconds:.6f}"
    if outcome.limit:
        properties["limit"] = f"{outcome.limit:.4g}"
    if len(points) == 1 and points[0].directive is not Directive.NONE:
        properties["ktap.directive"] = points[0].directive.value
    if found:
        properties["splat.title"] = one_line(found[0].title)
        properties["splat.fingerprint"] = " ".join(dict.fromkeys(s.fingerprint for s in found[:8]))
    return properties
