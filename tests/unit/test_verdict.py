# SPDX-License-Identifier: GPL-2.0-only
"""What a program's output, its exit status and the console make of its case."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.machine.base import End
from ktest_ntcopy.results.model import Cause, Status
from ktest_ntcopy.results.verdict import CONSOLE_MAX, DETAIL_MAX, could_not_boot, judge
from tests.unit.verdict_samples import NAME, PANIC, WARN, case, ktap, outcome, verdict

GOLDEN = Path(__file__).parent / "golden"


# -- true output of the harness --------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "point", "code", "status", "cause", "message"),
    [
        ("pass", "stream.tcp6.payload", 0, Status.PASS, Cause.NONE, ""),
        (
            "fail",
            "stream.tcp6.fault",
            1,
            Status.FAIL,
            Cause.ASSERTION,
            "toy.c:23:fault:Expected EFAULT (14) == errno (9)",
        ),
        (
            "skip",
            "stream.unix.fault",
            0,
            Status.SKIP,
            Cause.SKIP,
            "kernel lacks MSG_NTCOPY # see docs",
        ),
        ("allskip", "global.allskip", 0, Status.SKIP, Cause.SKIP, "no tracefs"),
        (
            "xfail",
            "stream.tcp6.known",
            0,
            Status.XFAIL,
            Cause.XFAIL,
            "toy.c:25:known:Expected 0 (0) == variant->domain == 10 ? 1 : 0 (1)",
        ),
        (
            "xpass",
            "stream.unix.known",
            0,
            Status.XPASS,
            Cause.XPASS,
            "passed although it is marked as expected to fail",
        ),
        (
            "timeout",
            "stream.tcp6.slow",
            1,
            Status.FAIL,
            Cause.TIMEOUT,
            "over the test's own time limit",
        ),
        ("segv", "global.segv", 1, Status.FAIL, Cause.SIGNAL, "test killed by SIGSEGV"),
        (
            "unmatched",
            "stream.tcp6.nosuch",
            0,
            Status.ERROR,
            Cause.NO_VERDICT,
            "the program ran no test (plan 1..0): it knows no case named stream.tcp6.nosuch",
        ),
        (
            "badopt",
            "stream.tcp6.payload",
            1,
            Status.ERROR,
            Cause.EXIT,
            "exit status 1 and no verdict on stream.tcp6.payload",
        ),
        (
            "list",
            "stream.tcp6.payload",
            4,
            Status.ERROR,
            Cause.EXIT,
            "exit status 4 and no verdict on stream.tcp6.payload",
        ),
    ],
)
def test_harness_output(
    name: str, point: str, code: int, status: Status, cause: Cause, message: str
) -> None:
    text = (GOLDEN / f"harness_{name}.txt").read_text()
    result = judge(case(point), outcome(text, exit_code=code))
    assert (result.status, result.cause, result.message) == (status, cause, message)
    assert result.detail == text


def test_a_program_killed_before_its_verdict() -> None:
    text = (GOLDEN / "harness_parent.txt").read_text()
    result = judge(case("global.parent"), outcome(text, end=End.SIGNALED, signal=11))
    assert verdict(result) == (Status.ERROR, Cause.SIGNAL)
    assert result.message == "killed by SIGSEGV"
    assert result.properties["signal"] == "SIGSEGV"


def test_the_program_is_never_believed_about_a_case_it_was_not_asked_for() -> None:
    text = (GOLDEN / "harness_all.txt").read_text()
    result = judge(case("stream.tcp6.payload"), outcome(text, exit_code=1))
    assert verdict(result) == (Status.ERROR, Cause.MALFORMED)
    assert "'ok 1 global.plain' was not asked for" in result.message


# -- claims, plans and exit statuses -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "status", "cause", "message"),
    [
        (ktap(f"ok 1 {NAME}"), 0, Status.PASS, Cause.NONE, ""),
        (ktap(f"ok 1 {NAME}"), 1, Status.FAIL, Cause.EXIT, "exit status 1 contradicts"),
        (ktap(f"ok 1 {NAME}"), None, Status.FAIL, Cause.EXIT, "no exit status contradicts"),
        (ktap(f"not ok 1 {NAME}"), 1, Status.FAIL, Cause.ASSERTION, "failed without a word"),
        (ktap(f"not ok 1 {NAME}"), 0, Status.FAIL, Cause.ASSERTION, "exit status 0 contradicts"),
        (ktap(f"not ok 1 {NAME}", "# bind: no\n"), 1, Status.FAIL, Cause.ASSERTION, "bind: no"),
        (ktap(f"ok 1 {NAME} # SKIP no net"), 0, Status.SKIP, Cause.SKIP, "no net"),
        (ktap(f"ok 1 {NAME} # SKIP no net"), 4, Status.SKIP, Cause.SKIP, "no net"),
        (ktap(f"not ok 1 {NAME} # SKIP no net"), 0, Status.SKIP, Cause.SKIP, "no net"),
        (ktap(f"ok 1 {NAME} # SKIP"), 0, Status.SKIP, Cause.SKIP, "no reason given"),
        (ktap(f"ok 1 {NAME} # SKIP no net"), 1, Status.FAIL, Cause.EXIT, "contradicts"),
        (ktap(f"ok 1 {NAME} # XFAIL slow path"), 2, Status.XFAIL, Cause.XFAIL, "slow path"),
        (ktap(f"ok 1 {NAME} # XPASS unknown"), 3, Status.XPASS, Cause.XPASS, "expected to fail"),
        (ktap(f"ok 1 {NAME} # XPASS x"), 1, Status.FAIL, Cause.EXIT, "contradicts"),
        (ktap(f"ok 1 {NAME} # XFAIL x"), 1, Status.FAIL, Cause.EXIT, "contradicts"),
        (ktap(f"ok 1 {NAME} # TODO x"), 0, Status.XPASS, Cause.XPASS, "expected to fail"),
        (ktap(f"not ok 1 {NAME} # TODO x"), 0, Status.XFAIL, Cause.XFAIL, "x"),
        (ktap(f"not ok 1 {NAME} # TIMEOUT 45 s"), 1, Status.FAIL, Cause.TIMEOUT, "45 s"),
        (ktap(f"not ok 1 {NAME} # exit=7"), 1, Status.FAIL, Cause.EXIT, "exit status 7"),
        (ktap(f"ok 1 {NAME}\nok 99 stray"), 0, Status.ERROR, Cause.MALFORMED, "'ok 99 stray'"),
        (ktap(f"ok 1 {NAME}\nok 1 {NAME}"), 0, Status.ERROR, Cause.MALFORMED, "2 verdicts"),
        (ktap(f"ok 1 {NAME}\nok 1 other"), 0, Status.ERROR, Cause.MALFORMED, "not asked for"),
        (ktap("ok 1 other"), 0, Status.ERROR, Cause.MALFORMED, "'ok 1 other' was not asked for"),
        (ktap(f"ok 2 {NAME}"), 0, Status.ERROR, Cause.MALFORMED, "outside the plan"),
        (f"1..2\nok 1 {NAME}\n", 0, Status.ERROR, Cause.MALFORMED, "1 never came"),
        (f"ok 1 {NAME}\n", 0, Status.ERROR, Cause.MALFORMED, "without a plan"),
        (ktap(f"ok 1 {NAME}") * 2, 0, Status.ERROR, Cause.MALFORMED, "2 verdicts"),
        (ktap(f"ok {NAME}"), 0, Status.ERROR, Cause.NO_VERDICT, "no verdict on"),
        ("", 0, Status.ERROR, Cause.NO_VERDICT, f"no verdict on {NAME}, exit status 0"),
        ("", 127, Status.ERROR, Cause.EXIT, "127 (program or library not found)"),
        ("", 126, Status.ERROR, Cause.EXIT, "126 (found, but not executable)"),
        ("", 139, Status.ERROR, Cause.EXIT, "139 (128 + SIGSEGV)"),
        ("1..0\n", 0, Status.ERROR, Cause.NO_VERDICT, "ran no test"),
        ("1..0 # SKIP needs root\n", 4, Status.SKIP, Cause.SKIP, "needs root"),
        ("1..0 # SKIP needs root\n", 1, Status.ERROR, Cause.NO_VERDICT, "ran no test"),
        (ktap("Bail out! no memory"), 1, Status.ERROR, Cause.BAIL_OUT, "gave up: no memory"),
        (ktap(f"ok 1 {NAME}\nBail out! x"), 0, Status.ERROR, Cause.MALFORMED, "gave up"),
    ],
)
def test_claims(text: str, code: int | None, status: Status, cause: Cause, message: str) -> None:
    result = judge(case(), outcome(text, exit_code=code))
    assert verdict(result) == (status, cause)
    assert message in result.message
    assert (result.message == "") == (status is Status.PASS)


def test_only_the_named_point_can_pass() -> None:
    nested = ktap("ok 1 parent", f"# 1..1\n# ok 1 {NAME}\n")
    assert judge(case(), outcome(nested)).status is Status.ERROR


def test_first_assertion_is_the_message() -> None:
    before = "# m.c:5:tcp6.payload:Expected 1 (1) == x (0)\n# m.c:9:payload:Expected 2 == 3\n"
    result = judge(case(), outcome(ktap(f"not ok 1 {NAME}", before), exit_code=1))
    assert result.message == "m.c:5:tcp6.payload:Expected 1 (1) == x (0)"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["m.c:1:t:sending 4096 bytes", "m.c:7:t:Expected 0 (0) == r (-1)"], "m.c:7:t:Expected"),
        (
            ["m.c:7:t:Expected 0 (0) == r (-1)", "m.c:7:t:send: Broken pipe", "m.c:9:t:later"],
            "m.c:7:t:Expected 0 (0) == r (-1); send: Broken pipe",
        ),
        (["m.c:1:t:first remark", "m.c:2:t:second"], "m.c:1:t:first remark"),
    ],
)
def test_assertions_come_before_remarks(lines: list[str], message: str) -> None:
    text = ktap(f"not ok 1 {NAME}", "".join(f"# {x}\n" for x in lines))
    result = judge(case(), outcome(text, exit_code=1))
    assert result.message.startswith(message)
    assert "later" not in result.message


# -- what goes along --------------------------------------------------------------------------


def test_the_case_travels_with_its_result() -> None:
    result = judge(case(), outcome(ktap(f"ok 1 {NAME}")))
    assert (result.target, result.program, result.case) == ("kselftest.net", "msg_ntcopy", NAME)
    assert (result.nodeid, result.worker, result.attempt) == ("n::id", "gw1", 2)
    assert (result.start, result.duration) == (1000.0, 2.5)
    assert result.reproducer.startswith("pytest ")
    assert result.properties["feature"] == "msg_ntcopy"
    assert result.properties["exit"] == "0"
    assert result.classname == "kselftest.net.msg_ntcopy"


def test_console_is_bounded_and_keeps_the_splat_and_the_end() -> None:
    noise = [f"[    1.000000] noise {n}" for n in range(5000)]
    console = [*noise, *WARN, *noise, "[   99.000000] the last line"]
    result = judge(case(), outcome(ktap(f"ok 1 {NAME}"), console=console))
    assert len(result.console) < CONSOLE_MAX + 500
    assert "sk_stream_kill_queues" in result.console
    assert result.console.endswith("the last line")
    assert "lines left out" in result.console


def test_output_is_bounded_and_clean() -> None:
    flood = b"\x00\xff\x1b[31mred\x1b[0m\n" + b"y" * (DETAIL_MAX * 4)
    result = judge(case(), outcome(flood, end=End.FLOOD))
    assert result.detail.startswith("\\x00\\xffred\n")
    assert len(result.detail) <= DETAIL_MAX + 100
    assert "left out" in result.detail


def test_message_is_one_short_line() -> None:
    line = f"ok 1 {NAME} # SKIP a\x1b[2Jb\tc{'d' * 4000}"
    message = judge(case(), outcome(ktap(line))).message
    assert message.startswith("ab c")
    assert len(message) <= 500


def test_no_boot() -> None:
    result = could_not_boot(case(), "the kernel panicked before the agent", "x\n" * 40_000)
    assert verdict(result) == (Status.ERROR, Cause.BOOT)
    assert len(result.console) < CONSOLE_MAX + 500
    assert result.nodeid == "n::id"


OUTPUTS = st.lists(
    st.sampled_from([f"ok 1 {NAME}\n", "1..1\n", "not ok 1 x\n", "TAP version 13\n", "ok 9 q\n"])
).map("".join)


@settings(deadline=None)
@given(
    output=st.binary() | OUTPUTS.map(str.encode),
    end=st.sampled_from(End),
    code=st.integers(0, 255),
    console=st.lists(st.text() | st.sampled_from(WARN + PANIC), max_size=8),
)
def test_nothing_raises_and_only_a_clean_run_passes(
    output: bytes, end: End, code: int, console: list[str]
) -> None:
    result = judge(case(), outcome(output, end=end, exit_code=code, console=console, signal=9))
    assert "\n" not in result.message
    if result.status is Status.PASS:
        assert (end, code) == (End.EXITED, 0)
        assert output.count(f"ok 1 {NAME}".encode()) == 1
        assert not any("WARNING" in x or "panic" in x for x in console)
    else:
        assert result.cause is not Cause.NONE
        assert result.message
