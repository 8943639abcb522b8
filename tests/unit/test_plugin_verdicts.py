# SPDX-License-Identifier: GPL-2.0-only
"""How cases that pass, fail, hang or take their machine along are told."""

from __future__ import annotations

import re

import pytest

from ktest_ntcopy import waiting
from ktest_ntcopy.results.journal import read_journal
from ktest_ntcopy.results.model import Status
from tests.unit.plugin_lab import POINTS, A, B, C, D, E, F, Lab, node
from tests.unit.plugin_lab import lab as lab  # a fixture
from tests.unit.plugin_lab import way as way  # a fixture

pytest_plugins = ["pytester"]


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


# Waits


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
