# SPDX-License-Identifier: GPL-2.0-only
"""The conformance suite in a real guest, and what becomes of tests that take it down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from conformance.guest import Reports, guest_command, verdicts
from ktest_ntcopy.machine.base import MachineSpec, Outcome
from ktest_ntcopy.machine.qemu import QemuMachine
from tests.unit.spawned import run_pytest

HOSTILE = """
import os, signal, sys, time
import pytest

def test_first():
    print("seen only if it fails")

def test_panics():
    open("/proc/sysrq-trigger", "w").write("c")

def test_fails():
    print("\\x1b[31m seen because it fails \\udcff")
    assert [1, 2] == [1, 3]

def test_hangs():
    time.sleep(1000)

def test_exits():
    os._exit(0)

def test_is_killed():
    os.kill(os.getpid(), signal.SIGKILL)

def test_skips():
    pytest.skip("with a reason")

def test_last():
    assert os.uname().release == RELEASE
"""


def test_suite_in_the_guest(kernel: Path, tmp_path: Path) -> None:
    words = ["conformance", f"--kernel={kernel}", f"--junitxml={tmp_path}/out.xml", "-rs", "-q"]
    done = run_pytest("-p", "no:cacheprovider", *words, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    # The kernel is built with all that the suite looks at: nothing is skipped but what
    # the host's headers are too old for, or a kernel of an earlier series lacks.
    assert re.search(r"^\d{3} passed", done.stdout, re.MULTILINE), done.stdout
    skipped = re.findall(r"^SKIPPED .*", done.stdout, re.MULTILINE)
    known = ("headers", "is without MSG_ZEROCOPY_UARG", "is without msg_zerocopy_uarg", " has no ")
    assert all(any(word in line for word in known) for line in skipped), skipped
    assert "compiling the test programs" not in done.stdout + done.stderr


def test_hostile_tests_in_the_guest(kernel: Path, tmp_path: Path) -> None:
    spec = MachineSpec(kernel=kernel, share=Path("/"))
    machine = QemuMachine(spec)
    release = machine.boot().release
    machines = [machine]
    (tmp_path / "test_hostile.py").write_text(f"RELEASE = {release!r}\n{HOSTILE}")
    names = re.findall(r"def (\w+)", HOSTILE)

    def execute(nodeids: Sequence[str], token: str) -> Outcome:
        if not machines[-1].alive:
            machines.append(QemuMachine(spec))
            machines[-1].boot()
        listed = tmp_path / f"items-{token}"
        listed.write_text("\n".join(nodeids) + "\n")
        command = guest_command(tmp_path, listed, token, count=len(nodeids), test_limit=10)
        return machines[-1].run(command)

    try:
        found = dict(verdicts([f"test_hostile.py::{name}" for name in names], execute))
    finally:
        for each in machines:
            each.close()
    assert len(machines) == 2

    def told(name: str) -> str:
        reports: Reports = found[f"test_hostile.py::{name}"]
        assert [r["when"] for r in reports] == ["setup", "call", "teardown"]
        call = reports[1]
        return f"{call['outcome']} {call['longrepr']} {call['sections']}"

    assert told("test_first").startswith("passed")
    assert told("test_panics").startswith("failed kernel panic: sysrq")
    assert "console in the guest" in told("test_panics")
    assert "[1, 2] == [1, 3]" in told("test_fails")
    assert "seen because it fails" in told("test_fails")
    assert "in the middle of this test" in told("test_hangs")
    assert "in test_hangs" in told("test_hangs")
    assert "exit status 0 in the middle" in told("test_exits")
    assert "ended by SIGKILL" in told("test_is_killed")
    assert "with a reason" in told("test_skips")
    assert told("test_last").startswith("passed")
