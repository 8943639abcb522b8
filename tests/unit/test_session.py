# SPDX-License-Identifier: GPL-2.0-only
"""One process's machine: when it is booted, kept, replaced and given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BootError, ConfigError, MachineError, MachineLost
from ktest_ntcopy.features.model import Program
from ktest_ntcopy.machine.base import (
    Chunk,
    Command,
    ConsoleLine,
    End,
    MachineInfo,
    MachineSpec,
    Outcome,
)
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.session import BOOT_ATTEMPTS, Session
from tests.unit.pretended import INFO

PROGRAM = Program(name="prog", target="net", template="t", timeout=30, fixtures=())
PASSED = Outcome(end=End.EXITED, exit_code=0, output=(Chunk(0.0, b"1..1\nok 1 a.b.c\n"),))


class Pretended:
    """A machine whose behaviour the test sets."""

    def __init__(self, lab: Lab, spec: MachineSpec) -> None:
        self.lab, self.spec = lab, spec
        self.info = INFO
        self.alive = False
        self.closed = False
        self.boot_console: tuple[ConsoleLine, ...] = ()

    def boot(self) -> MachineInfo:
        self.lab.boots += 1
        if self.lab.boot_errors:
            raise self.lab.boot_errors.pop(0)
        self.alive = True
        return INFO

    def run(self, command: Command) -> Outcome:
        self.lab.commands.append(command)
        if not self.alive:
            raise MachineError("the machine cannot take a command: kernel panic between commands")
        outcome = self.lab.behave(self)
        self.alive = self.alive and outcome.end is not End.PANIC
        return outcome

    def close(self) -> None:
        self.alive, self.closed = False, True


class Lab:
    def __init__(self) -> None:
        self.boots = 0
        self.boot_errors: list[Exception] = []
        self.commands: list[Command] = []
        self.machines: list[Pretended] = []
        self.late: list[Result] = []
        self.said: list[str] = []
        self.behave: Callable[[Pretended], Outcome] = lambda _: PASSED
        self.asked = 0
        self.session = Session(
            spec=MachineSpec(kernel=Path("/vmlinux")),
            factory=self.make,
            files=self.files,
            required=lambda: frozenset({"two", "one"}),
            command=lambda nodeid: f"again {nodeid}",
            timeout_scale=2.0,
            aftermath=self.late.append,
            notify=self.said.append,
        )

    def make(self, spec: MachineSpec) -> Pretended:
        self.machines.append(Pretended(self, spec))
        return self.machines[-1]

    def files(self) -> dict[str, Path]:
        self.asked += 1
        return {"/ksft/net/prog": Path("/bin/true")}

    def case(self, nodeid: str = "node") -> Result:
        return self.session.run_case(PROGRAM, "a.b.c", nodeid=nodeid)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_nothing_boots_before_it_is_needed(lab: Lab) -> None:
    lab.session.close()
    assert (lab.boots, lab.asked) == (0, 0)
    assert lab.session.boots_next


def test_one_machine_for_all(lab: Lab) -> None:
    results = [lab.case(f"node{n}") for n in range(3)]
    assert [r.status for r in results] == [Status.PASS] * 3
    assert (lab.boots, lab.asked) == (1, 1)
    assert not lab.session.boots_next
    lab.session.close()
    assert lab.machines[0].closed
    assert lab.late == []


def test_what_a_case_is_started_with(lab: Lab) -> None:
    result = lab.case()
    command = lab.commands[0]
    assert command.argv == ("/ksft/net/prog", "-r", "a.b.c")
    assert command.env == {"KTEST_REQUIRE": "one,two"}
    assert command.timeout == 60.0
    assert lab.machines[0].spec.files == {"/ksft/net/prog": Path("/bin/true")}
    assert (result.target, result.program) == ("kselftest.net", "prog")
    assert result.reproducer == "again node"


def test_fatal_end_gets_a_new_machine(lab: Lab) -> None:
    lab.behave = lambda _: Outcome(end=End.PANIC, detail="silly")
    assert lab.case().cause is Cause.PANIC
    assert lab.machines[0].closed
    lab.behave = lambda _: PASSED
    assert lab.case().status is Status.PASS
    assert lab.boots == 2
    assert lab.late == []


def die_late(machine: Pretended) -> Outcome:
    machine.alive = False
    return PASSED


def test_death_after_a_verdict_is_the_last_cases(lab: Lab) -> None:
    lab.behave = die_late
    assert lab.case("first").status is Status.PASS
    lab.behave = lambda _: PASSED
    assert lab.case("second").status is Status.PASS
    (late,) = lab.late
    assert (late.nodeid, late.status, late.cause) == ("first", Status.ERROR, Cause.PANIC)
    assert "kernel panic between commands" in late.message


def test_death_after_the_last_verdict_is_found_at_the_end(lab: Lab) -> None:
    lab.behave = die_late
    lab.case("only")
    lab.session.close()
    lab.session.close()
    assert [r.nodeid for r in lab.late] == ["only"]


def test_death_after_a_plain_command_blames_no_case(lab: Lab) -> None:
    lab.case("innocent")
    lab.behave = die_late
    lab.session.run(Command(argv=("x",)))
    lab.session.close()
    assert lab.late == []


def leaky(*owners: tuple[str, int]) -> Outcome:
    """What the guest says of objects that tasks allocated in given jiffies, at 100 a second."""
    output = [Chunk(10.0, b"jiffies 1000\n"), Chunk(15.0, b"jiffies 1500\n")]
    for name, jiffies in owners:
        text = f'unreferenced object 0x1 (size 64):\n  comm "{name}", pid 7, jiffies {jiffies}\n'
        output.append(Chunk(16.0, text.encode()))
    return Outcome(end=End.EXITED, exit_code=0, output=tuple(output))


def run_cases(lab: Lab) -> None:
    for name, start in (("first", 2.0), ("second", 4.0), ("third", 6.0)):
        lab.behave = lambda _, start=start: replace(PASSED, guest_start=start)  # type: ignore[misc]
        assert lab.case(name).status is Status.PASS


def test_leaks_are_their_cases(lab: Lab) -> None:
    run_cases(lab)
    lab.behave = lambda _: leaky(("one", 410), ("two", 599), ("three", 700))
    lab.session.find_leaks()
    assert lab.commands[-1].argv == ("/init", "leaks")
    assert [(r.nodeid, r.status, r.cause) for r in lab.late] == [
        ("second", Status.FAIL, Cause.SPLAT),
        ("third", Status.FAIL, Cause.SPLAT),
    ]
    second = lab.late[0]
    assert second.message == (
        'after the case had its verdict: 2 leaks, 64 bytes from an unknown place by "one" (pid 7)'
    )
    assert 'comm "two", pid 7' in second.console
    assert second.reproducer == "again second"


def test_leak_before_all_cases_is_said_to_be(lab: Lab) -> None:
    run_cases(lab)
    lab.behave = lambda _: leaky(("boot", 5))
    lab.session.find_leaks()
    (late,) = lab.late
    assert late.nodeid == "first"
    assert late.message.endswith("which was allocated before the first case of this machine")


def test_no_leaks(lab: Lab) -> None:
    lab.session.find_leaks()
    assert lab.boots == 0
    run_cases(lab)
    lab.behave = lambda _: leaky()
    lab.session.find_leaks()
    assert (lab.late, lab.said, lab.boots) == ([], [], 1)


def test_leaks_that_cannot_be_looked_for_are_spoken_of(lab: Lab) -> None:
    run_cases(lab)
    off = Chunk(1.0, b"kmemleak does not work: Operation not permitted\n")
    lab.behave = lambda _: Outcome(end=End.EXITED, exit_code=3, output=(off,))
    lab.session.find_leaks()
    assert lab.late == []
    assert lab.said == [
        "leaks cannot be looked for: kmemleak does not work: Operation not permitted"
    ]


def test_death_while_leaks_are_looked_for(lab: Lab) -> None:
    run_cases(lab)
    lab.behave = lambda _: Outcome(end=End.PANIC, detail="kernel panic: kmemleak")
    lab.session.find_leaks()
    lab.session.close()
    (late,) = lab.late
    assert (late.nodeid, late.status, late.cause) == ("third", Status.ERROR, Cause.PANIC)
    assert late.message.endswith("leaks were looked for: kernel panic: kmemleak")


def test_interruption_blames_no_case_and_ends_the_machine(lab: Lab) -> None:
    lab.case("innocent")

    def interrupt(_: Pretended) -> Outcome:
        raise KeyboardInterrupt

    lab.behave = interrupt
    with pytest.raises(KeyboardInterrupt):
        lab.case("interrupted")
    assert lab.machines[0].closed
    lab.session.close()
    assert lab.late == []


def test_death_between_look_and_command_is_tried_again(lab: Lab) -> None:
    lab.case()
    first = lab.machines[0]

    def vanish(machine: Pretended) -> Outcome:
        if machine is first:
            machine.alive = False
            raise MachineError("gone")
        return PASSED

    lab.behave = vanish
    assert lab.case().status is Status.PASS
    assert lab.boots == 2


def test_boot_is_tried_twice_and_then_given_up(lab: Lab) -> None:
    lab.boot_errors = [BootError(f"no {n}\nwords") for n in range(9)]
    results = [lab.case() for _ in range(5)]
    assert lab.boots == BOOT_ATTEMPTS == 2
    assert {(r.status, r.cause) for r in results} == {(Status.ERROR, Cause.BOOT)}
    assert {r.message for r in results} == {"no 1"}
    assert {r.console for r in results} == {"words"}
    assert all(m.closed for m in lab.machines)
    assert not lab.session.boots_next


def test_second_boot_may_do(lab: Lab) -> None:
    lab.boot_errors = [BootError("once")]
    assert lab.case().status is Status.PASS
    assert lab.boots == 2


def test_machine_that_was_killed_in_boot_is_booted_again(lab: Lab) -> None:
    lab.boot_errors = [MachineLost("killed by SIGKILL")]
    assert lab.case().status is Status.PASS
    assert lab.boots == 2


def test_machines_that_are_killed_in_every_boot_are_given_up(lab: Lab) -> None:
    lab.boot_errors = [MachineLost("killed by SIGKILL") for _ in range(9)]
    results = [lab.case() for _ in range(3)]
    assert lab.boots == BOOT_ATTEMPTS
    assert {(r.status, r.cause, r.message) for r in results} == {
        (Status.ERROR, Cause.LOST, "killed by SIGKILL")
    }


@pytest.mark.parametrize("error", [MachineError("host"), ConfigError("input")])
def test_what_is_not_the_kernels_fault_is_tried_once(lab: Lab, error: Exception) -> None:
    lab.boot_errors = [error]
    results = [lab.case() for _ in range(3)]
    assert lab.boots == 1
    assert {(r.status, r.cause, r.message) for r in results} == {
        (Status.ERROR, Cause.OTHER, str(error))
    }


def test_raised_errors_do_not_grow(lab: Lab) -> None:
    """A traceback that gets longer with each raise made hundreds of cases take minutes."""
    lab.boot_errors = [MachineError("host")]
    depths = []
    for _ in range(4):
        with pytest.raises(MachineError) as caught:
            lab.session.machine()
        depths.append(len(caught.traceback))
    assert depths[1] == depths[-1]


def test_files_that_cannot_be_made(lab: Lab) -> None:
    def none() -> dict[str, Path]:
        raise ConfigError("they do not compile")

    session = Session(
        spec=replace(lab.session.spec), factory=lab.make, files=none, required=frozenset
    )
    result = session.run_case(PROGRAM, "a.b.c")
    assert (result.status, result.message) == (Status.ERROR, "they do not compile")
    assert lab.machines == []
