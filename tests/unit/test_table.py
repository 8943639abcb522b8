# SPDX-License-Identifier: GPL-2.0-only
"""The table a person reads after a run."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.report.table import to_table
from ktest_ntcopy.results.journal import Header, Run
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.results.splats import SPLATS_MAX

BASE = Result(
    target="kselftest.net",
    program="msg_ntcopy",
    case="stream.tcp6.payload",
    status=Status.PASS,
    start=1000.0,
    duration=0.5,
)
HEADER = Header(
    start=999.0, release="6.12.117", arch="x86_64", machine="qemu", accel="tcg", slowdown=2.0
)
FAIL = replace(
    BASE,
    case="stream.tcp6.fault",
    status=Status.FAIL,
    cause=Cause.ASSERTION,
    message="m.c:23:fault:Expected EFAULT (14) == errno (9)",
    reproducer="pytest --kernel=vmlinux 'tests::stream.tcp6.fault'",
)
RUN = Run(
    header=HEADER,
    results=(
        BASE,
        FAIL,
        replace(BASE, case="dgram.udp.payload", status=Status.SKIP, message="no IPv4"),
        replace(BASE, case="dgram.udp.fault", status=Status.SKIP, message="no IPv4"),
        replace(BASE, case="lonely"),
    ),
)


def row(text: str, start: str) -> list[str]:
    (found,) = [x for x in text.split("\n") if x.startswith(start)]
    return found[len(start) :].split()


def test_counts_per_program_and_variant() -> None:
    text = to_table(RUN, width=100)
    assert text.split("\n")[0].split() == ["pass", "fail", "skip"]
    assert row(text, "kselftest.net: msg_ntcopy") == ["2", "1", "2"]
    assert row(text, "  stream.tcp6") == ["1", "1", "."]
    assert row(text, "  dgram.udp") == [".", ".", "2"]
    assert row(text, "  (alone)") == ["1", ".", "."]


def test_failures_show_message_cause_and_reproducer() -> None:
    lines = to_table(RUN, width=100).split("\n")
    at = lines.index("FAIL msg_ntcopy stream.tcp6.fault [assertion]")
    assert lines[at + 1] == "  m.c:23:fault:Expected EFAULT (14) == errno (9)"
    assert lines[at + 2] == "  $ pytest --kernel=vmlinux 'tests::stream.tcp6.fault'"


def test_only_what_fails_the_run_is_shown_as_failure() -> None:
    expected = replace(FAIL, status=Status.XFAIL, case="a.b.known")
    surprise = replace(FAIL, status=Status.XPASS, case="a.b.surprise")
    text = to_table(Run(results=(*RUN.results, expected, surprise)), width=100)
    assert "XPASS msg_ntcopy a.b.surprise" in text
    assert "a.b.known" not in text
    assert "dgram.udp.payload" not in text


def test_tabs_do_not_break_the_width() -> None:
    text = to_table(Run(results=(replace(FAIL, console="a\tb\t" * 40),)), width=60)
    assert "\t" not in text
    assert "  | a       b" in text


def test_skip_reasons_are_shown_once() -> None:
    assert to_table(RUN, width=100).count("SKIP 2 x no IPv4") == 1


def test_summary_is_the_last_line() -> None:
    assert to_table(RUN, width=100).split("\n")[-2] == (
        "5 cases: 2 pass, 1 fail, 2 skip; Linux 6.12.117 x86_64; qemu tcg (x2.0); 1.5 s"
    )


def test_the_splat_is_shown_rather_than_the_end_of_the_console() -> None:
    console = "\n".join(
        [
            *(f"[    1.000000] noise {n}" for n in range(100)),
            "[    2.000000] BUG: Bad page state in process a  pfn:1",
            *(f"[    3.000000] noise {n}" for n in range(100)),
        ]
    )
    splat = replace(FAIL, console=console, cause=Cause.SPLAT)
    text = to_table(Run(results=(splat,)), width=100)
    assert "  | [    2.000000] BUG: Bad page state" in text
    assert "189 more console lines are in the report" in text


def test_console_without_a_splat_shows_its_end() -> None:
    console = "\n".join(f"[    1.000000] line {n}" for n in range(100))
    text = to_table(Run(results=(replace(FAIL, console=console),)), width=100)
    assert "line 99" in text
    assert "line 80" not in text


def test_nothing_was_run() -> None:
    assert to_table(Run(), width=80) == "no case was run\n"


def test_journal_problems_are_shown() -> None:
    assert "journal: line 7 is torn" in to_table(replace(RUN, problems=("line 7 is torn",)))


def test_colour_is_only_there_if_asked_for() -> None:
    plain, painted = to_table(RUN, width=100), to_table(RUN, width=100, colour=True)
    assert "\x1b" not in plain
    assert "\x1b[1;31mFAIL\x1b[0m" in painted
    assert painted.count("\x1b[") % 2 == 0


@pytest.mark.parametrize("width", [1, 40, 60, 200])
def test_width_is_kept_but_reproducers_are_whole(width: int) -> None:
    long = replace(
        FAIL,
        case="a" * 150 + ".b.c",
        message="word " * 60,
        reproducer="pytest " + "x" * 300,
        console="[    1.000000] " + "y" * 300,
    )
    text = to_table(replace(RUN, results=(*RUN.results, long)), width=width)
    assert "pytest " + "x" * 300 in text
    head = text.split("\n\n")[0].split("\n")
    assert all(len(x) <= max(width, 40) for x in head)
    assert all(
        len(x) <= max(width, 40) for x in text.split("\n") if x.startswith(("  |", "  word"))
    )


@settings(deadline=None)
@given(st.text(), st.text(), st.sampled_from(Status), st.integers(0, 300))
def test_hostile_text_cannot_reach_the_terminal(
    name: str, text: str, status: Status, width: int
) -> None:
    hostile = replace(
        BASE, case=name, program=text, status=status, message=text, console=text, reproducer=text
    )
    shown = to_table(Run(header=replace(HEADER, release=text), results=(hostile,)), width=width)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in shown if c != "\n")
    assert not set("\u200b\u202a\u202e\u2066\u2028\ufeff") & set(shown)


@pytest.mark.parametrize("char", ["\x1b", "\x00", "\x9b", "\u202e", "\u2028", "\ud800", "\ufeff"])
def test_no_control_reaches_the_terminal(char: str) -> None:
    hostile = replace(FAIL, case=f"a{char}b", message=f"c{char}d", console=f"e{char}f")
    assert char not in to_table(Run(results=(hostile,)), width=80)


def test_a_console_full_of_splats_is_bounded() -> None:
    console = "\n".join(["[    1.000000] BUG: Bad page map in process a"] * (2 * SPLATS_MAX))
    text = to_table(Run(results=(replace(FAIL, console=console),)), width=100)
    assert len(text.split("\n")) < 40
