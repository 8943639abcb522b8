# SPDX-License-Identifier: GPL-2.0-only
"""From a real guest to JUnit: what a program did is what the report says."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from ktest_ntcopy.report.main import report
from ktest_ntcopy.results.journal import Header, Journal
from ktest_ntcopy.results.model import Cause, Status
from ktest_ntcopy.results.verdict import Case, judge

from .conftest import Guests

#: Program and arguments -> what has to be reported.
EXPECTED = {
    ("claims", "ok"): (Status.PASS, Cause.NONE, ""),
    ("claims", "exit"): (Status.FAIL, Cause.EXIT, "exit status 1 contradicts"),
    ("claims", "splat"): (Status.FAIL, Cause.SPLAT, "BUG: Bad page state in process claims"),
    ("die",): (Status.ERROR, Cause.SIGNAL, "killed by SIGSEGV"),
    ("flood",): (Status.ERROR, Cause.FLOOD, "output limit"),
    ("spin",): (Status.ERROR, Cause.TIMEOUT, "over its time limit"),
    ("hog",): (Status.ERROR, Cause.OOM, "out-of-memory killer"),
    ("noise",): (Status.ERROR, Cause.BAIL_OUT, "gave up"),
    ("sayings",): (Status.ERROR, Cause.EXIT, "exit status"),
    ("absent",): (Status.ERROR, Cause.EXIT, "not found"),
    ("panic",): (Status.ERROR, Cause.PANIC, "sysrq triggered crash"),
    ("power", "off"): (Status.ERROR, Cause.DOWN, "powered off"),
}


def test_each_end_is_reported_as_what_it_was(guests: Guests, tmp_path: Path) -> None:
    seen = {}
    with Journal.create(tmp_path / "journal") as journal:
        for argv in EXPECTED:
            info = guests.machine.info
            journal.header(Header.of_machine(info))
            limit = 0.3 if argv == ("spin",) else 30.0
            outcome = guests.run(*argv, timeout=limit, output_limit=100_000)
            case = Case(target="kselftest.net", program=argv[0], case=".".join(argv))
            result = judge(case, outcome, slowdown=info.slowdown)
            journal.append(result)
            seen[argv] = result
    for argv, (status, cause, message) in EXPECTED.items():
        result = seen[argv]
        assert (argv, result.status, result.cause) == (argv, status, cause), result.message
        assert message in result.message
    assert "sysrq triggered crash" in seen["panic",].console
    assert "Bad page state" in seen["claims", "splat"].console

    table, good = report(tmp_path / "journal", junitxml=tmp_path / "junit.xml", width=100)
    assert not good
    assert table.rstrip().split("\n")[-1].startswith("12 cases: 1 pass, 2 fail, 9 error; Linux ")
    cases = {c.attrib["name"]: c for c in ET.parse(tmp_path / "junit.xml").iter("testcase")}
    for argv, (status, cause, _) in EXPECTED.items():
        tags = [(x.tag, x.attrib["type"]) for x in cases[".".join(argv)] if "type" in x.attrib]
        tag = "failure" if status is Status.FAIL else "error"
        assert tags == ([] if status is Status.PASS else [(tag, cause.value)])
