# SPDX-License-Identifier: GPL-2.0-only
"""The plugin, from the command line to the reports, on machines that run nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ktest_ntcopy import waiting
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.report.junit import write_junit
from ktest_ntcopy.results.journal import Journal, read_journal
from ktest_ntcopy.results.model import Status
from tests.unit import fake_kernel as fake
from tests.unit.whole_kernel import whole

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
POINTS = FEATURE.programs[0].points()
A, B, C, D, E, F = POINTS[:6]
HONOURS = "initial.tcp_prot.ntcopy"
FILE = "ktest_ntcopy/features/msg_ntcopy.toml"
WAYS = {"plain": (), "no-xdist": ("-p", "no:xdist"), "xdist": ("-n1",)}


@dataclass
class Done:
    """How a pytest run ended."""

    code: int
    out: str
    err: str
    folder: Path

    def journal(self, name: str = "out.ndjson") -> dict[str, Status]:
        return {r.case: r.status for r in read_journal(self.folder / name).cases()}

    def junit(self, name: str = "out.xml") -> ET.Element:
        return ET.parse(self.folder / name).getroot()

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []


class Lab:
    """Runs pytest with the fake machines, far from the repository."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.folder = pytester.path
        self.kernel = self.folder / "vmlinux"
        self.kernel.write_bytes(whole())
        self.script({})

    def script(self, cases: dict[str, str], **more: str) -> None:
        (self.folder / "script").write_text(json.dumps({"cases": cases, **more}))

    def run(
        self, *args: str, junit: bool = True, kernel: str | None = "vmlinux", apart: bool = False
    ) -> Done:
        """``apart``: in a process of its own.  Workers of xdist always are."""
        words = ["-p", "tests.unit.fake_machine", "-p", "no:cacheprovider"]
        words += ["-p", "no:hypothesispytest", *([f"--kernel={kernel}"] if kernel else [])]
        words += [*(["--junitxml=out.xml"] if junit else []), *args]
        if not apart and not any(a.startswith("-n") for a in args):
            result = self._pytester.runpytest_inprocess(*words)
            return Done(int(result.ret), result.stdout.str(), result.stderr.str(), self.folder)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr, self.folder)

    def ids(self, *args: str, **more: Any) -> list[str]:
        done = self.run("--collect-only", "-q", *args, junit=False, **more)
        return [line for line in done.out.splitlines() if "::" in line]


@pytest.fixture
def lab(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name in [
        n for n in os.environ if n.startswith(("PYTEST_", "CI", "BUILD_NUMBER", "KTEST_"))
    ]:
        monkeypatch.delenv(name)
    for name, value in {
        "PYTHONPATH": str(ROOT),
        "FAKE_SCRIPT": str(pytester.path / "script"),
        "FAKE_LOG": str(pytester.path / "log"),
        "KTEST_CACHE": str(pytester.path / "cache"),
        "COLUMNS": "200",
    }.items():
        monkeypatch.setenv(name, value)
    return Lab(pytester)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return WAYS[request.param]


def node(point: str) -> str:
    return f"{FILE}::{point}"


# Collection


def test_collects_every_case_and_every_trace_in_order(lab: Lab) -> None:
    ids = lab.ids()
    traces = [f"{FILE}::vmlinux.{e.id}" for e in FEATURE.expected("6.12", "x86_64")]
    mine = [i for i in ids if i.startswith(FILE)]
    assert mine == traces + [node(p) for p in POINTS]
    assert ids == lab.ids("-p", "no:xdist")


def test_node_ids_select_from_any_directory(lab: Lab) -> None:
    assert lab.ids(node(B), node(A)) == [node(B), node(A)]
    assert lab.ids(f"msg_ntcopy::{A}") == [node(A)]
    assert lab.ids(f"msg_ntcopy.toml::{A}") == [node(A)]
    assert lab.ids("msg_ntcopy")[-1] == node(POINTS[-1])
    path = ROOT / "ktest_ntcopy/features/msg_ntcopy.toml"
    assert lab.ids(f"{path}::{A}") == [node(A)]


def test_package_in_a_hidden_folder_of_the_project(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``.venv/lib/…/site-packages`` is, which pytest itself does not descend into."""
    site = lab.folder / ".venv/lib/site-packages"
    for name in ("ktest_ntcopy", "tools-testing-net"):
        shutil.copytree(ROOT / name, site / name)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
    (lab.folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    done = lab.run("-m", "vmlinux", apart=True)
    assert done.code == 0, done.out + done.err
    assert f"symbol.{fake.MARKER}" in done.journal()
    assert "journal" in done.out
    assert lab.run(node(A), "-n1").journal() == {A: Status.PASS}


def test_last_failed_runs_again(lab: Lab) -> None:
    lab.script({B: "fail"})
    assert lab.run(node(A), node(B), node(C), "-p", "cacheprovider").code == 1
    done = lab.run(node(A), node(B), node(C), "-p", "cacheprovider", "--lf")
    assert done.journal() == {B: Status.FAIL}


def test_keyword_and_marker_select(lab: Lab) -> None:
    fixture = A.partition(".")[0]
    chosen = lab.ids("-k", f"{fixture} and not vmlinux", "msg_ntcopy")
    assert chosen == [node(p) for p in POINTS if fixture in p]
    traces = lab.ids("-m", "vmlinux and msg_ntcopy")
    assert traces
    assert all("::vmlinux." in i for i in traces)
    assert not any("::vmlinux." in i for i in lab.ids("-m", "selftest"))
    assert lab.ids("-m", "ktest") == lab.ids()


def test_unknown_case_is_a_usage_error(lab: Lab) -> None:
    done = lab.run(node("no.such.case"))
    assert done.code == 4
    assert "not found" in done.err


def test_without_kernel_it_stays_away(lab: Lab) -> None:
    (lab.folder / "test_it.py").write_text("def test_it(): pass\n")
    done = lab.run(kernel=None)
    assert done.code == 0
    assert "1 passed" in done.out
    assert "journal" not in done.out
    assert done.junit().tag == "testsuites"  # pytest's own
    assert not (lab.folder / "out.ndjson").exists()


def test_guest_fixture_without_kernel_skips_with_the_reason(lab: Lab) -> None:
    (lab.folder / "test_it.py").write_text("def test_it(guest): pass\n")
    done = lab.run("-rs", kernel=None)
    assert "needs a kernel: pytest --kernel=PATH" in done.out


# Verdicts


def test_every_verdict(lab: Lab, way: tuple[str, ...]) -> None:
    lab.script({A: "fail", B: "skip", C: "xfail", D: "xpass", E: "silent", F: "timeout"})
    done = lab.run("-rA", "-m", "selftest", "msg_ntcopy", *way)
    assert done.code == 1, done.out + done.err
    passed = len(POINTS) - 6
    summary = done.out.splitlines()[-1]
    for text in ("4 failed", f"{passed} passed", "1 skipped", "1 xfailed"):
        assert text in summary
    journal = done.journal()
    assert list(journal) == list(POINTS)
    assert [journal[p] for p in POINTS[:6]] == ["fail", "skip", "xfail", "xpass", "error", "error"]
    assert re.search(r"SKIPPED \[1\] .*msg_ntcopy\.toml:\d+: no such protocol", done.out)
    assert "known to fail" in done.out
    assert "qemu" not in done.out.lower().split("kernel tests")[1]
    assert "fake, acceleration: tcg" in done.out


def test_a_failure_shows_what_a_person_needs(lab: Lab, way: tuple[str, ...]) -> None:
    lab.script({A: "fail", B: "panic"})
    done = lab.run(node(A), node(B), *way)
    assert f"file.c:12:{A}:Expected 1 (1) == 2 (2)" in done.out
    assert "Kernel panic - not syncing: Attempted to be silly" in done.out
    assert "before it" in done.out
    for hidden in ("items.py", "session.py", "Traceback", "CaseFailed", "_pytest"):
        assert hidden not in done.out, hidden
    line = f"pytest --kernel={lab.kernel} {node(A)}"
    assert line in done.out.splitlines()
    again = lab.run(*line.split()[2:], *way)
    assert again.code == 1
    assert "1 failed" in again.out


def test_a_panic_gets_the_next_case_a_new_machine(lab: Lab) -> None:
    lab.script({B: "panic"})
    done = lab.run(node(A), node(B), node(C), "-p", "no:xdist")
    assert done.journal() == {A: Status.PASS, B: Status.ERROR, C: Status.PASS}
    assert [x.split()[1] for x in done.log()] == [
        "build",
        "boot",
        "run",
        "run",
        "boot",
        "run",
        "close",
    ]


def test_a_panic_after_the_verdict_is_not_lost(lab: Lab, way: tuple[str, ...]) -> None:
    lab.script({A: "late-panic"})
    done = lab.run(node(A), node(B), *way)
    assert done.code == 1
    assert done.journal() == {A: Status.ERROR, B: Status.PASS}
    assert "after the case had its verdict" in done.out
    assert "kernel panic between: silly" in done.out


def test_a_panic_after_the_last_verdict_is_not_lost(lab: Lab, way: tuple[str, ...]) -> None:
    lab.script({A: "late-panic"})
    done = lab.run(node(A), *way)
    assert done.code == 1
    assert done.journal() == {A: Status.ERROR}


def test_boot_failure_is_an_error_of_every_case_but_tried_twice(
    lab: Lab, way: tuple[str, ...]
) -> None:
    lab.script({}, boot="fail")
    done = lab.run("msg_ntcopy", *way)
    assert done.code == 1
    assert f"{len(POINTS)} errors" in done.out
    assert "it never came up" in done.out
    assert "the console's last words" in done.out
    assert "Traceback" not in done.out
    boots = [x.split()[0] for x in done.log() if " boot " in x]
    assert all(boots.count(worker) == 2 for worker in set(boots))
    run = read_journal(lab.folder / "out.ndjson")
    assert {r.cause for r in run.cases() if r.target != "vmlinux"} == {"vm.boot"}


def test_host_that_cannot_boot_is_not_asked_twice(lab: Lab) -> None:
    lab.script({}, boot="host")
    done = lab.run(node(A), node(B))
    assert done.code == 1
    assert "no memory on this host" in done.out
    assert sum(" boot " in x for x in done.log()) == 1


def test_hostile_output_survives_the_way_to_the_reports(lab: Lab, way: tuple[str, ...]) -> None:
    lab.script({A: "hostile"})
    done = lab.run(node(A), *way)
    assert done.code == 1, done.out
    assert "INTERNALERROR" not in done.out
    assert len(done.junit().findall(".//failure")) == 1


# vmlinux


def test_traces_need_no_machine(lab: Lab) -> None:
    done = lab.run("-m", "vmlinux")
    assert done.code == 0
    assert done.log() == []


def test_kernel_without_the_feature_skips_its_traces(lab: Lab) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    done = lab.run("-m", "vmlinux", "-rs")
    assert done.code == 0, done.out
    assert "the kernel is without msg_ntcopy" in done.out
    missing = [c for c, s in done.journal().items() if s is Status.SKIP]
    assert f"symbol.{fake.MARKER}" in missing
    assert done.journal()["symbol.copy_to_nontemporal"] is Status.PASS


def test_half_a_feature_fails(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(without=[HONOURS]))
    done = lab.run("-m", "vmlinux", "msg_ntcopy", *way)
    assert done.code == 1
    verdicts = done.journal()
    assert verdicts[HONOURS] is Status.FAIL
    assert verdicts[f"symbol.{fake.MARKER}"] is Status.PASS
    assert Status.SKIP not in verdicts.values()


def test_a_failed_trace_says_all_that_is_known_of_it(lab: Lab) -> None:
    lab.kernel.write_bytes(whole(without=[HONOURS]))
    done = lab.run(f"msg_ntcopy::vmlinux.{HONOURS}")
    wanted = next(e for e in FEATURE.expectations if e.id == HONOURS)
    origin = f"[msg_ntcopy.toml:{wanted.line}: {wanted.why}]"
    assert f"expected {wanted}, found tcp_prot.ntcopy = 0 {origin}" in done.out


def test_required_feature_must_be_there(lab: Lab) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    done = lab.run("--ktest-require=msg_ntcopy", "msg_ntcopy")
    assert done.code == 1
    journal = done.journal()
    assert journal[f"symbol.{fake.MARKER}"] is Status.FAIL
    assert journal[A] is Status.FAIL
    assert f"expected symbol {fake.MARKER}, found nothing of that name" in done.out
    assert "msg_ntcopy is required, but the kernel is without msg_ntcopy" in done.out
    assert done.log() == []  # no machine can change that
    assert "--ktest-require=msg_ntcopy" in done.out


def test_features_can_be_required_by_the_environment(
    lab: Lab, way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    monkeypatch.setenv("KTEST_REQUIRE", "msg_ntcopy")
    done = lab.run("-m", "vmlinux", *way)
    assert done.code == 1
    assert Status.FAIL in done.journal().values()
    assert lab.run("-m", "vmlinux", "--ktest-require=", *way).code == 0
    monkeypatch.setenv("KTEST_REQUIRE", "msg_ntcopi")
    done = lab.run(*way)
    assert done.code == 4
    assert "KTEST_REQUIRE: no feature msg_ntcopi; did you mean msg_ntcopy?" in done.err


def test_tests_are_told_what_vmlinux_shows(lab: Lab) -> None:
    done = lab.run(node(A))
    shown = ",".join(sorted(f.name for f in load_features()))
    assert any(x.endswith(f"{A} {shown}") for x in done.log())
    # A kernel that cannot be looked into: the test finds out for itself.
    lab.kernel.write_bytes(fake.elf(symbols=[]))
    (lab.folder / "log").unlink()
    assert any(x.endswith(f"{A} -") for x in lab.run(node(A)).log())


def test_required_feature_that_cannot_be_looked_for_is_an_error(lab: Lab) -> None:
    lab.kernel.write_bytes(fake.elf(symbols=[fake.MARKER], config=fake.BOOTABLE))
    done = lab.run("-m", "vmlinux")
    assert done.code == 1
    journal = done.journal()
    assert journal["member.proto.ntcopy"] is Status.ERROR
    assert journal[f"symbol.{fake.MARKER}"] is Status.PASS
    assert "has no BTF (set CONFIG_DEBUG_INFO_BTF=y)" in done.out


# What the kernel file rules out

LOOPBACK = "CONFIG_VSOCKETS_LOOPBACK"


def test_what_the_file_rules_out_is_skipped_without_a_machine(
    lab: Lab, way: tuple[str, ...]
) -> None:
    lab.kernel.write_bytes(whole(unset=[LOOPBACK]))
    ruled_out = [p for p in POINTS if "vsock" in p]
    done = lab.run("-rs", *(node(p) for p in ruled_out[:3]), *way)
    assert done.code == 0, done.out
    assert done.journal() == dict.fromkeys(ruled_out[:3], Status.SKIP)
    assert f"{LOOPBACK} is not set in vmlinux" in done.out
    assert done.log() == []
    done = lab.run(node(A), node(ruled_out[0]), *way)
    assert done.journal() == {A: Status.PASS, ruled_out[0]: Status.SKIP}
    assert not any(ruled_out[0] in line for line in done.log())


def test_a_kernel_without_the_feature_boots_no_machine(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    done = lab.run(node(A), node(B), *way)
    assert done.code == 0
    assert done.journal() == {A: Status.SKIP, B: Status.SKIP}
    assert done.log() == []


def test_nothing_may_be_skipped(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(unset=[LOOPBACK]))
    lab.script({A: "skip"})
    (lab.folder / "test_own.py").write_text(
        "import pytest\ndef test_own(): pytest.skip('not today')\n"
        "@pytest.mark.xfail\ndef test_known(): assert False\n"
    )
    ruled_out = next(p for p in POINTS if "vsock" in p)
    tests = (node(A), node(B), node(ruled_out), "test_own.py")
    done = lab.run("--ktest-require-all", *tests, *way)
    assert done.code == 1
    journal = done.journal()
    assert journal.pop("test_own") is Status.FAIL
    assert journal.pop("test_known") is Status.XFAIL
    assert journal == {A: Status.FAIL, B: Status.PASS, ruled_out: Status.FAIL}
    forbids = "skipped, which --ktest-require-all forbids: "
    assert f"{forbids}{LOOPBACK} is not set in vmlinux" in done.out
    assert f"{forbids}no such protocol" in done.out
    assert f"{forbids}not today" in done.out
    assert f"--ktest-require-all '{node(A)}'" in done.out or f"require-all {node(A)}" in done.out
    assert lab.run(*tests, *way).code == 0


def test_what_does_not_apply_is_said(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(unset=["CONFIG_MODULES"]))
    done = lab.run("-m", "vmlinux", "-q", "--ktest-require-all", *way)
    assert done.code == 0, done.out
    lost = [e.id for f in load_features() for e in f.expectations if "CONFIG_MODULES" in e.needs]
    assert lost
    said = f"{len(lost)} expectations do not apply to this kernel"
    assert f"{said}, `ktest-ntcopy check` says why: {', '.join(lost)}" in done.out


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, ""),
        ({"build": "slow"}, "ktest: compiling the test programs …"),
        ({"boot": "slow"}, "ktest: a machine boots …"),
    ],
    ids=["quick", "build", "boot"],
)
def test_long_waits_are_explained(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], text: str
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0.1)
    lab.script({}, **more)
    done = lab.run(node(A))
    assert done.code == 0
    assert [x for x in done.out.splitlines() if "ktest: " in x] == ([text] if text else [])


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
    words = ["-m", "pytest", "-p", "tests.unit.fake_machine", "-p", "no:cacheprovider"]
    words += ["-p", "no:hypothesispytest", "--kernel=vmlinux", "--junitxml=out.xml", *args]
    limit = 100_000  # bytes a file may have: the plan fits, the results do not
    done = subprocess.run(
        ["prlimit", f"--fsize={limit}", sys.executable, *words, "msg_ntcopy", "test_own.py"],
        cwd=lab.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout
    assert "Traceback" not in done.stdout
    assert re.search("could be written; make room|cannot write the journal", done.stdout)
    assert "JUnit: " in done.stdout
    assert "cannot write the report" in done.stdout
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


# Input


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--kernel=none",), "no such file"),
        (("--kernel=",), "--kernel"),
        (("--kernel=caf\udce9",), r"caf\udce9': is not UTF-8; rename it"),
        (("--kernel=no\nwhere",), r"no\nwhere: no such file"),
        (("--kernel=script",), "script"),
        (("--ktest-tree=none",), "is no kernel source tree"),
        (("--ktest-qemu=no-such-qemu",), "no such program"),
        (("--ktest-require=msg_ntcopi",), "did you mean msg_ntcopy?"),
        (("--ktest-memory=1",), "--ktest-memory: 1 is not between"),
        (("--ktest-cpus=0",), "--ktest-cpus: 0 is not between"),
        (("--ktest-timeout-scale=nan",), "--ktest-timeout-scale"),
        (("--ktest-accel=magic",), "--ktest-accel"),
        (("--ktest-journal=script/journal",), "cannot write the journal"),
        (("--ktest-journal=out",), "is no regular file"),
        (("--junitxml=out",), "is no regular file"),
        (("--junitxml=fifo",), "is no regular file"),
        (("--junitxml=out.ndjson",), "is the journal's file too"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_bad_input_is_a_usage_error(lab: Lab, args: tuple[str, ...], text: str) -> None:
    (lab.folder / "out").symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    os.mkfifo(lab.folder / "fifo")
    done = lab.run(*args)
    assert done.code == 4, done.out + done.err
    assert text in done.err
    assert "Traceback" not in done.out + done.err
    assert done.log() == []


def test_help_is_shown_whatever_else_is_given(lab: Lab) -> None:
    done = lab.run("--kernel=/nonexistent", "--help")
    assert done.code == 0
    assert "--ktest-accel" in done.out
    assert lab.run("--kernel=/nonexistent", "--version").code == 0


def test_a_second_run_with_the_same_journal_is_refused(lab: Lab, way: tuple[str, ...]) -> None:
    journal = Journal.create(lab.folder / "out.ndjson")
    (lab.folder / "out.xml").write_text("<the first run's report/>")
    done = lab.run(*way)
    assert done.code == 4
    assert "another run is writing this journal" in done.out + done.err
    assert "Traceback" not in done.out + done.err
    assert (lab.folder / "out.xml").exists()
    assert (lab.folder / "out.ndjson").stat().st_size == 0
    journal.close()
    assert lab.run("-m", "vmlinux", *way).code == 0


@pytest.mark.parametrize("key", ["build", "make"])
def test_what_is_missing_is_said_before_any_test(lab: Lab, way: tuple[str, ...], key: str) -> None:
    lab.script({}, **{key: "fail"})
    done = lab.run(*way)
    assert done.code == 4, done.out + done.err
    text = done.out + done.err
    assert ("it does not compile" if key == "build" else "no such program on this host") in text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert not (lab.folder / "out.xml").exists()
    # What needs no machine runs nevertheless.
    assert lab.run("-m", "vmlinux", *way).code == 0


def test_kernel_that_cannot_boot_here(lab: Lab, way: tuple[str, ...]) -> None:
    config = {**fake.BOOTABLE, "CONFIG_VIRTIO_CONSOLE": "m"}
    lab.kernel.write_bytes(fake.elf(config=config, symbols=[fake.MARKER]))
    done = lab.run(*way)
    assert done.code == 4
    assert "CONFIG_VIRTIO_CONSOLE is a module" in done.out + done.err
    assert done.log() == []


def test_damaged_symbols_are_said_before_any_test(lab: Lab) -> None:
    image = fake.elf(symbols=["one"], config=fake.BOOTABLE)
    entry = (24).to_bytes(8, "little")  # ends the symbol table's section header
    lab.kernel.write_bytes(image.replace(entry, (25).to_bytes(8, "little")))
    done = lab.run()
    assert done.code == 4
    assert "entries of 25 bytes" in done.err
    assert "Traceback" not in done.out + done.err


def test_feature_without_tests_for_this_version(lab: Lab) -> None:
    lab.kernel.write_bytes(fake.elf(release="5.4.1", symbols=[fake.MARKER], config=fake.BOOTABLE))
    done = lab.run(node(A), "-rs")
    assert done.code == 0
    assert "msg_ntcopy has no tests for Linux 5.4, only for 6.12" in done.out
    assert done.journal() == {A: Status.SKIP}


# Python tests


def test_guest_fixture_shares_the_machine(lab: Lab, way: tuple[str, ...]) -> None:
    (lab.folder / "test_own.py").write_text(
        "from ktest_ntcopy.machine.base import Command\n"
        "def test_own(guest):\n"
        "    outcome = guest.run(Command(argv=('/bin/x', 'own')))\n"
        "    assert 'ok 1 own' in outcome.text\n"
    )
    done = lab.run("test_own.py", node(A), *way)
    assert done.code == 0, done.out
    assert done.journal() == {"test_own": Status.PASS, A: Status.PASS}
    boots = [x.split()[0] for x in done.log() if " boot " in x]
    assert len(boots) == len(set(boots))
    assert any("/bin/x own" in x for x in done.log())


def test_guest_fixture_tells_why_there_is_no_machine(lab: Lab) -> None:
    (lab.folder / "test_own.py").write_text(
        "from ktest_ntcopy.machine.base import Command\n"
        "def test_own(guest):\n"
        "    guest.run(Command(argv=('/bin/x', 'own')))\n"
    )
    lab.script({}, build="fail")
    done = lab.run("test_own.py")
    assert done.code == 1
    assert "it does not compile" in done.out
