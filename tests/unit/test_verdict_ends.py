# SPDX-License-Identifier: GPL-2.0-only
"""Programs, machines and kernels that end badly: what outranks the program's claim."""

from __future__ import annotations

import pytest

from ktest_ntcopy.machine.base import End
from ktest_ntcopy.results.model import Cause, Status
from ktest_ntcopy.results.verdict import judge, signal_name
from tests.unit.verdict_samples import NAME, PANIC, WARN, case, ktap, outcome, verdict

# -- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "cause", "message"),
    [
        (End.SIGNALED, Cause.SIGNAL, "killed by SIGBUS"),
        (End.OOM, Cause.OOM, "out-of-memory killer"),
        (End.TIMEOUT, Cause.TIMEOUT, "over its time limit of 60 s (30 s x 2.00 for this machine)"),
        (End.FLOOD, Cause.FLOOD, "stopped after"),
        (End.PANIC, Cause.PANIC, "Kernel panic - not syncing: Fatal exception"),
        (End.HANG, Cause.HANG, "stopped answering after 2.5 s"),
        (End.DOWN, Cause.DOWN, "powered off or rebooted"),
        (End.LOST, Cause.LOST, "the machine went away"),
    ],
)
def test_ends_outrank_what_the_program_claimed(end: End, cause: Cause, message: str) -> None:
    console = PANIC if end is End.PANIC else ()
    signal = 7 if end is End.SIGNALED else None
    out = outcome(ktap(f"ok 1 {NAME}"), end=end, signal=signal, console=console, limit=60.0)
    result = judge(case(), out, slowdown=2.0)
    assert verdict(result) == (Status.ERROR, cause)
    assert message in result.message
    assert result.properties["end"] == end.value


@pytest.mark.parametrize("end", [e for e in End if e is not End.EXITED])
def test_every_end_has_a_cause_of_its_own(end: End) -> None:
    result = judge(case(), outcome(end=end))
    assert result.status is Status.ERROR
    assert result.cause is not Cause.OTHER
    assert result.message


def test_the_machine_says_more_than_we_know() -> None:
    told = outcome(end=End.LOST, detail="QEMU ended with status 1: no space left")
    result = judge(case(), told)
    assert result.message == "QEMU ended with status 1: no space left"
    assert result.properties["end.detail"] == result.message


def test_limit_without_scaling() -> None:
    result = judge(case(), outcome(end=End.TIMEOUT, limit=30.0))
    assert result.message == "over its time limit of 30 s"
    assert result.properties["limit"] == "30"


@pytest.mark.parametrize(
    ("number", "name"), [(11, "SIGSEGV"), (200, "signal 200"), (None, "an unknown signal")]
)
def test_signal_names(number: int | None, name: str) -> None:
    assert signal_name(number) == name


# -- splats ------------------------------------------------------------------------------------


def test_splat_during_a_pass_fails_it() -> None:
    result = judge(case(), outcome(ktap(f"ok 1 {NAME}"), console=WARN))
    assert verdict(result) == (Status.FAIL, Cause.SPLAT)
    assert result.message == "WARNING at net/core/stream.c:212 sk_stream_kill_queues"
    assert len(result.properties["splat.fingerprint"]) == 12


def test_expected_splat_is_let_pass_and_still_recorded() -> None:
    result = judge(case(allowed=["stream_kill"]), outcome(ktap(f"ok 1 {NAME}"), console=WARN))
    assert result.status is Status.PASS
    assert result.properties["splat.title"].startswith("WARNING at net/core")


@pytest.mark.parametrize(
    ("line", "code", "status", "also"),
    [
        (f"not ok 1 {NAME}", 1, Status.FAIL, "failed without a word"),
        (f"ok 1 {NAME} # SKIP no net", 0, Status.FAIL, "no net"),
        ("", 1, Status.ERROR, "no verdict"),
    ],
)
def test_splat_outranks_the_claim_and_keeps_it(
    line: str, code: int, status: Status, also: str
) -> None:
    result = judge(case(), outcome(ktap(line), exit_code=code, console=WARN))
    assert verdict(result) == (status, Cause.SPLAT)
    assert also in result.message


@pytest.mark.parametrize("end", [End.TIMEOUT, End.SIGNALED, End.FLOOD])
def test_splat_explains_an_end_of_the_program(end: End) -> None:
    result = judge(case(), outcome(end=end, console=WARN, signal=9))
    assert verdict(result) == (Status.ERROR, Cause.SPLAT)


def test_panic_names_the_splat_that_led_to_it() -> None:
    result = judge(case(), outcome(end=End.PANIC, console=(*WARN, *PANIC)))
    assert verdict(result) == (Status.ERROR, Cause.PANIC)
    assert "Fatal exception; WARNING at net/core/stream.c" in result.message


def test_hang_is_not_blamed_on_the_panic_that_probing_it_made() -> None:
    nmi = "[   20.000000] Kernel panic - not syncing: NMI: Not continuing"
    told = "guest stopped answering for 16 s"
    assert judge(case(), outcome(end=End.HANG, console=[nmi], detail=told)).message == told
    result = judge(case(), outcome(end=End.HANG, console=[*WARN, nmi], detail=told))
    assert result.message.startswith(f"{told}; WARNING at net/core/stream.c")


def test_oom_kill_of_something_else_does_not_fail_a_pass() -> None:
    console = ["[    5.0] Out of memory: Killed process 9 (a.out) total-vm:1kB"]
    console = [x.replace("[    5.0]", "[    5.000000]") for x in console]
    result = judge(case(), outcome(ktap(f"ok 1 {NAME}"), console=console))
    assert result.status is Status.PASS
    assert "Out of memory" in result.properties["splat.title"]
