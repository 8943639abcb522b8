# SPDX-License-Identifier: GPL-2.0-only
"""What the tests say of a kernel: pytest run as users run it, its journal read."""

from __future__ import annotations

import contextlib
import enum
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import KtestError
from ktest_ntcopy.kernel.process import clean_env
from ktest_ntcopy.results.journal import read_journal
from ktest_ntcopy.results.model import Cause, Result

#: Seconds after which a run of one feature's tests has lost its way.
LIMIT = 900.0
_LOOK = 1.0  # seconds between two looks into the journal
#: These say that no test could look at the kernel, so they catch nothing.
_BLIND = (Cause.BOOT, Cause.WORKER, Cause.OTHER)


class Outcome(enum.StrEnum):
    """How a mutant fared."""

    CAUGHT = "caught"
    MISSED = "missed"  #: tests failed, but none that names the property
    SURVIVED = "survived"  #: nothing failed
    UNTRIED = "untried"  #: it does not build or boot, or the run broke off


@dataclass(frozen=True)
class Trial:
    """All results of one feature's tests on one kernel."""

    cases: tuple[Result, ...]

    @property
    def failed(self) -> tuple[Result, ...]:
        """Cases that make the run fail, in planned order; those that never ran do not count."""
        return tuple(c for c in self.cases if not c.status.ok and c.cause is not Cause.NOT_RUN)

    @property
    def complete(self) -> bool:
        """True if every planned case has a verdict."""
        return bool(self.cases) and all(c.cause is not Cause.NOT_RUN for c in self.cases)

    @property
    def blind(self) -> bool:
        """True if no test saw the kernel."""
        return all(c.cause in _BLIND for c in self.failed) and bool(self.failed)

    def verdict(self, names: Callable[[str], bool]) -> tuple[Outcome, str]:
        """The outcome, and the first failing case: of those that name the property if any."""
        seen = [c for c in self.failed if c.cause not in _BLIND]
        for case in seen:
            if names(case.case):
                return Outcome.CAUGHT, case.case
        if self.blind:
            return Outcome.UNTRIED, self.failed[0].message
        if seen:
            return Outcome.MISSED, seen[0].case
        if not self.complete:
            return Outcome.UNTRIED, "the run broke off before a test failed"
        return Outcome.SURVIVED, ""


def run(
    kernel: Path,
    tree: Path,
    feature: str,
    log: Path,
    enough: Callable[[Trial], bool] = lambda _: False,
) -> Trial:
    """Run a feature's tests on a kernel, nothing skipped for want of the feature.

    Stops as soon as what is known by then is ``enough``: a broken kernel may let every
    further test wait for its time limit.  Raises KtestError if there is nothing to read.
    """
    with tempfile.TemporaryDirectory(prefix="ktest-trial-") as name:
        journal = Path(name) / "journal.ndjson"
        argv = [sys.executable, "-m", "pytest", f"--kernel={kernel}", f"--ktest-tree={tree}"]
        argv += ["-q", "-n", "auto", "-m", f"{feature} and not vmlinux", "-p", "no:cacheprovider"]
        argv += [f"--ktest-require={feature}", f"--ktest-journal={journal}"]
        with (
            log.open("wb") as sink,
            subprocess.Popen(
                argv,
                cwd=name,
                env=clean_env(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            ) as tests,
        ):
            try:
                _wait(tests, lambda: enough(_so_far(journal)))
            finally:
                _end(tests)
        if not journal.exists():
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise KtestError(f"pytest ran no test: {said[-1] if said else 'no output'}; see {log}")
        return _so_far(journal)


def _so_far(journal: Path) -> Trial:
    return Trial(read_journal(journal).cases() if journal.exists() else ())


def _wait(tests: subprocess.Popen[bytes], enough: Callable[[], bool]) -> None:
    """Until the tests are through, or enough is known, or they have lost their way."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        try:
            tests.wait(timeout=_LOOK)
        except subprocess.TimeoutExpired:
            if not enough():
                continue
        return


def _end(tests: subprocess.Popen[bytes]) -> None:
    """Let pytest end its machines; what it has journalled stays."""
    for one, patience in ((signal.SIGINT, 20.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
        if tests.poll() is not None:
            return
        tests.send_signal(one)
        with contextlib.suppress(subprocess.TimeoutExpired):
            tests.wait(timeout=patience)
