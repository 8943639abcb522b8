# SPDX-License-Identifier: GPL-2.0-only
"""What was written is read, whole, torn or from a later version, and merged by case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ktest_ntcopy.machine.base import MachineInfo
from ktest_ntcopy.results.journal import Header, Journal, Run, merge, read_journal, read_lines
from ktest_ntcopy.results.model import Cause, Result, Status
from tests.unit.journal_samples import HEADER, RESULT

INFO = MachineInfo(
    kind="qemu",
    accel="tcg",
    arch="x86_64",
    release="6.12.117",
    version="#1 SMP",
    boot_seconds=1.5,
    slowdown=2.0,
    command_line=("qemu-system-x86_64", "-M", "q35"),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.ndjson"
    with Journal.create(path) as journal:
        journal.header(HEADER)
        journal.append(RESULT)
    run = read_journal(path)
    assert run == Run(header=HEADER, results=(RESULT,))
    lines = path.read_bytes().split(b"\n")
    assert len(lines) == 3
    assert [json.loads(x)["kind"] for x in lines[:2]] == ["header", "result"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), number=st.floats(allow_nan=False, allow_infinity=False), n=st.integers(0, 9))
def test_any_text_comes_back(tmp_path: Path, text: str, number: float, n: int) -> None:
    result = replace(
        RESULT, message=text, detail=text, case=text, duration=number, properties={text: text}
    )
    result = replace(result, attempt=n)
    with Journal.create(tmp_path / "j") as journal:
        journal.append(result)
        journal.append(RESULT)
    assert read_journal(tmp_path / "j").results == (result, RESULT)


def test_clocks_that_give_no_number_do_not_break_a_line(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j") as journal:
        journal.append(replace(RESULT, duration=float("nan"), start=float("inf")))
    run = read_journal(tmp_path / "j")
    assert (run.results[0].duration, run.results[0].start) == (0.0, 0.0)


def test_create_empties_and_open_adds(tmp_path: Path) -> None:
    path = tmp_path / "j"
    for start in (Journal.create, Journal.open, Journal.create, Journal.open):
        with start(path) as journal:
            journal.append(RESULT)
    assert len(read_journal(path).results) == 2


def test_a_torn_last_line_is_a_problem_and_the_rest_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.append(RESULT)
        journal.append(RESULT)
    path.write_bytes(path.read_bytes()[:-40])
    run = read_journal(path)
    assert run.results == (RESULT,)
    assert len(run.problems) == 1
    assert "line 2" in run.problems[0]
    assert "torn" in run.problems[0]


def test_writing_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"kind":"result","tar')
    with Journal.open(path) as journal:
        journal.append(RESULT)
    run = read_journal(path)
    assert run.results == (RESULT,)
    assert len(run.problems) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[1, 2]",
        b"3",
        b"null",
        b'{"no": "kind"}',
        b'{"kind": "result"}',
        b'{"kind": "result", "target": 1, "program": "p", "case": "c", "status": "pass"}',
        b'{"kind": "result", "target": "t", "program": "p", "case": "c", "status": "odd"}',
        b'{"kind": "result", "target": "t", "program": "p", "case": "c", "status": "pass", '
        b'"attempt": true}',
        b'{"kind": "header", "schema": 1, "planned": [["a"]]}',
        b"[" * 100_000,
    ],
)
def test_lines_that_are_no_record(line: bytes) -> None:
    run = read_lines([line + b"\n", b'{"kind":"later"}\n', b"\n"])
    assert run.results == ()
    assert len(run.problems) == 1
    assert len(run.problems[0]) < 250


@settings(deadline=None)
@given(st.lists(st.binary(), max_size=5))
def test_any_bytes_are_read(lines: list[bytes]) -> None:
    assert isinstance(read_lines(lines), Run)


def test_a_later_version_is_read_as_far_as_possible() -> None:
    record = {
        "kind": "result",
        "target": "t",
        "program": "p",
        "case": "c",
        "status": "fail",
        "cause": "quantum.flip",
        "spin": [1],
        "duration": 3,
    }
    run = read_lines(
        [b'{"kind":"header","schema":9,"release":"8.0"}\n', json.dumps(record).encode() + b"\n"]
    )
    assert run.header.release == "8.0"
    assert (run.results[0].cause, run.results[0].duration) == (Cause.OTHER, 3.0)
    assert "schema 9" in run.problems[0]


def test_headers_of_several_processes_add_up(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as one, Journal.open(path) as two:
        one.header(HEADER)
        two.header(Header.of_machine(INFO))
        two.header(replace(Header.of_machine(INFO), slowdown=3.0))
        one.header(Header(start=5.0, planned=(("a", "b", "c"), HEADER.planned[0])))
    run = read_journal(path)
    assert run.problems == ()
    header = run.header
    assert (header.release, header.accel, header.machine) == ("6.12.117", "tcg", "qemu")
    assert (header.kernel, header.start, header.slowdown) == ("/k/vmlinux", 5.0, 3.0)
    assert header.machine_command[0] == "qemu-system-x86_64"
    assert header.planned == (HEADER.planned[0], ("a", "b", "c"))


def test_two_kernels_in_one_journal_are_a_problem() -> None:
    lines = [b'{"kind":"header","schema":1,"release":"%s"}\n' % x for x in (b"6.12", b"7.3")]
    run = read_lines(lines)
    assert run.header.release == "6.12"
    assert run.problems == ("two headers disagree on release: '6.12' and '7.3'",)


def record(status: Status, attempt: int = 1, message: str = "") -> Result:
    return replace(RESULT, status=status, attempt=attempt, message=message)


def test_the_worst_of_one_attempt_counts() -> None:
    order = [Status.PASS, Status.XFAIL, Status.SKIP, Status.XPASS, Status.FAIL, Status.ERROR]
    for index, worse in enumerate(order):
        for better in order[:index]:
            assert merge([record(better), record(worse)]).status is worse
            assert merge([record(worse), record(better)]).status is worse


def test_a_worker_that_died_after_its_pass_makes_an_error() -> None:
    crash = replace(record(Status.ERROR), cause=Cause.WORKER)
    assert merge([record(Status.PASS), crash]).cause is Cause.WORKER


def test_the_last_attempt_counts_and_the_earlier_are_told() -> None:
    merged = merge([record(Status.FAIL, 1, "flaked"), record(Status.PASS, 2)])
    assert merged.status is Status.PASS
    assert merged.properties["attempt.1"] == "fail: flaked"
    assert (merged.properties["attempts"], merged.properties["flaky"]) == ("2", "true")
    assert merged.properties["end"] == "exited"
    assert "flaky" not in merge([record(Status.FAIL, 1), record(Status.FAIL, 2)]).properties


def test_the_same_record_twice_is_one_case() -> None:
    assert merge([RESULT, RESULT]) == RESULT


def test_nothing_to_merge() -> None:
    with pytest.raises(ValueError, match="no records"):
        merge([])


def test_planned_cases_that_were_never_reached_are_errors() -> None:
    plan = tuple(("kselftest.net", "msg_ntcopy", c) for c in ("a", "tcp6.payload", "z"))
    extra = replace(RESULT, case="surprise", status=Status.PASS)
    run = Run(header=Header(planned=plan), results=(extra, RESULT))
    assert [(c.case, c.cause) for c in run.cases()] == [
        ("a", Cause.NOT_RUN),
        ("tcp6.payload", Cause.ASSERTION),
        ("z", Cause.NOT_RUN),
        ("surprise", Cause.ASSERTION),
    ]
    assert "not run" in run.cases()[0].message
    assert not run.ok


def test_a_run_is_good_only_with_cases_that_are() -> None:
    assert not Run().ok
    assert Run(results=(record(Status.PASS), replace(RESULT, case="b", status=Status.XFAIL))).ok
    assert not Run(results=(record(Status.XPASS),)).ok
