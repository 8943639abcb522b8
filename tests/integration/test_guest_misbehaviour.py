# SPDX-License-Identifier: GPL-2.0-only
"""Programs that do their worst in a real guest: each is reported as what it is, and
the next command runs, in a new machine where the old one is dead."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from ktest_ntcopy.errors import MachineError
from ktest_ntcopy.machine.base import FATAL_ENDS, Command, End

from .conftest import Guests


@pytest.fixture(autouse=True)
def next_command_runs(guests: Guests) -> Iterator[None]:
    """After every test, whatever it did, a plain command still gives what it should."""
    yield
    outcome = guests.run("sayings", "hello")
    assert outcome.end is End.EXITED
    assert outcome.exit_code == 3
    assert "arg hello\n" in outcome.text


def console(lines: object) -> str:
    return "\n".join(line.text for line in lines)  # type: ignore[attr-defined]


# The kernel goes down


def test_panic(guests: Guests) -> None:
    booted = guests.booted
    outcome = guests.run("panic")
    assert outcome.end is End.PANIC
    assert outcome.detail == "kernel panic: sysrq triggered crash"
    assert outcome.text == "about to end\n"
    assert "Call Trace:" in console(outcome.console)
    assert outcome.duration < 10
    guests.run("sayings")
    assert guests.booted == max(booted, 1) + 1


def test_panic_that_stays(guests: Guests) -> None:
    """The kernel does not reset after its panic: the agent's silence tells."""
    outcome = guests.run("panic", "c", "stay", timeout=60)
    assert outcome.end is End.PANIC
    assert outcome.detail == "kernel panic: sysrq triggered crash"
    assert outcome.duration < 15


def test_reset(guests: Guests) -> None:
    outcome = guests.run("panic", "b")
    assert outcome.end is End.DOWN
    assert outcome.detail == "guest reset without an orderly end (triple fault, sysrq b)"


def test_commands_after_the_end_are_refused(guests: Guests) -> None:
    machine = guests.machine
    assert machine.run(Command(argv=("panic",))).end in FATAL_ENDS
    assert not machine.alive
    with pytest.raises(MachineError, match="sysrq triggered crash"):
        machine.run(Command(argv=("sayings",)))


def test_power_off(guests: Guests) -> None:
    outcome = guests.run("power", "off")
    assert (outcome.end, outcome.detail) == (End.DOWN, "guest powered off")


def test_restart(guests: Guests) -> None:
    outcome = guests.run("power", "restart")
    assert (outcome.end, outcome.detail) == (End.DOWN, "guest rebooted")


def test_a_panic_that_was_none(guests: Guests) -> None:
    outcome = guests.run("power", "lie")
    assert (outcome.end, outcome.detail) == (End.DOWN, "guest powered off")
    assert "a lie" in console(outcome.console)


def test_panic_between_commands(guests: Guests) -> None:
    """An interrupt from outside makes the idle kernel panic."""
    machine = guests.machine
    assert machine.hypervisor.nmi()
    deadline = time.monotonic() + 20
    while machine.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(MachineError, match="kernel panic between commands: NMI"):
        machine.run(Command(argv=("sayings",)))


def test_agent_overwritten(guests: Guests) -> None:
    outcome = guests.run("pokeinit")
    assert outcome.end is End.PANIC
    assert "Attempted to kill init!" in outcome.detail


# The guest falls silent


def test_all_processors_taken(guests: Guests) -> None:
    outcome = guests.run("wedge")
    assert outcome.end is End.HANG
    assert outcome.detail.startswith("guest stopped answering for ")
    # The interrupt that was sent to it made the kernel show where it was.
    assert "NMI" in console(outcome.console)
    assert "wedge" in console(outcome.console)
    assert outcome.duration < 45


def test_stopped_from_outside(guests: Guests) -> None:
    monitor = guests.machine.hypervisor.qmp
    assert monitor is not None
    monitor.call("stop")
    outcome = guests.run("sayings")
    assert outcome.end is End.HANG
    assert outcome.detail.endswith("the hypervisor reports it as paused")
    assert outcome.output == ()


def test_agent_held_by_a_debugger(guests: Guests) -> None:
    outcome = guests.run("traceinit")
    assert outcome.end is End.HANG
    assert outcome.text == "attaching\n"


def test_hypervisor_killed(guests: Guests) -> None:
    machine = guests.machine
    pid = machine.hypervisor.pid
    if os.fork() == 0:
        time.sleep(2)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    outcome = machine.run(Command(argv=("spin",)))
    os.wait()
    assert outcome.end is End.LOST
    assert "killed by SIGKILL" in outcome.detail
    assert outcome.text == "deaf\n"


def test_hypervisor_killed_between_commands(guests: Guests) -> None:
    machine = guests.machine
    os.kill(machine.hypervisor.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while machine.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(MachineError, match="ended between commands"):
        machine.run(Command(argv=("sayings",)))


# The command does not end


@pytest.mark.parametrize("argv", [("spin",), ("spin", "sleep"), ("stopper",)])
def test_deaf_command(guests: Guests, argv: tuple[str, ...]) -> None:
    machine = guests.machine
    outcome = guests.run(*argv, timeout=0.3)
    assert outcome.end is End.TIMEOUT
    assert outcome.limit == pytest.approx(0.3 * machine.info.slowdown)
    assert outcome.detail.startswith("over its time limit of ")
    assert outcome.limit <= outcome.duration < outcome.limit + 3
    assert outcome.text in ("deaf\n", "waiting\n")
    assert machine.alive


def test_clock_changed(guests: Guests) -> None:
    outcome = guests.run("clock", timeout=0.3)
    assert outcome.end is End.TIMEOUT
    assert outcome.duration < outcome.limit + 3
    assert guests.machine.alive


def test_fork_bomb(guests: Guests) -> None:
    outcome = guests.run("forkbomb", timeout=0.5)
    # The bomb may be big enough for the kernel to kill its first process.
    assert outcome.end in (End.TIMEOUT, End.OOM)
    assert outcome.text.startswith("forking\n")
    assert guests.run("daemon", "look").exit_code == 0


# Too much of everything


def test_memory_hog(guests: Guests) -> None:
    machine = guests.machine
    outcome = guests.run("hog", timeout=30)
    assert outcome.end is End.OOM
    assert outcome.signal == signal.SIGKILL
    assert outcome.detail.startswith('out-of-memory killer ended "hog" (pid ')
    assert machine.alive


def test_memory_hog_that_is_a_child(guests: Guests) -> None:
    outcome = guests.run("hog", "child", timeout=30)
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 0)
    assert "the child got signal 9\n" in outcome.text
    assert "Out of memory: Killed process" in console(outcome.console)


def test_output_flood(guests: Guests) -> None:
    outcome = guests.run("flood", output_limit=1_000_000)
    assert outcome.end is End.FLOOD
    assert outcome.detail == "over its output limit of 1000000 bytes"
    assert sum(len(chunk.data) for chunk in outcome.output) == 1_000_000
    assert guests.machine.alive


def test_console_flood(guests: Guests) -> None:
    outcome = guests.run("kmsg", "20000", timeout=60)
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 0)
    texts = [line.text for line in outcome.console]
    assert len(texts) < 2100
    assert any("flood line 0" in text for text in texts)
    assert any("flood line 19999" in text for text in texts)
    assert any("lines of console output left out" in text for text in texts)


# Noise


def test_noise(guests: Guests) -> None:
    outcome = guests.run("noise")
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 0)
    raw = b"".join(chunk.data for chunk in outcome.output)
    assert raw.startswith(b"\xff\xfe\x80 bad")
    assert b"nul:\0:nul" in raw
    assert raw.endswith(b"]]></system-out><!--")
    assert outcome.text.startswith("\\xff\\xfe\\x80 bad \\xc3(")
    said = console(outcome.console)
    assert "noise" in said
    assert said.replace("\n", "").isprintable()


def test_writing_into_the_agents_line(guests: Guests) -> None:
    machine = guests.machine
    noise = machine.hypervisor.noise
    outcome = guests.run("port")
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 0)
    assert "open: Device or resource busy\n" in outcome.text
    assert "open: opened" not in outcome.text
    assert "stolen: written\n" in outcome.text
    assert machine.hypervisor.noise > noise
    assert machine.alive


# Attacks on the agent and on the next command


def test_signals_to_the_agent(guests: Guests) -> None:
    machine = guests.machine
    outcome = guests.run("killinit")
    assert (outcome.end, outcome.exit_code, outcome.text) == (End.EXITED, 5, "still here\n")
    assert machine.alive


def test_debugger_that_lets_go(guests: Guests) -> None:
    machine = guests.machine
    outcome = guests.run("traceinit", "leave")
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 6)
    assert machine.alive


def test_daemon_does_not_outlive_its_command(guests: Guests) -> None:
    machine = guests.machine
    outcome = guests.run("daemon")
    assert (outcome.end, outcome.exit_code, outcome.text) == (
        End.EXITED,
        7,
        "left a daemon\n",
    )
    assert outcome.duration < 3
    assert machine.run(Command(argv=("daemon", "look"))).text == "0 left\n"


def test_mounts_do_not_outlive_their_command(guests: Guests) -> None:
    machine = guests.machine
    outcome = guests.run("mounts")
    assert (outcome.end, outcome.exit_code, outcome.text) == (End.EXITED, 9, "hidden\n")
    assert machine.run(Command(argv=("mounts", "look"))).exit_code == 0


# Plain ends


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM, signal.SIGBUS]
)
def test_signal(guests: Guests, number: signal.Signals) -> None:
    machine = guests.machine
    outcome = guests.run("die", str(int(number)))
    assert (outcome.end, outcome.signal) == (End.SIGNALED, number)
    assert outcome.detail == f"ended by {number.name}"
    assert outcome.exit_code is None
    assert machine.alive


def test_state_of_the_kernel_does_not_outlive_its_command(guests: Guests) -> None:
    machine = guests.machine
    outcome = guests.run("leftovers", timeout=0.5)
    assert outcome.end is End.TIMEOUT
    assert "ktest_left vfs_read" in outcome.text
    look = machine.run(Command(argv=("leftovers", "look")))
    lines = look.text.split("\n")
    assert lines[0] == "kprobe_events: "
    assert lines[1].startswith("printk: 7\t")
    assert "lo: up" in lines
