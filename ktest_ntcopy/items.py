# SPDX-License-Identifier: GPL-2.0-only
"""What pytest collects from a feature file, and how it reports it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ktest_ntcopy.errors import KtestError
from ktest_ntcopy.features.kunit import KunitSuite
from ktest_ntcopy.features.model import Case, Expectation, Feature, Program, load_feature
from ktest_ntcopy.features.needs import Need
from ktest_ntcopy.image.expectations import void
from ktest_ntcopy.naming import case_name, expectation_name, kunit_cases, kunit_name
from ktest_ntcopy.results.model import Result, Status
from ktest_ntcopy.running import Running, running
from ktest_ntcopy.waiting import Waiting

_DETAIL_LINES = 40  # of a test's output on the terminal; reports hold all of it
_CONSOLE_LINES = 30


class FeatureFile(pytest.File):
    """One feature: its traces in vmlinux, then every case of its programs and KUnit suites."""

    def collect(self) -> Iterator[pytest.Item]:
        feature = load_feature(self.path)
        run = running(self.config)
        lines = _Lines(self.path)
        for expectation in feature.expectations:
            if void(run.image, expectation):
                continue  # the summary names it
            yield ExpectationItem.from_parent(
                self,
                name=expectation_name(expectation),
                feature=feature,
                expectation=expectation,
                line=max(expectation.line - 1, 0),
            )
        for program in feature.programs:
            yield from self._cases(feature, program, lines)
        for suite in feature.kunit:
            for name in kunit_cases(suite):
                yield KunitItem.from_parent(
                    self,
                    name=kunit_name(suite, name),
                    feature=feature,
                    suite=suite,
                    case=name,
                    line=lines.of(suite.name, name),
                )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, KtestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def _cases(self, feature: Feature, program: Program, lines: _Lines) -> Iterator[CaseItem]:
        for fixture in program.fixtures:
            for variant in fixture.variants:
                for case in fixture.cases:
                    point = f"{fixture.name}.{variant.name}.{case.name}"
                    yield CaseItem.from_parent(
                        self,
                        name=case_name(feature, program, point),
                        feature=feature,
                        program=program,
                        case=case,
                        point=point,
                        line=lines.of(program.name, fixture.name, case.name),
                    )


class _Lines:
    """Finds where a feature file states something, so that editors can jump there."""

    def __init__(self, path: Path) -> None:
        self._text = path.read_text(encoding="utf-8")

    def of(self, *names: str) -> int:
        """Line, counted from 0, of ``name = "..."`` found one after the other; else 0."""
        at = 0
        for name in names:
            found = self._text.find(f'"{name}"', at)
            if found < 0:
                break
            at = found
        return self._text.count("\n", 0, at)


class Item(pytest.Item):
    """A verdict of ours: taken once, written to the journal, shown without a traceback."""

    def __init__(self, *, feature: Feature, line: int, kind: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.feature = feature
        self._line = line
        for marker in ("ktest", kind, feature.name):
            self.add_marker(marker)

    @property
    def run(self) -> Running:
        """The run this item belongs to."""
        return running(self.config)

    def settle(self, result: Result) -> None:
        """Journal a verdict and tell pytest what it means."""
        result = self.run.allowed(result)
        self.run.record(result)
        if result.status is Status.PASS:
            return
        if result.status is Status.SKIP:
            pytest.skip(safe(result.message))
        if result.status is Status.XFAIL:
            pytest.xfail(safe(result.message))
        # Without a traceback, in any phase: pytest takes 0.2 s to draw one.
        pytest.fail(render(result), pytrace=False)

    def reportinfo(self) -> tuple[os.PathLike[str], int, str]:
        return self.path, self._line, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, KtestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class MachineItem(Item):
    """A case that runs in a virtual machine."""

    def settle_early(self, needs: Iterable[Need], *, kunit: KunitSuite | None = None) -> None:
        """Give the verdict of a case that cannot run on this kernel or machine."""
        run, version = self.run, self.run.options.kernel.version
        if version not in self.feature.support:
            known = ", ".join(self.feature.support)
            text = f"{self.feature.name} has no tests for Linux {version}, only for {known}"
            self.settle(run.skipped(self.nodeid, text))
        if obstacle := run.preflight.obstacle(self.feature, needs):
            demanded = obstacle.feature
            if kunit and obstacle.need.name == kunit.option:
                # Whoever demands the feature demands the kernel's own tests of it.
                demanded = True
                obstacle = replace(
                    obstacle, reason=f"no KUnit suite {kunit.name}: {obstacle.reason}"
                )
            self.settle(run.stopped(self.feature, obstacle, nodeid=self.nodeid, demanded=demanded))


class CaseItem(MachineItem):
    """One fixture.variant.case of one program."""

    def __init__(self, *, program: Program, case: Case, point: str, **kwargs: Any) -> None:
        super().__init__(kind="selftest", **kwargs)
        self.program = program
        self.case = case
        self.point = point

    def setup(self) -> None:
        """Have a machine ready: its failure is an error of the set-up, not of the case."""
        self.settle_early(self.program.needed(self.point))
        session = self.run.session
        what = "a machine boots" if session.boots_next else ""
        with Waiting(self.config, what):
            failed = session.prepare(self.program, self.point, nodeid=self.nodeid)
        if failed:
            self.settle(failed)

    def runtest(self) -> None:
        self.settle(
            self.run.session.run_case(
                self.program,
                self.point,
                nodeid=self.nodeid,
                timeout=float(self.case.timeout or self.program.timeout),
            )
        )


class KunitItem(MachineItem):
    """One case of one KUnit suite, or the suite as a whole."""

    def __init__(self, *, suite: KunitSuite, case: str, **kwargs: Any) -> None:
        super().__init__(kind="kunit", **kwargs)
        self.suite = suite
        self.case = case

    def setup(self) -> None:
        """Have the suite's boot behind us; without a machine no case can be judged."""
        self.settle_early(self.suite.needed(), kunit=self.suite)
        kunit = self.run.kunit
        what = f"a machine boots and runs {self.suite.name}"
        with Waiting(self.config, what if kunit.boots_next(self.suite) else ""):
            failed = kunit.prepare(self.suite, self.case, nodeid=self.nodeid)
        if failed:
            self.settle(failed)

    def runtest(self) -> None:
        kunit = self.run.kunit
        self.settle(kunit.run_case(self.feature, self.suite, self.case, nodeid=self.nodeid))


class ExpectationItem(Item):
    """One trace of a feature in vmlinux; needs no machine."""

    def __init__(self, *, expectation: Expectation, **kwargs: Any) -> None:
        super().__init__(kind="vmlinux", **kwargs)
        self.expectation = expectation

    def runtest(self) -> None:
        self.settle(self.run.check(self.feature, self.expectation, nodeid=self.nodeid))


def _tail(text: str, limit: int) -> list[str]:
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    left_out = len(lines) - limit
    if left_out <= 0:
        return lines
    return [f"[{left_out} lines left out; the journal has them]", *lines[-limit:]]


def render(result: Result) -> str:
    """What a person sees of a case that did not pass."""
    lines = [result.message or str(result.status)]
    for title, text, limit in (
        ("output", result.detail, _DETAIL_LINES),
        ("console", result.console, _CONSOLE_LINES),
    ):
        if shown := _tail(text, limit):
            lines += [f"--- {title} ---", *shown]
    if result.reproducer:
        lines += ["--- run it again ---", result.reproducer]
    return safe("\n".join(lines))


def safe(text: str) -> str:
    """Text that xdist can send: execnet refuses lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def locate_skip(item: Item, report: pytest.TestReport) -> None:
    """Report a skip at the case's own line instead of the one that raises it."""
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, _ = item.reportinfo()
        report.longrepr = (os.fspath(path), line + 1, report.longrepr[2])
