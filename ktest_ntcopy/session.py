# SPDX-License-Identifier: GPL-2.0-only
"""One process's share of a run: its machine, and cases run in it.

Knows nothing of pytest; the plugin and the command line use it alike.
"""

from __future__ import annotations

import copy
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ktest_ntcopy.errors import BootError, KtestError, MachineError, MachineLost
from ktest_ntcopy.features.model import Program
from ktest_ntcopy.machine.base import (
    AGENT,
    FATAL_ENDS,
    Command,
    End,
    Machine,
    MachineInfo,
    MachineSpec,
    Outcome,
)
from ktest_ntcopy.results.leaks import Leak, read_leaks
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.results.verdict import Case, could_not_boot, judge

#: Boots that may fail in a row before this process gives up on the kernel.
BOOT_ATTEMPTS = 2
#: Begins the message of a case of which something was found when it had its verdict.
AFTERMATH = "after the case had its verdict"
#: Asks kmemleak in the guest, and waits until objects are old enough for it.
_FIND_LEAKS = Command(argv=(AGENT, "leaks"), timeout=120.0)


def guest_path(target: str, program: str) -> str:
    """Where a test program of a kselftest target lies in the guest."""
    return f"/ksft/{target}/{program}"


@dataclass(frozen=True)
class _Ran:
    """A case that the machine has run."""

    case: Case
    start: float  #: guest clock, seconds


def _by_case(leaks: Sequence[Leak], cases: Sequence[_Ran]) -> dict[int, list[Leak]]:
    """Leaks by the index of the last case that had started when they were allocated.

    -1: before the first of them, or it is not known when.
    """
    starts = [ran.start for ran in cases]
    found: dict[int, list[Leak]] = {}
    for leak in leaks:
        found.setdefault(bisect_right(starts, leak.time) - 1, []).append(leak)
    return found


class Session:
    """Boots a machine when one is needed, keeps it while it lives, and runs cases.

    ``files`` tells what to put into the guest (path there -> file here) and is asked
    once; ``required`` names the features whose tests must not be skipped; ``command``
    makes the reproducer of a node id.  ``aftermath`` gets a Result for a case whose
    machine died after the case had its verdict: nobody else can have killed it; and for
    one that left memory allocated.  ``notify`` gets what else a person has to know.
    """

    def __init__(
        self,
        *,
        spec: MachineSpec,
        factory: Callable[[MachineSpec], Machine],
        files: Callable[[], Mapping[str, Path]],
        required: Callable[[], frozenset[str]],
        command: Callable[[str], str] = str,
        worker: str = "master",
        timeout_scale: float = 1.0,
        on_boot: Callable[[MachineInfo], None] | None = None,
        aftermath: Callable[[Result], None] | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.spec = spec  #: what is booted, but for the files
        self._factory = factory
        self._files = files
        self._required = required
        self._command = command
        self._worker = worker
        self._scale = timeout_scale
        self._on_boot = on_boot
        self._aftermath = aftermath
        self._notify = notify
        self._machine: Machine | None = None
        self._ready_spec: MachineSpec | None = None
        self._failures: list[KtestError] = []
        self._last: Case | None = None
        self._cases: list[_Ran] = []  # of the machine that runs

    @property
    def boots_next(self) -> bool:
        """True if the next command has to wait for a machine to boot."""
        return self._machine is None and len(self._failures) < BOOT_ATTEMPTS

    def machine(self) -> Machine:
        """The living machine of this process, booted if there is none.

        Raises KtestError, at once if booting has failed before as often as is
        sensible.
        """
        if self._machine is not None and self._machine.alive:
            return self._machine
        self._bury()
        if len(self._failures) >= BOOT_ATTEMPTS:
            # Not the object itself: each raise would add to its traceback, and
            # showing that for hundreds of cases takes minutes.
            raise copy.copy(self._failures[-1]) from None
        try:
            if self._ready_spec is None:
                self._ready_spec = replace(self.spec, files=dict(self._files()))
            machine = self._factory(self._ready_spec)
            try:
                info = machine.boot()
            except BaseException:
                machine.close()
                raise
        except KtestError as err:
            self._failures.append(err)
            if not isinstance(err, BootError | MachineLost):
                # The host's or the caller's fault: it would be the same again.
                self._failures = [err] * BOOT_ATTEMPTS
            raise
        self._failures.clear()
        self._machine = machine
        if self._on_boot:
            self._on_boot(info)
        return machine

    def run(self, command: Command) -> Outcome:
        """Run a command in the machine; after a fatal end the next call gets a new one.

        Raises KtestError if there is no machine to be had.
        """
        command = replace(command, timeout=command.timeout * self._scale)
        machine = self.machine()
        self._last = None
        try:
            try:
                outcome = machine.run(command)
            except MachineError:
                # It died between being looked at and being asked: not this command's doing.
                outcome = self.machine().run(command)
        except BaseException:
            # Ctrl-C: the command may still run, so nobody can use this machine again.
            self._drop()
            raise
        if outcome.end in FATAL_ENDS:
            self._drop()
        return outcome

    def _drop(self) -> None:
        if self._machine is not None:
            self._machine.close()
            self._machine = None
        self._last = None
        self._cases.clear()

    def _bury(self) -> None:
        """Give up a machine; if it is already dead, say which case was its last."""
        machine, last = self._machine, self._last
        if machine is None or machine.alive:
            self._drop()
            return
        try:
            machine.run(Command(argv=("/bin/true",)))
            why = "the machine died"
        except MachineError as err:
            why = str(err)
        self._drop()
        if last is not None:
            self._blame(last, why, Cause.PANIC if "panic" in why else Cause.LOST)

    def find_leaks(self) -> None:
        """Ask a kernel with kmemleak what was lost since it booted; takes seconds there.

        What is found goes to ``aftermath``, as a failure of the case that lost it.
        """
        if self._machine is None or not self._machine.alive or not self._cases:
            return
        cases = tuple(self._cases)
        try:
            outcome = self.run(_FIND_LEAKS)
        except KtestError:
            return  # it died: close() says how
        if outcome.end in FATAL_ENDS:
            cause = Cause.PANIC if outcome.end is End.PANIC else Cause.LOST
            self._blame(cases[-1].case, f"leaks were looked for: {outcome.detail}", cause)
        elif (outcome.end, outcome.exit_code) != (End.EXITED, 0):
            self._say(f"leaks cannot be looked for: {outcome.detail or outcome.text.strip()}")
        for index, leaks in _by_case(read_leaks(outcome.output), cases).items():
            what = f"{len(leaks)} leak{'s' if len(leaks) > 1 else ''}, {leaks[0]}"
            if index < 0:
                what += ", which was allocated before the first case of this machine"
            console = "\n".join(line for leak in leaks for line in leak.lines)
            # Somebody has to look at every leak: a case answers for what nobody else does.
            case = cases[max(0, index)].case
            self._blame(case, what, Cause.SPLAT, console=console, status=Status.FAIL)

    def _blame(
        self,
        case: Case,
        what: str,
        cause: Cause,
        *,
        console: str = "",
        status: Status = Status.ERROR,
    ) -> None:
        """Tell what a case did after it had its verdict."""
        if self._aftermath:
            result = could_not_boot(case, f"{AFTERMATH}: {what}", console)
            self._aftermath(replace(result, status=status, cause=cause, start=time.time()))

    def _say(self, text: str) -> None:
        if self._notify:
            self._notify(text)

    def close(self) -> None:
        """End the machine.  A second call does nothing."""
        self._bury()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, program: Program, point: str, *, nodeid: str = "") -> Result | None:
        """Have a machine ready.  None, or the case's Result if there can be none."""
        while True:
            start = time.time()
            try:
                self.machine()
            except KtestError as err:
                if len(self._failures) < BOOT_ATTEMPTS:
                    continue
                message, _, console = str(err).partition("\n")
                result = could_not_boot(self._case(program, point, nodeid), message, console)
                if not isinstance(err, BootError):
                    lost = isinstance(err, MachineLost)
                    result = replace(result, cause=Cause.LOST if lost else Cause.OTHER)
                return replace(result, start=start, duration=time.time() - start)
            return None

    def run_case(
        self, program: Program, point: str, *, nodeid: str = "", timeout: float | None = None
    ) -> Result:
        """Run one case and judge it.

        ``timeout`` is in seconds at reference speed, the program's own if None.
        """
        if failed := self.prepare(program, point, nodeid=nodeid):
            return failed
        case = self._case(program, point, nodeid)
        required = ",".join(sorted(self._required()))
        outcome = self.run(
            Command(
                argv=(guest_path(program.target, program.name), "-r", point),
                timeout=float(program.timeout if timeout is None else timeout),
                env={"KTEST_REQUIRE": required} if required else {},
            )
        )
        if self._machine is not None:
            self._last = case
            self._cases.append(_Ran(case, outcome.guest_start))
        return judge(case, outcome)

    def _case(self, program: Program, point: str, nodeid: str) -> Case:
        return Case(
            target=f"kselftest.{program.target}",
            program=program.name,
            case=point,
            reproducer=self._command(nodeid),
            worker=self._worker,
            nodeid=nodeid,
        )
