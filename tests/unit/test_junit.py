# SPDX-License-Identifier: GPL-2.0-only
"""JUnit that importers take, whatever the guest printed."""

from __future__ import annotations

import os
import re
import stat
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml, xunit2

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.machine.base import Chunk, ConsoleLine, End, Outcome
from ktest_ntcopy.report.junit import to_junit, write_junit
from ktest_ntcopy.report.main import report
from ktest_ntcopy.results.journal import Header, Journal, Run, read_journal
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.results.verdict import Case, judge
from tests.unit.effort import cpu_below

HEADER = Header(
    run="r1",
    tool="0.1",
    command=("pytest", "--kernel=vmlinux"),
    start=1_700_000_000.5,
    kernel="/k/vmlinux",
    release="6.12.117",
    arch="x86_64",
    machine="qemu",
    accel="tcg",
    slowdown=2.0,
    boot_seconds=1.5,
    machine_command=("qemu-system-x86_64", "-M", "q35"),
    config_hash="c0ffee",
    commit="deadbeef",
    properties={"feature": "msg_ntcopy"},
)


def result(
    case: str, status: Status = Status.PASS, cause: Cause = Cause.NONE, **more: object
) -> Result:
    base = Result(
        target="kselftest.net", program="msg_ntcopy", case=case, status=status, cause=cause
    )
    return replace(base, duration=0.25, **more)  # type: ignore[arg-type]


ONE_OF_EACH = Run(
    header=HEADER,
    results=(
        result("tcp6.pass", detail="ok 1\n"),
        result(
            "tcp6.fail",
            Status.FAIL,
            Cause.ASSERTION,
            message="m.c:1:fail:Expected 1 == 2",
            detail="# m.c:1:fail:Expected 1 == 2\n",
            console="[    1.000000] hello\n",
            reproducer="pytest -k 'tcp6.fail'",
            nodeid="a::b",
            worker="gw0",
            properties={"splat.fingerprint": "0123456789ab", "ktap.directive": "EXIT"},
        ),
        result("tcp6.skip", Status.SKIP, Cause.SKIP, message="no tracefs"),
        result("tcp6.xfail", Status.XFAIL, Cause.XFAIL, message="known"),
        result("tcp6.xpass", Status.XPASS, Cause.XPASS, message="passed"),
        result("tcp6.panic", Status.ERROR, Cause.PANIC, message="Kernel panic"),
        replace(result("bind"), program="fib_tests.sh", target="kselftest.net"),
        replace(result("sock_flags"), target="vmlinux", program="msg_ntcopy"),
    ),
)


def parsed(run: Run) -> ET.Element:
    return ET.fromstring(to_junit(run))


def properties(element: ET.Element) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in element.findall("properties/property")}


def case_of(root: ET.Element, name: str) -> ET.Element:
    found = [c for c in root.iter("testcase") if c.attrib["name"] == name]
    assert len(found) == 1
    return found[0]


VERDICTS = {"failure", "error", "skipped"}
TIME = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")


def check_dialect(data: bytes) -> ET.Element:
    """What the importers rely on; what junit-10 calls the types of the attributes."""
    root = ET.fromstring(data)
    assert root.tag == "testsuites"
    assert set(root.attrib) <= {"name", "tests", "failures", "errors", "time"}
    sums = {"tests": 0, "failures": 0, "errors": 0}
    names = [s.attrib["name"] for s in root]
    assert len(names) == len(set(names)), "one suite per target"
    for suite in root:
        assert suite.tag == "testsuite"
        assert {x.tag for x in suite} <= {"properties", "testcase"}, "suites are flat"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        counts = dict.fromkeys(("tests", "failure", "error", "skipped"), 0)
        seen = set()
        for case in suite.findall("testcase"):
            assert set(case.attrib) == {"name", "classname", "time"}
            assert case.attrib["name"]
            assert case.attrib["classname"].startswith(suite.attrib["name"] + ".")
            assert TIME.fullmatch(case.attrib["time"])
            # An importer joins both into a name, dots becoming underscores.
            joined = case.attrib["classname"].replace(".", "_") + "_" + case.attrib["name"]
            assert joined not in seen
            seen.add(joined)
            tags = [x.tag for x in case]
            assert tags == sorted(tags, key=["properties", *sorted(VERDICTS), "system-out"].index)
            assert len(tags) == len(set(tags))
            verdicts = [x for x in case if x.tag in VERDICTS]
            assert len(verdicts) <= 1
            counts["tests"] += 1
            for verdict in verdicts:
                counts[verdict.tag] += 1
                assert set(verdict.attrib) == {"message", "type"}
                assert verdict.attrib["message"]
                assert verdict.attrib["type"]
                assert "\n" not in verdict.attrib["message"]
        assert TIME.fullmatch(suite.attrib["time"])
        assert int(suite.attrib["tests"]) == counts["tests"]
        assert int(suite.attrib["failures"]) == counts["failure"]
        assert int(suite.attrib["errors"]) == counts["error"]
        assert int(suite.attrib["skipped"]) == counts["skipped"]
        sums["tests"] += counts["tests"]
        sums["failures"] += counts["failure"]
        sums["errors"] += counts["error"]
    assert {k: int(root.attrib[k]) for k in sums} == sums
    return root


def test_dialect() -> None:
    root = check_dialect(to_junit(ONE_OF_EACH))
    assert [s.attrib["name"] for s in root] == ["kselftest.net", "vmlinux"]
    assert root.attrib["tests"] == "8"
    assert (root.attrib["failures"], root.attrib["errors"]) == ("2", "1")
    assert root[0].attrib["timestamp"] == "2023-11-14T22:13:20"
    assert to_junit(ONE_OF_EACH).startswith(b"<?xml version='1.0' encoding='utf-8'?>")


def test_program_has_no_dots_in_the_classname() -> None:
    classname = case_of(parsed(ONE_OF_EACH), "bind").attrib["classname"]
    assert classname == "kselftest.net.fib_tests_sh"


@pytest.mark.parametrize(
    ("name", "tag", "kind", "message"),
    [
        ("tcp6.fail", "failure", "assertion", "m.c:1:fail:Expected 1 == 2"),
        ("tcp6.skip", "skipped", "ktap.skip", "no tracefs"),
        ("tcp6.xfail", "skipped", "ktap.xfail", "known"),
        ("tcp6.xpass", "failure", "ktap.xpass", "passed"),
        ("tcp6.panic", "error", "kernel.panic", "Kernel panic"),
    ],
)
def test_each_verdict(name: str, tag: str, kind: str, message: str) -> None:
    case = case_of(parsed(ONE_OF_EACH), name)
    verdicts = [x for x in case if x.tag in VERDICTS]
    assert [(x.tag, x.attrib["type"], x.attrib["message"]) for x in verdicts] == [
        (tag, kind, message)
    ]


def test_suite_properties() -> None:
    facts = properties(parsed(ONE_OF_EACH)[0])
    assert facts["kernel.release"] == "6.12.117"
    assert (facts["arch"], facts["accel"]) == ("x86_64", "tcg")
    assert (facts["kernel.config_hash"], facts["kernel.commit"]) == ("c0ffee", "deadbeef")
    assert facts["machine.command"] == "qemu-system-x86_64 -M q35"
    assert facts["feature"] == "msg_ntcopy"
    assert "journal.problems" not in facts


def test_case_properties_and_output() -> None:
    case = case_of(parsed(ONE_OF_EACH), "tcp6.fail")
    facts = properties(case)
    assert facts["reproducer"] == "pytest -k 'tcp6.fail'"
    assert facts["splat.fingerprint"] == "0123456789ab"
    assert (facts["status"], facts["attempt"], facts["worker"]) == ("fail", "1", "gw0")
    failure, output = case.find("failure"), case.find("system-out")
    assert failure is not None
    assert failure.text
    assert "reproduce: pytest -k 'tcp6.fail'" in failure.text
    assert output is not None
    assert output.text == (
        "# m.c:1:fail:Expected 1 == 2\n--- kernel console ---\n[    1.000000] hello"
    )


def test_retried_case_is_one_case_that_tells_of_its_failure() -> None:
    run = Run(
        results=(
            result("a", Status.FAIL, Cause.ASSERTION, message="first"),
            result("a", attempt=2),
        )
    )
    root = check_dialect(to_junit(run))
    assert root.attrib["failures"] == "0"
    facts = properties(case_of(root, "a"))
    assert (facts["attempt.1"], facts["flaky"]) == ("fail: first", "true")


def test_cases_that_were_not_run_are_errors() -> None:
    run = Run(header=replace(HEADER, planned=(("kselftest.net", "p", "gone"),)))
    error = case_of(check_dialect(to_junit(run)), "gone").find("error")
    assert error is not None
    assert error.attrib["type"] == "not.run"


def test_problems_of_the_journal_are_told() -> None:
    run = replace(ONE_OF_EACH, problems=("line 3 is not a record (torn)",))
    assert "line 3" in properties(parsed(run)[0])["journal.problems"]


def test_an_empty_run_is_still_a_document() -> None:
    root = check_dialect(to_junit(Run()))
    assert root.attrib["tests"] == "0"


def test_terminal_escapes_and_controls_become_text() -> None:
    run = Run(results=(result("a", detail="\x1b[31mred\x1b[0m\x00\x07\r\nnext\rline\udcff\ufffe"),))
    output = case_of(parsed(run), "a").find("system-out")
    assert output is not None
    assert output.text == "red\\x00\\x07\nnext\nline\\udcff\\ufffe"


HOSTILE = st.text(alphabet=st.characters(codec=None)) | st.binary().map(
    lambda b: b.decode("utf-8", "surrogateescape")
)


@settings(deadline=None)
@given(
    texts=st.lists(HOSTILE, min_size=7, max_size=7),
    status=st.sampled_from(Status),
    cause=st.sampled_from(Cause),
    number=st.floats(),
)
def test_always_well_formed(texts: list[str], status: Status, cause: Cause, number: float) -> None:
    name, message, detail, console, reproducer, key, value = texts
    hostile = result(
        name,
        status,
        cause,
        message=message,
        detail=detail,
        console=console,
        reproducer=reproducer,
        properties={key: value},
    )
    hostile = replace(hostile, duration=number, start=number)
    header = replace(HEADER, release=value, start=number, properties={key: value})
    run = Run(header=header, results=(hostile,), problems=(message,))
    data = to_junit(run)
    check_dialect(data)
    for reader in (JUnitXml, xunit2.JUnitXml):
        suites = list(reader.fromstring(data))
        assert len(list(suites[0])) == 1


@settings(deadline=None)
@given(output=st.binary(), line=HOSTILE, end=st.sampled_from(End))
def test_whatever_a_guest_printed(output: bytes, line: str, end: End) -> None:
    outcome = Outcome(
        end=end, exit_code=0, output=(Chunk(0.0, output),), console=(ConsoleLine(0.0, line),)
    )
    case = Case(target="kselftest.net", program="p", case="c")
    check_dialect(to_junit(Run(results=(judge(case, outcome),))))


def test_writing_replaces_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "junit.xml"
    write_junit(Run(), path)
    write_junit(ONE_OF_EACH, path)
    assert path.read_bytes() == to_junit(ONE_OF_EACH)
    assert [p.name for p in path.parent.iterdir()] == ["junit.xml"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o400


def test_a_report_that_cannot_be_written_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot write the report"):
        write_junit(ONE_OF_EACH, tmp_path / "file" / "junit.xml")
    (tmp_path / "dir").mkdir()
    with pytest.raises(ConfigError, match="cannot write the report"):
        write_junit(ONE_OF_EACH, tmp_path / "dir")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dir", "file"]


def test_report_from_a_journal(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j") as journal:
        journal.header(HEADER)
        for one in ONE_OF_EACH.results:
            journal.append(one)
    table, good = report(tmp_path / "j", junitxml=tmp_path / "x.xml", width=100)
    assert not good
    assert "8 cases" in table
    assert check_dialect((tmp_path / "x.xml").read_bytes()).attrib["tests"] == "8"


def test_two_thousand_results_take_well_under_a_second(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "golden" / "harness_fail.txt").read_bytes()
    console = tuple(ConsoleLine(float(n), f"[    1.{n:06d}] line {n}") for n in range(20))
    outcome = Outcome(
        end=End.EXITED, exit_code=1, output=(Chunk(0.0, text),), console=console, duration=0.1
    )
    # Quadratic work would be minutes.
    with cpu_below(1.0):
        with Journal.create(tmp_path / "j") as journal:
            journal.header(HEADER)
            for n in range(2000):
                case = Case(target="kselftest.net", program=f"p{n}", case="stream.tcp6.fault")
                journal.append(judge(case, outcome))
        data = to_junit(read_journal(tmp_path / "j"))
    assert data.count(b"<testcase ") == 2000


def test_report_replaces_only_regular_files(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    with Journal.create(journal) as open_journal:
        open_journal.header(Header(run="r"))
    before = journal.read_bytes()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("j")
    (tmp_path / "twin").hardlink_to(journal)
    for name in ("fifo", "folder"):
        with pytest.raises(ConfigError, match=f"{name}: cannot write the report: is no regular"):
            report(journal, junitxml=tmp_path / name)
    for name in ("j", "link", "twin"):
        with pytest.raises(ConfigError, match=f"{name}: is the journal; give the report another"):
            report(journal, junitxml=tmp_path / name)
    with pytest.raises(ConfigError, match="/dev/null: cannot write the report"):
        report(journal, junitxml="/dev/null")
    assert journal.read_bytes() == before
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"j", "fifo", "folder", "link", "twin"}
