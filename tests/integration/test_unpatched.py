# SPDX-License-Identifier: GPL-2.0-only
"""A kernel without the series: everything that depends on it is skipped, or fails on demand."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from ktest_ntcopy.results.journal import read_journal
from ktest_ntcopy.results.model import Status

from .pytest_runs import run_pytest

REASON = "kernel has no MSG_NTCOPY: copy_from_iter_nontemporal is not in /proc/kallsyms"
#: Every fixture has a case that this selects.
SELECTION = "unix_stream or tcp4 or raw4 or v12"


@pytest.fixture(scope="session")
def unpatched() -> Path:
    """A kernel of the same source and configuration without the series."""
    named = os.environ.get("KTEST_KERNEL_UNPATCHED")
    if not named:
        pytest.fail("set KTEST_KERNEL_UNPATCHED to a vmlinux built without the series")
    return Path(named)


def test_skips_with_the_reason(unpatched: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal.ndjson"
    done = run_pytest(unpatched, "-k", SELECTION, f"--ktest-journal={journal}")
    assert done.returncode == 0, done.stdout
    cases = [c for c in read_journal(journal).cases() if c.target.startswith("kselftest")]
    assert len(cases) > 60
    assert Counter((c.status, c.message) for c in cases) == {(Status.SKIP, REASON): len(cases)}


def test_fails_if_the_feature_is_required(unpatched: Path, tmp_path: Path) -> None:
    journal = tmp_path / "journal.ndjson"
    wanted = ("--ktest-require=msg_ntcopy", f"--ktest-journal={journal}")
    done = run_pytest(unpatched, "-k", f"({SELECTION}) or vmlinux", *wanted)
    assert done.returncode == 1, done.stdout
    cases = read_journal(journal).cases()
    passed = {f"{c.target}.{c.case}" for c in cases if c.status is not Status.FAIL}
    # The architecture's own copy loop is in every kernel of this version.
    assert passed == {"vmlinux.symbol.copy_to_nontemporal"}
    details = [c.detail for c in cases if c.target.startswith("kselftest")]
    assert all(f"msg_ntcopy is required, but {REASON}" in detail for detail in details)
