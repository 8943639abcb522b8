# SPDX-License-Identifier: GPL-2.0-only
"""What pytest's processes write down of a run, and the reports made from it."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy import __version__
from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.machine.base import MachineInfo
from ktest_ntcopy.naming import Naming
from ktest_ntcopy.options import Options
from ktest_ntcopy.recorder import Recorder, collection_failure, reason
from ktest_ntcopy.report.junit import write_junit
from ktest_ntcopy.report.table import to_table
from ktest_ntcopy.results.journal import Header, Journal, read_journal
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.session import AFTERMATH

_LINES = 20  # of each kind in the summary
_NOTICE = "machine.notice."  # begins the names of properties that are told at the end


class Book:
    """The journal, from the first fact to the report.

    Only the controller starts it, plans it and reads it again; every process adds
    its own verdicts to it.
    """

    def __init__(self, options: Options, naming: Naming, *, worker: str, controls: bool) -> None:
        self._options = options
        self._naming = naming
        self._worker = worker
        self._controls = controls
        self._recorder = Recorder(worker)
        self._journal: Journal | None = None
        self._settled: set[str] = set()  # node ids of our items that have their verdict
        self._summary: list[str] = []
        self._troubles: list[str] = []  # what could not be written down

    def open(self, arguments: Sequence[str]) -> None:
        """Start the journal, or join it.

        ``arguments`` is what pytest was called with.  Raises pytest.UsageError if it
        cannot be written.
        """
        options = self._options
        try:
            if not self._controls:
                self._journal = Journal.open(options.journal)
                return
            # First: if another run has this journal, the report is that run's, too.
            self._journal = Journal.create(options.journal)
            if options.junit:
                # An old report must not pass for this run's if this one is killed.
                _remove(options.junit)
            kernel = options.kernel
            self._journal.header(
                Header(
                    run=uuid.uuid4().hex,
                    tool=__version__,
                    command=("pytest", *arguments),
                    start=time.time(),
                    kernel=str(kernel.path),
                    release=kernel.release,
                    arch=kernel.arch,
                    config_hash=kernel.config.sha256 if kernel.config else "",
                    commit=commit_of(options.tree or kernel.source_tree),
                )
            )
        except ConfigError as err:
            raise pytest.UsageError(str(err)) from err

    def plan(self, nodeids: Sequence[str]) -> None:
        """Write down which cases are going to run, so that none can get lost."""
        cases = (self._naming.case(nodeid) for nodeid in nodeids)
        header = Header(planned=tuple(dict.fromkeys(cases)))
        self._keep(lambda journal: journal.header(header))

    def booted(self, info: MachineInfo) -> None:
        """Write down what a machine turned out to be."""
        facts = Header.of_machine(info)
        if info.release != self._options.kernel.release:
            # The file's own banner and uname differ only if someone lies; keep both.
            facts = replace(facts, release="", properties={"uname": info.release})
        self._keep(lambda journal: journal.header(facts))

    def settle(self, result: Result) -> None:
        """Write down the verdict of an item of ours.  Raises ConfigError if that fails."""
        self._settled.add(result.nodeid)
        if self._journal:
            self._journal.append(result)

    def add(self, result: Result) -> None:
        """Write down a verdict from within one of pytest's hooks, which must not raise."""
        self._keep(lambda journal: journal.append(result))

    def _keep(self, write: Callable[[Journal], None]) -> None:
        try:
            if self._journal:
                write(self._journal)
        except ConfigError as err:
            self._troubles.append(str(err))

    def see(self, report: pytest.TestReport) -> None:
        """Take a report of a test that ran in this process."""
        result = self._recorder.add(report)
        if result is None:
            return
        if self._naming.is_ours(report.nodeid):
            if report.nodeid in self._settled:
                return
            # Ended without its own verdict: interrupted, or an error of this package.
            target, program, case = self._naming.case(report.nodeid)
            result = replace(result, target=target, program=program, case=case)
        self.add(replace(result, reproducer=self._options.command(report.nodeid)))

    def crashed(self, report: pytest.TestReport, *, worker: str) -> None:
        """Take xdist's report that a worker died while it ran a test."""
        target, program, case = self._naming.case(report.nodeid)
        self.add(
            Result(
                target=target,
                program=program,
                case=case,
                status=Status.ERROR,
                cause=Cause.WORKER,
                message=reason(report),
                reproducer=self._options.command(report.nodeid),
                start=time.time(),
                worker=worker,
                nodeid=report.nodeid,
            )
        )

    def collection_failed(self, report: pytest.CollectReport) -> None:
        """Take the report of a file that could not be collected."""
        self.add(collection_failure(report, worker=self._worker))

    def notice(self, text: str, *, about: str = "host") -> None:
        """Keep what the machine has to say for the end of the run, the last on each subject."""
        name = f"{_NOTICE}{about}"
        self._keep(lambda journal: journal.header(Header(properties={name: text})))

    def write_reports(self) -> bool:
        """Make the reports from the journal, whoever wrote it.  False if a case is not well.

        A run without any case is well: pytest has its own exit status for that.
        """
        if not self._journal:
            return True
        # Not closed before the end: until then nobody else may start it anew.
        options = self._options
        try:
            run = read_journal(options.journal)
        except ConfigError as err:
            # Somebody removed it, or put something else there.
            self._summary = [f"journal: {err}"]
            return False
        cases = run.cases()
        counts = Counter(str(c.status) for c in cases)
        lines = to_table(run).splitlines() if options.table else []
        lines.append(_machine_line(run.header))
        notices = sorted(p for p in run.header.properties if p.startswith(_NOTICE))
        lines += [run.header.properties[name] for name in notices]
        lines.append(", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "no case")
        if left := sum(c.cause is Cause.NOT_RUN for c in cases):
            lines.append(f"{left} of the planned cases did not run")
        late = [c for c in cases if c.message.startswith(AFTERMATH)]
        lines += [f"{c.classname} {c.case}: {c.message}" for c in late[:_LINES]]
        troubles = [*dict.fromkeys(self._troubles), *run.problems]
        lines += [f"journal: {trouble}" for trouble in troubles[:_LINES]]
        if options.junit:
            try:
                write_junit(run, options.junit)
                lines.append(f"JUnit: {options.junit}")
            except ConfigError as err:
                self._troubles.append(str(err))
                lines.append(f"JUnit: {err}")
        lines.append(f"journal: {options.journal}")
        self._summary = lines
        return not self._troubles and all(c.status.ok for c in cases)

    def summary(self) -> list[str]:
        """Lines for the end of pytest's output."""
        return self._summary

    def close(self) -> None:
        """Close the journal."""
        if self._journal:
            self._journal.close()


def _machine_line(header: Header) -> str:
    facts = [f"kernel {header.release} {header.arch}"]
    if header.accel:
        facts.append(f"{header.machine}, acceleration: {header.accel}")
        facts.append(f"booted in {header.boot_seconds:.1f} s")
    if header.slowdown > 1:
        facts.append(f"time limits times {header.slowdown:.1f}")
    return "; ".join(facts)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as err:
        raise ConfigError(f"{path}: cannot be replaced: {err.strerror}") from err


def commit_of(tree: Path | None) -> str:
    """The commit a source tree is at, or what we prepared it from; empty if neither is known.

    Whether files differ from it is not looked at: that takes seconds in a kernel tree.
    """
    if tree is None:
        return ""
    if not (tree / ".git").exists():
        from ktest_ntcopy.kernel.source import prepared_from

        return prepared_from(tree)
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
