# SPDX-License-Identifier: GPL-2.0-only
"""Verdicts on commands, with a guest that follows a script and a clock that is not real."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest

from ktest_ntcopy.machine.base import Chunk, End, Outcome
from ktest_ntcopy.machine.channel import Exit, Kind, Message, Output, Pong, Reason, Started
from ktest_ntcopy.machine.console import Console
from ktest_ntcopy.machine.run import Run, hang_limit


class FakeQmp:
    def __init__(self) -> None:
        self.state = "running"
        self.shutdown: dict[str, Any] | None = None

    def status(self) -> str:
        return self.state

    def event(self, name: str) -> dict[str, Any] | None:
        return self.shutdown if name == "SHUTDOWN" else None


class FakeGuest:
    """Plays a list of steps, one per pump; then stays silent, or answers pings."""

    def __init__(self, steps: Iterable[Any], *, answers: bool = False) -> None:
        self.now = 1000.0
        self.steps = list(steps)
        self.answers = answers
        self.console = Console()
        self.qmp = FakeQmp()
        self.gone = False
        self.sent: list[bytes] = []
        self.nmis = 0
        self.owed: list[Message] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        if struct.unpack_from("<III", data)[2] == Kind.PING and self.answers:
            self.owed.append(Pong(0))

    def pump(self, timeout: float) -> list[Message]:
        if self.steps:
            self.now += 0.001
            step = self.steps.pop(0)
            if callable(step):
                step(self)
                return []
            return [step]
        self.now += timeout
        owed, self.owed = self.owed, []
        return owed

    def nmi(self) -> bool:
        self.nmis += 1
        self.console.feed(b"NMI backtrace for cpu 0\n", self.now)
        return True

    def listen(self, seconds: float) -> None:
        self.now += seconds

    def last_words(self) -> str:
        return "killed by SIGKILL"


def says(text: str) -> Any:
    return lambda guest: guest.console.feed(text.encode() + b"\n", guest.now)


def dies(guest: FakeGuest) -> None:
    guest.gone = True


def resets(guest: FakeGuest) -> None:
    guest.qmp.shutdown = {"guest": True, "reason": "guest-reset"}
    guest.gone = True


STARTED = Started(1, 57, 2.0)
PANIC = says("Kernel panic - not syncing: sysrq triggered crash")


def over(reason: Reason, value: int = 0, *, stuck: int = 0, note: str = "") -> Exit:
    return Exit(1, reason, value, stuck, 3.0, note)


def play(
    monkeypatch: pytest.MonkeyPatch, guest: FakeGuest, *, limit: float = 30.0
) -> tuple[Outcome, Run]:
    monkeypatch.setattr("time.monotonic", lambda: guest.now)
    run = Run(
        guest,  # type: ignore[arg-type]
        b"request.....",
        number=1,
        token=5,
        limit=limit,
        name="hog",
        slowdown=4.0,
    )
    return run.wait(), run


@pytest.fixture
def outcome_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def outcome(*steps: Any, answers: bool = False) -> Outcome:
        return play(monkeypatch, FakeGuest(steps, answers=answers))[0]

    return outcome


def test_plain_end(outcome_of: Any) -> None:
    outcome = outcome_of(STARTED, Output(1, 2.5, b"hi"), says("line"), over(Reason.EXITED, 3))
    assert (outcome.end, outcome.exit_code, outcome.detail) == (End.EXITED, 3, "")
    assert outcome.output == (Chunk(2.5, b"hi"),)
    assert [line.text for line in outcome.console] == ["line"]
    assert outcome.limit == 30.0


def test_other_commands_messages_are_ignored(outcome_of: Any) -> None:
    old = Exit(0, Reason.EXITED, 9, 0, 1.0, "")
    outcome = outcome_of(Output(0, 1.0, b"old"), old, STARTED, over(Reason.EXITED, 3))
    assert (outcome.exit_code, outcome.output) == (3, ())


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("Out of memory: Killed process 57 (hog) total-vm:1kB", End.OOM),
        ("Memory cgroup out of memory: Killed process 57 (x) total-vm:1kB", End.OOM),
        ("Out of memory: Killed process 2 (hog) total-vm:1kB", End.OOM),
        ("Out of memory: Killed process 2 (other) total-vm:1kB", End.SIGNALED),
        ("nothing", End.SIGNALED),
    ],
)
def test_sigkill_and_the_oom_killer(outcome_of: Any, line: str, end: End) -> None:
    outcome = outcome_of(STARTED, says(line), over(Reason.SIGNALED, 9))
    assert (outcome.end, outcome.signal, outcome.exit_code) == (end, 9, None)


def test_other_signals_are_not_blamed_on_the_oom_killer(outcome_of: Any) -> None:
    line = "Out of memory: Killed process 57 (hog) total-vm:1kB"
    outcome = outcome_of(STARTED, says(line), over(Reason.SIGNALED, 11))
    assert (outcome.end, outcome.detail) == (End.SIGNALED, "ended by SIGSEGV")


def test_real_time_signal(outcome_of: Any) -> None:
    assert outcome_of(over(Reason.SIGNALED, 40)).detail == "ended by signal 40"


def test_timeout(outcome_of: Any) -> None:
    outcome = outcome_of(STARTED, over(Reason.TIMEOUT, note="state S in pause"))
    assert outcome.end is End.TIMEOUT
    assert outcome.detail == "over its time limit of 30 s (state S in pause)"


def test_flood(outcome_of: Any) -> None:
    outcome = outcome_of(STARTED, Output(1, 1.0, b"x" * 99), over(Reason.FLOOD))
    assert (outcome.end, outcome.detail) == (End.FLOOD, "over its output limit of 99 bytes")


def test_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = FakeGuest([STARTED, over(Reason.EXITED, stuck=2, note="7 (x) in state D")])
    outcome, run = play(monkeypatch, guest)
    assert outcome.end is End.EXITED
    assert run.stuck == "2 process(es) survived SIGKILL, first of them 7 (x) in state D"


def test_panic_and_reset(outcome_of: Any) -> None:
    outcome = outcome_of(STARTED, PANIC, resets)
    assert (outcome.end, outcome.detail) == (
        End.PANIC,
        "kernel panic: sysrq triggered crash",
    )


def test_panic_without_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = FakeGuest([STARTED, PANIC])
    outcome, _ = play(monkeypatch, guest)
    assert outcome.end is End.PANIC
    assert outcome.duration < 5


def test_panic_that_a_program_wrote(outcome_of: Any) -> None:
    """The line is there, but the guest goes on answering."""
    silent = [says("more") for _ in range(20)]
    outcome = outcome_of(STARTED, PANIC, *silent, over(Reason.EXITED), answers=True)
    assert outcome.end is End.EXITED


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("reboot: Power down", "guest powered off"),
        ("reboot: Restarting system", "guest rebooted"),
        ("reboot: System halted", "guest halted"),
        ("", "guest reset without an orderly end (triple fault, sysrq b)"),
    ],
)
def test_down(outcome_of: Any, line: str, detail: str) -> None:
    outcome = outcome_of(STARTED, says(line), resets)
    assert (outcome.end, outcome.detail) == (End.DOWN, detail)


def test_lost(outcome_of: Any) -> None:
    outcome = outcome_of(STARTED, dies)
    assert (outcome.end, outcome.detail) == (
        End.LOST,
        "the hypervisor ended: killed by SIGKILL",
    )


def test_lost_by_a_signal_to_the_hypervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = FakeGuest([STARTED, dies])
    guest.qmp.shutdown = {"guest": False, "reason": "host-signal"}
    assert play(monkeypatch, guest)[0].end is End.LOST


def test_silence_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = FakeGuest([STARTED])
    outcome, _ = play(monkeypatch, guest, limit=1.0)
    assert outcome.end is End.HANG
    assert outcome.detail == "guest stopped answering for 12 s; see the console for traces"
    assert guest.nmis == 1
    assert "NMI backtrace for cpu 0" in [line.text for line in outcome.console]


def test_stopped_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = FakeGuest([STARTED])
    guest.qmp.state = "internal-error"
    outcome, _ = play(monkeypatch, guest)
    assert outcome.detail.endswith("; the hypervisor reports it as internal-error")
    assert guest.nmis == 0


def test_quiet_command_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = FakeGuest([STARTED], answers=True)

    def ends(fake: FakeGuest) -> None:
        if fake.now > 1100:
            fake.owed.append(over(Reason.EXITED))

    pump = guest.pump

    def pump_and_end(timeout: float) -> list[Message]:
        ends(guest)
        return pump(timeout)

    monkeypatch.setattr(guest, "pump", pump_and_end)
    outcome, _ = play(monkeypatch, guest, limit=200.0)
    assert outcome.end is End.EXITED
    assert outcome.duration > 99


def test_agent_that_forgets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = FakeGuest([STARTED], answers=True)
    outcome, _ = play(monkeypatch, guest, limit=3.0)
    assert outcome.end is End.HANG
    assert outcome.detail.startswith("agent did not end the command after its time limit")
    assert 3.0 < outcome.duration < 40


def test_host_that_slept_does_not_blame_the_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(guest: FakeGuest) -> None:
        guest.now += 10_000

    guest = FakeGuest([STARTED, sleep, over(Reason.EXITED, 0)])
    outcome, _ = play(monkeypatch, guest, limit=20_000)
    assert outcome.end is End.EXITED


def test_hang_limit_is_bounded() -> None:
    assert hang_limit(1.0) == 10.5
    assert hang_limit(1000.0) == 30.0
