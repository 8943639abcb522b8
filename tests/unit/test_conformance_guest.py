# SPDX-License-Identifier: GPL-2.0-only
"""Conformance tests in a guest: what the host makes of what guests say, or leave unsaid."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.guest import LOSSES, Reports, blamed, listen, tidy, verdicts
from ktest_ntcopy.errors import BootError
from ktest_ntcopy.machine.base import Chunk, ConsoleLine, End, Outcome
from tests.unit import fake_kernel
from tests.unit.spawned import run_pytest

A, B, C, D = ("conformance/test_x.py::test_" + n for n in "abcd")


def report(nodeid: str, when: str = "call") -> dict[str, Any]:
    return {**dict(blamed(nodeid, "")[0]), "when": when}


def lines(token: str, *records: dict[str, Any]) -> str:
    return "".join(f"\n{token} {json.dumps(r)}\n" for r in records)


def whole(token: str, nodeid: str) -> str:
    phases = [{"report": report(nodeid, when)} for when in ("setup", "call", "teardown")]
    return lines(token, {"start": nodeid}, *phases, {"finish": nodeid})


def ended(text: str, end: End = End.EXITED, code: int | None = 0, detail: str = "") -> Outcome:
    return Outcome(
        end=end,
        exit_code=code if end is End.EXITED else None,
        output=(Chunk(0.0, text.encode()),),
        console=(ConsoleLine(0.0, "Oops: the console"),) if end is not End.EXITED else (),
        detail=detail,
    )


class Guests:
    """Plays one guest after the other; each is a function of (node ids, token)."""

    def __init__(self, *guests: Callable[[Sequence[str], str], Outcome]) -> None:
        self.guests = list(guests)
        self.asked: list[list[str]] = []

    def __call__(self, nodeids: Sequence[str], token: str) -> Outcome:
        self.asked.append(list(nodeids))
        return self.guests.pop(0)(nodeids, token)


def summary(found: Sequence[tuple[str, Reports]]) -> dict[str, str]:
    """Node id -> "passed", or phase and first line of the failure."""
    assert len(found) == len(dict(found))
    told = {}
    for nodeid, reports in found:
        bad = [r for r in reports if r["outcome"] == "failed"]
        first = str(bad[0]["longrepr"]).split("\n")[0] if bad else ""
        told[nodeid] = f"{bad[0]['when']}: {first}" if bad else "passed"
    return told


def test_all_pass_in_one_guest() -> None:
    guests = Guests(lambda ids, token: ended("".join(whole(token, i) for i in ids)))
    found = list(verdicts([A, B, C], guests))
    assert summary(found) == {A: "passed", B: "passed", C: "passed"}
    assert guests.asked == [[A, B, C]]


def test_a_panic_is_blamed_on_the_test_that_ran() -> None:
    def dies(ids: Sequence[str], token: str) -> Outcome:
        text = whole(token, A) + lines(token, {"start": B})
        return ended(text, End.PANIC, detail="Kernel panic: silly")

    guests = Guests(dies, lambda ids, token: ended("".join(whole(token, i) for i in ids)))
    found = list(verdicts([A, B, C, D], guests))
    assert guests.asked == [[A, B, C, D], [C, D]]
    assert summary(found) == {
        A: "passed",
        B: "call: Kernel panic: silly",
        C: "passed",
        D: "passed",
    }
    (text,) = (r["longrepr"] for r in dict(found)[B] if r["outcome"] == "failed")
    assert "Oops: the console" in text


def test_a_panic_between_tests_costs_no_verdict() -> None:
    guests = Guests(
        lambda ids, token: ended(whole(token, A), End.PANIC, detail="x"),
        lambda ids, token: ended(whole(token, B)),
    )
    assert summary(list(verdicts([A, B], guests))) == {A: "passed", B: "passed"}


def test_pytest_that_exits_in_a_test() -> None:
    guests = Guests(
        lambda ids, token: ended(lines(token, {"start": A}) + "Timeout (0:00:30)!", code=1),
        lambda ids, token: ended(whole(token, B)),
    )
    found = summary(list(verdicts([A, B], guests)))
    assert "exit status 1 in the middle of this test" in found[A]
    assert found[B] == "passed"


@pytest.mark.parametrize(
    "outcome",
    [
        ended("No module named pytest", code=1),
        ended("", End.PANIC, detail="at once"),
        ended("", End.TIMEOUT, detail="over its limit"),
        ended("not found", code=4),
    ],
)
def test_a_guest_that_runs_nothing_is_asked_once(outcome: Outcome) -> None:
    guests = Guests(lambda ids, token: outcome)
    found = summary(list(verdicts([A, B], guests)))
    assert all(text.startswith("setup: ") for text in found.values())
    assert len(found) == 2


def test_trouble_in_the_guest_is_told() -> None:
    def fails(ids: Sequence[str], token: str) -> Outcome:
        return ended(lines(token, {"trouble": "conformance/x.py: ImportError"}), code=2)

    ((_, reports),) = verdicts([A], Guests(fails))
    assert "ImportError" in reports[0]["longrepr"]


def test_a_kernel_that_never_boots() -> None:
    def boot(ids: Sequence[str], token: str) -> Outcome:
        raise BootError("vmlinux: it never came up")

    found = summary(list(verdicts([A, B], Guests(boot))))
    assert set(found.values()) == {"setup: vmlinux: it never came up"}


def test_a_kernel_that_every_test_kills_is_given_up() -> None:
    ids = [f"t.py::test_{n}" for n in range(LOSSES + 5)]
    guests = Guests(
        *[lambda i, token: ended(lines(token, {"start": i[0]}), End.PANIC, detail="x")] * LOSSES
    )
    found = summary(list(verdicts(ids, guests)))
    assert [t.split(":")[0] for t in found.values()] == ["call"] * LOSSES + ["setup"] * 5


@given(st.text(max_size=300), st.lists(st.sampled_from([A, B, "foreign"]), max_size=6))
def test_hostile_output_never_breaks_listening(noise: str, starts: list[str]) -> None:
    token = "0123"
    records: list[Any] = [{"start": s} for s in starts]
    records += [{"report": None}, {"report": {"nodeid": []}}, {"finish": 3}, {"finish": ""}, 7, []]
    text = noise + "".join(f"\n{token} {json.dumps(r)}\n{noise}" for r in records)
    heard = listen(text, token, [A, B])
    assert set(heard.finished) <= {A, B}
    assert heard.running in ("", A, B)


def test_output_of_a_test_cannot_pass_for_the_reporter() -> None:
    heard = listen(lines("wrong", {"start": A}, {"finish": A}), "right", [A])
    assert not heard.finished
    assert "wrong" in heard.rest


def test_a_test_without_all_its_reports_has_no_verdict() -> None:
    phases = [{"report": report(A, when)} for when in ("setup", "call")]
    heard = listen(lines("w", {"start": A}, *phases, {"finish": A}), "w", [A])
    assert (heard.finished, heard.running) == ({}, A)


def test_reports_become_what_they_were() -> None:
    skipped = {**report(A), "outcome": "skipped", "longrepr": ["f.py", 3, "Skipped: why"]}
    tidied = tidy({**skipped, "user_properties": [["a", 1]], "sections": [["out", "text"]]})
    assert tidied["longrepr"] == ("f.py", 3, "Skipped: why")
    assert tidied["user_properties"] == [("a", 1)]
    assert tidied["sections"] == [("out", "text")]


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "great"},
        {"outcome": "skipped", "longrepr": None},
        {"longrepr": [1, 2]},
        {"duration": "long"},
        {"sections": [7]},
        {"user_properties": 7},
    ],
)
def test_reports_that_pytest_could_not_show_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        tidy({**report(A), **change})


# The whole way, with a "guest" that runs its commands on this kernel

HERE_MACHINE = """
import os, subprocess, time
from ktest_ntcopy.machine.base import Chunk, End, MachineInfo, Outcome

class Here:
    info = MachineInfo(kind="here", accel="native", arch="x86_64", release="6.12.117-test",
                       version="#1", boot_seconds=0.1, slowdown=1.0, command_line=("here",))
    alive = True

    def __init__(self, spec):
        self.spec = spec

    def boot(self):
        assert str(self.spec.share) == "/"
        with open(os.environ["HERE_LOG"], "a") as log:
            log.write("boot\\n")
        return self.info

    def run(self, command):
        assert command.root == "/host"
        done = subprocess.run(command.argv, env={"PATH": os.environ["PATH"], **command.env},
                              cwd=command.cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return Outcome(end=End.EXITED, exit_code=done.returncode,
                       output=(Chunk(0.0, done.stdout),), start=time.time())

    def close(self):
        pass

def pytest_ktest_make_machine(spec):
    return Here(spec)

def pytest_ktest_build_programs():
    with open(os.environ["HERE_LOG"], "a") as log:
        log.write("programs were made\\n")
    return {}
"""


@pytest.mark.parametrize("more", [[], ["-n2"], ["-p", "no:xdist"]], ids=["plain", "n2", "alone"])
def test_reports_of_the_guest_become_ours(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "here_machine.py").write_text(HERE_MACHINE)
    (tmp_path / "vmlinux").write_bytes(fake_kernel.with_feature())
    env = {"PYTHONPATH": str(tmp_path), "HERE_LOG": str(tmp_path / "log")}
    words = ["-p", "here_machine", "-p", "no:cacheprovider", f"--kernel={tmp_path}/vmlinux"]
    chosen = "(payload_arrives and unix_dgram) or (tls and tcp4)"
    words += [f"--junitxml={tmp_path}/out.xml", "-k", chosen, "conformance", "-rs"]
    done = run_pytest(*words, *more, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d passed", done.stdout)
    # One guest for all processes of the run, and no C programs for it.
    assert (tmp_path / "log").read_text() == "boot\n"
    cases = list(ET.parse(tmp_path / "out.xml").getroot().iter("testcase"))
    names = [c.get("name") for c in cases]
    assert "test_payload_arrives[unix_dgram-send]" in names
    assert {(c.get("classname") or "").rpartition("conformance")[2][1:] for c in cases} == {
        "test_msg_ntcopy"
    }
    skipped = [s.get("message") or "" for c in cases for s in c.iter("skipped")]
    assert all(s.startswith("kernel TLS: CONFIG_") for s in skipped)
