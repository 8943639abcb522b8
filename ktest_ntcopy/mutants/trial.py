# SPDX-License-Identifier: GPL-2.0-only
"""What the tests say of a kernel: pytest run as users run it, its journal read."""

from __future__ import annotations

import contextlib
import enum
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import KtestError
from ktest_ntcopy.kernel.process import clean_env
from ktest_ntcopy.results.journal import read_journal
from ktest_ntcopy.results.model import Cause, Result

#: Seconds after which a run of one feature's tests has lost its way.
LIMIT = 900.0
#: These say that no test could look at the kernel, so they catch nothing.
_BLIND = (Cause.BOOT, Cause.NOT_RUN, Cause.WORKER, Cause.OTHER)


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
        """Cases that make the run fail, in planned order."""
        return tuple(c for c in self.cases if not c.status.ok)

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
        if any(c.status.ok for c in self.cases):
            return Outcome.SURVIVED, ""
        return Outcome.UNTRIED, "no test ran"


def run(kernel: Path, tree: Path, feature: str, log: Path) -> Trial:
    """Run a feature's tests on a kernel, nothing skipped for want of the feature.

    Raises KtestError if there is no journal to read.
    """
    with tempfile.TemporaryDirectory(prefix="ktest-trial-") as name:
        journal = Path(name) / "journal.ndjson"
        argv = [sys.executable, "-m", "pytest", f"--kernel={kernel}", f"--ktest-tree={tree}"]
        argv += ["-q", "-n", "auto", "-m", f"{feature} and not vmlinux", "-p", "no:cacheprovider"]
        argv += [f"--ktest-require={feature}", f"--ktest-journal={journal}"]
        # After a time-out, what is journalled until then is what there is.
        with log.open("wb") as sink, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                argv,
                cwd=name,
                env=clean_env(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=LIMIT,
                check=False,
            )
        if not journal.exists():
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise KtestError(f"pytest ran no test: {said[-1] if said else 'no output'}; see {log}")
        return Trial(read_journal(journal).cases())
