# SPDX-License-Identifier: GPL-2.0-only
"""What a well-behaved command gets, and what a guest costs."""

from __future__ import annotations

import os
import re
import time

import pytest

from ktest_ntcopy.machine.base import Command, End
from ktest_ntcopy.machine.channel import Message

from .conftest import Guests


def test_surroundings(guests: Guests) -> None:
    outcome = guests.run("sayings", "a b", "", "ü", env={"KTEST_X": "x=y"}, cwd="/tmp")
    assert (outcome.end, outcome.exit_code, outcome.detail) == (End.EXITED, 3, "")
    lines = outcome.text.splitlines()
    assert lines[:3] == ["arg a b", "arg ", "arg ü"]
    assert lines[3:] == [
        "cwd /tmp",
        "env x=y",
        "stdin 0",
        "leader 1",
        "signals 0 0",
        "descriptors 0",
        "oom 500",
        "to stderr",
        "to stdout",
    ]


def test_missing_program(guests: Guests) -> None:
    outcome = guests.run("no-such-program")
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 127)
    assert outcome.text == "ktest-agent: no-such-program: No such file or directory\n"


def test_missing_folder(guests: Guests) -> None:
    outcome = guests.run("sayings", cwd="/nowhere")
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 126)
    assert outcome.text == "ktest-agent: /nowhere: No such file or directory\n"


@pytest.mark.parametrize("argv", [(), ("a\0b",), ("x" * 300_000,), ("x",) * 1100])
def test_commands_that_cannot_be_sent(guests: Guests, argv: tuple[str, ...]) -> None:
    machine = guests.machine
    with pytest.raises(ValueError):
        machine.run(Command(argv=argv))
    assert machine.run(Command(argv=("sayings",))).exit_code == 3


def test_facts(guests: Guests) -> None:
    info = guests.machine.info
    assert info.kind == "qemu"
    assert info.accel in ("kvm", "tcg")
    assert info.arch == "x86_64"
    assert re.match(r"\d+\.\d+", info.release)
    assert info.version.startswith("#")
    assert 1.0 <= info.slowdown <= 30.0
    assert info.boot_seconds > 0


def test_output_has_the_kernels_clock(guests: Guests) -> None:
    """A line written into the kernel log and one to stdout get nearly the same stamp."""
    apart = []
    for _ in range(10):
        outcome = guests.run("kmsg", "1")
        line = next(line.text for line in outcome.console if "flood line 0" in line.text)
        stamp = float(line.split("[")[1].split("]")[0])
        apart.append(outcome.output[0].time - stamp)
    # Never before the line that came first; work on this host only adds to the rest.
    assert -0.001 < min(apart) < 0.05


def test_overhead_of_a_command(guests: Guests) -> None:
    machine = guests.machine
    took = []
    for _ in range(20):
        start = time.monotonic()
        machine.run(Command(argv=("sayings",)))
        took.append(time.monotonic() - start)
    # The least of them: other work on this host only adds to it.
    assert min(took) < 0.030


def test_machine_leaves_nothing_behind(guests: Guests) -> None:
    machine = guests.machine
    pid = machine.hypervisor.pid
    machine.close()
    machine.close()
    assert not machine.alive
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert machine.folder is not None
    assert sorted(p.name for p in machine.folder.iterdir()) == ["console.log", "qemu.log"]


def test_interrupted_command(guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle: the machine is not used again, and its process is gone."""
    machine = guests.machine
    pid = machine.hypervisor.pid

    pump = machine.hypervisor.pump

    def interrupt_later(timeout: float) -> list[Message]:
        if timeout:
            raise KeyboardInterrupt
        return pump(timeout)

    monkeypatch.setattr(machine.hypervisor, "pump", interrupt_later)
    with pytest.raises(KeyboardInterrupt):
        machine.run(Command(argv=("spin",)))
    assert not machine.alive
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_console_of_the_boot(guests: Guests) -> None:
    texts = [line.text for line in guests.machine.boot_console]
    assert any("Linux version " in text for text in texts)
    assert any("Run /init as init process" in text for text in texts)
