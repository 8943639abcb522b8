# SPDX-License-Identifier: GPL-2.0-only
"""The same report however a run is spread, and whoever ends it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from ktest_ntcopy.report.junit import write_junit
from ktest_ntcopy.results.journal import read_journal
from ktest_ntcopy.results.model import Status
from tests.unit.plugin_lab import POINTS, WAYS, A, B, C, D, E, Lab
from tests.unit.plugin_lab import lab as lab  # a fixture
from tests.unit.plugin_lab import way as way  # a fixture

pytest_plugins = ["pytester"]


# xdist


def test_programs_are_made_once_and_each_worker_boots_once(lab: Lab) -> None:
    done = lab.run("-n2", "msg_ntcopy")
    assert done.code == 0, done.out
    assert sum(" build " in x for x in done.log()) == 1
    boots = [x.split()[0] for x in done.log() if " boot " in x]
    assert sorted(boots) == ["gw0", "gw1"]
    assert sum(x.endswith(" close") for x in done.log()) == 2


def test_a_worker_that_dies_costs_one_case(lab: Lab) -> None:
    lab.script({C: "exit"})
    done = lab.run("-n2", "msg_ntcopy", "-m", "selftest")
    assert done.code == 1
    journal = done.journal()
    assert list(journal) == list(POINTS)
    assert {p for p, s in journal.items() if s is not Status.PASS} == {C}
    run = read_journal(lab.folder / "out.ndjson")
    dead = next(r for r in run.cases() if r.case == C)
    assert (dead.cause, dead.status) == ("worker", "error")
    assert len(done.junit().findall(".//error[@type='worker']")) == 1


def shape(root: ET.Element) -> list[Any]:
    """A report without what changes from run to run."""
    changing = {"worker", "run", "command", "machine.boot_seconds"}
    for suite in root.iter("testsuite"):
        for properties in suite.iter("properties"):
            for entry in list(properties):
                if entry.get("name") in changing:
                    properties.remove(entry)
    return [
        (e.tag, sorted((k, v) for k, v in e.items() if k not in ("time", "timestamp")), e.text)
        for e in root.iter()
    ]


def test_the_same_report_with_and_without_xdist(lab: Lab) -> None:
    lab.script({A: "fail", B: "skip", C: "xfail", D: "panic", E: "silent"})
    (lab.folder / "test_own.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2\n"
        "@pytest.mark.parametrize('x', ['a::b', '\\x00'])\n"
        "def test_param(x): pass\n"
        "def test_skipped(): pytest.skip('for a reason')\n"
        "@pytest.mark.xfail(reason='known')\n"
        "def test_expected(): assert False\n"
        "@pytest.fixture\n"
        "def broken(): raise OSError('no')\n"
        "def test_setup(broken): pass\n"
    )
    reports = []
    for name, args in {**WAYS, "xdist": ("-n2",)}.items():
        done = lab.run("msg_ntcopy", "test_own.py", *args)
        assert done.code == 1, name
        reports.append(shape(done.junit()))
    assert reports[0] == reports[1] == reports[2]
    suites = {s.get("name"): s for s in done.junit().findall("testsuite")}
    assert set(suites) == {"vmlinux", "kselftest.net", "pytest"}
    counts = {k: suites["pytest"].get(k) for k in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "7", "failures": "1", "errors": "1", "skipped": "2"}
    assert suites["kselftest.net"].get("tests") == str(len(POINTS))


def test_a_file_that_cannot_be_collected_is_in_the_report(lab: Lab, way: tuple[str, ...]) -> None:
    (lab.folder / "test_own.py").write_text("import no_such_module_anywhere\n")
    done = lab.run("test_own.py", *way)
    assert done.code == (1 if "-n1" in way else 2)
    errors = done.junit().findall(".//error")
    assert len(errors) == 1
    assert "no_such_module_anywhere" in str(errors[0].text)


# Runs that are ended from outside


@pytest.mark.parametrize("args", [("-p", "no:xdist"), ("-n1",)], ids=["plain", "n1"])
def test_kill_of_the_controller_leaves_what_finished(lab: Lab, args: tuple[str, ...]) -> None:
    lab.script({D: "kill-parent"})
    (lab.folder / "out.xml").write_text("<an old report/>")
    done = lab.run("msg_ntcopy", "-m", "selftest", *args, apart=True)
    assert done.code == -9
    assert not (lab.folder / "out.xml").exists()
    run = read_journal(lab.folder / "out.ndjson")
    finished = [r for r in run.results if r.target == "kselftest.net"]
    assert [r.case for r in finished] == [A, B, C]
    assert len(run.cases()) == len(POINTS)
    write_junit(run, lab.folder / "again.xml")
    root = done.junit("again.xml")
    assert len(root.findall(".//testcase")) == len(POINTS)
    assert len(root.findall(".//error[@type='not.run']")) == len(POINTS) - 3


@pytest.mark.parametrize("args", [("-p", "no:xdist"), ("-n1",)], ids=["plain", "n1"])
def test_full_disk_is_said_and_fails_the_run(lab: Lab, args: tuple[str, ...]) -> None:
    (lab.folder / "test_own.py").write_text("def test_own(): pass\n")
    limit = 100_000  # bytes a file may have: the plan fits, the results do not
    done = lab.run(*args, "msg_ntcopy", "test_own.py", within=("prlimit", f"--fsize={limit}"))
    assert done.code == 1, done.out + done.err
    assert "INTERNALERROR" not in done.out
    assert "Traceback" not in done.out
    assert re.search("could be written; make room|cannot write the journal", done.out)
    assert "JUnit: " in done.out
    assert "cannot write the report" in done.out
    assert read_journal(lab.folder / "out.ndjson").results


def test_journal_that_vanishes_is_said_and_fails_the_run(lab: Lab) -> None:
    (lab.folder / "test_own.py").write_text(
        "import shutil\ndef test_own(): shutil.rmtree('results')\n"
    )
    done = lab.run("test_own.py", "--ktest-journal=results/j")
    assert done.code == 1
    assert "journal: " in done.out
    assert "results/j: cannot read the journal: No such file" in done.out
    assert "Traceback" not in done.out + done.err
    assert "INTERNALERROR" not in done.out + done.err


@pytest.mark.parametrize("args", [("-p", "no:xdist"), ("-n1",)], ids=["plain", "n1"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_second_signal_does_not_disturb_the_reports(
    lab: Lab, args: tuple[str, ...], name: str
) -> None:
    send = "import os, signal, time\n"
    (lab.folder / "test_own.py").write_text(
        f"{send}"
        "def test_own():\n"
        "    worker = 'PYTEST_XDIST_WORKER' in os.environ\n"
        f"    os.kill(os.getppid() if worker else os.getpid(), signal.{name})\n"
        "    time.sleep(20)\n"
    )
    (lab.folder / "conftest.py").write_text(
        f"{send}"
        "def pytest_keyboard_interrupt():\n"
        "    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):\n"
        "        os.kill(os.getpid(), number)\n"
        "        time.sleep(0.01)\n"
    )
    done = lab.run("test_own.py", *args, apart=True)
    assert done.code == 2, done.out + done.err
    assert name in done.out
    assert "Traceback" not in done.out + done.err
    assert done.junit().findall(".//testcase")
