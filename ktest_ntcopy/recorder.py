# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts from pytest's reports, for tests that do not settle theirs themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from ktest_ntcopy.naming import python_case
from ktest_ntcopy.results.model import Cause, Result, Status


@dataclass
class _Seen:
    """Reports of one test so far."""

    reports: list[pytest.TestReport] = field(default_factory=list)


class Recorder:
    """Collects the reports of each test and makes one Result when the test is over."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._open: dict[str, _Seen] = {}

    def add(self, report: pytest.TestReport) -> Result | None:
        """Take a report; the Result if it was the test's last one."""
        seen = self._open.setdefault(report.nodeid, _Seen())
        seen.reports.append(report)
        if report.when != "teardown":
            return None
        del self._open[report.nodeid]
        return judge(seen.reports, worker=self._worker)


def judge(reports: Sequence[pytest.TestReport], *, worker: str) -> Result:
    """One verdict from the reports of all phases of one test."""
    status, cause, decisive = Status.PASS, Cause.NONE, reports[-1]
    for report in reports:
        if report.failed:
            in_call = report.when == "call"
            status = Status.FAIL if in_call else Status.ERROR
            cause = Cause.ASSERTION if in_call else Cause.OTHER
            decisive = report
            break
        if report.skipped:
            expected = hasattr(report, "wasxfail")
            status = Status.XFAIL if expected else Status.SKIP
            cause = Cause.XFAIL if expected else Cause.SKIP
            decisive = report
    target, program, case = python_case(reports[0].nodeid)
    return Result(
        target=target,
        program=program,
        case=case,
        status=status,
        cause=cause,
        message=reason(decisive) if status is not Status.PASS else "",
        detail=report_text(decisive) if not status.ok else "",
        start=reports[0].start,
        duration=sum(r.duration for r in reports),
        worker=worker,
        nodeid=reports[0].nodeid,
    )


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """One line that says why."""
    if expected := getattr(report, "wasxfail", ""):
        return str(expected).removeprefix("reason: ").split("\n")[0]
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ").split("\n")[0]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message) if crash else str(report.longrepr or "")
    return text.strip().split("\n")[0]


def report_text(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What pytest shows of a failure, captured output included."""
    parts = [report.longreprtext]
    parts += [f"--- {title} ---\n{text}" for title, text in report.sections]
    return "\n".join(parts)


def collection_failure(report: pytest.CollectReport, *, worker: str) -> Result:
    """A file that could not be collected."""
    target, program, case = python_case(report.nodeid)
    return Result(
        target=target,
        program=program,
        case=case,
        status=Status.ERROR,
        cause=Cause.OTHER,
        message=reason(report) or "collection failed",
        detail=report_text(report),
        worker=worker,
        nodeid=report.nodeid,
    )
