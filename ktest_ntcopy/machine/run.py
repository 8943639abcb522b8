# SPDX-License-Identifier: GPL-2.0-only
"""One command in a guest, from the request to the verdict on how it ended."""

from __future__ import annotations

import signal
import time

from ktest_ntcopy.machine import channel, diagnose
from ktest_ntcopy.machine.base import Chunk, End, Outcome
from ktest_ntcopy.machine.hypervisor import Hypervisor

#: Seconds of silence after which the agent is asked whether it still lives.
_PING_AFTER = 2.0
#: Seconds of silence that make a dead guest: the agent has real time priority, so
#: it is mostly the host's load that can delay it.
_HANG_AFTER = 10.0
_HANG_AFTER_MAX = 30.0
#: Seconds over the limit in which the agent must have ended the command (it gives
#: what survives SIGKILL ten seconds).
_GRACE = 15.0
#: Seconds a panicked guest has to reset itself.
_PANIC_GRACE = 3.0
_TICK = 0.5


def hang_limit(slowdown: float) -> float:
    """Seconds of silence after which a guest counts as dead."""
    return min(_HANG_AFTER + slowdown / 2, _HANG_AFTER_MAX)


class Run:
    """Sends the request, collects output, tells how it ended."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        request: bytes,
        *,
        number: int,
        token: int,
        limit: float,
        name: str,
        slowdown: float,
    ) -> None:
        self._hypervisor = hypervisor
        self._number = number
        self._token = token
        self._limit = limit
        self._name = name
        self._hang = hang_limit(slowdown)
        self._grace = _GRACE + slowdown
        self._pid = 0
        self._started = 0.0  # guest clock
        self._guest_seconds = 0.0
        self._output: list[Chunk] = []
        self._pings = 0
        self._window = hypervisor.console.restart()
        self._wall = time.time()
        self._start = time.monotonic()
        self.stuck = ""  #: why the machine takes no further command, although it lives
        hypervisor.send(request)

    def wait(self) -> Outcome:
        """Wait until the command is over or the guest is dead."""
        silence = 0.0
        before = time.monotonic()
        while True:
            messages = self._hypervisor.pump(_TICK)
            now = time.monotonic()
            for message in messages:
                if (outcome := self._take(message)) is not None:
                    return outcome
            if self._hypervisor.gone:
                return self._dead()
            # Time in which this process did not run says nothing about the guest.
            silence = 0.0 if messages else silence + min(now - before, 2 * _TICK)
            before = now
            if silence >= _PING_AFTER * (self._pings + 1):
                self._pings += 1
                self._hypervisor.send(channel.ping(self._token, self._pings))
            if not silence:
                self._pings = 0
            elif silence >= _PANIC_GRACE and diagnose.panic(self._window.decisive) is not None:
                return self._panicked()
            elif silence >= self._hang:
                return self._hung(f"guest stopped answering for {silence:.0f} s")
            if now - self._start > self._limit + self._grace:
                return self._hung("agent did not end the command after its time limit")

    # What the agent says

    def _take(self, message: channel.Message) -> Outcome | None:
        match message:
            case channel.Started(id=self._number):
                self._pid = message.pid
                self._started = message.time
            case channel.Output(id=self._number):
                self._output.append(Chunk(message.time, message.data))
            case channel.Exit(id=self._number):
                self._guest_seconds = message.time - self._started if self._started else 0.0
                return self._over(message)
        return None

    def _over(self, message: channel.Exit) -> Outcome:
        if message.stuck:
            self.stuck = (
                f"{message.stuck} process(es) survived SIGKILL, first of them {message.note}"
            )
        match message.reason:
            case channel.Reason.EXITED:
                return self._outcome(End.EXITED, exit_code=message.value)
            case channel.Reason.SIGNALED:
                return self._signaled(message.value)
            case channel.Reason.TIMEOUT:
                where = f" ({message.note})" if message.note else ""
                detail = f"over its time limit of {self._limit:.3g} s{where}"
                return self._outcome(End.TIMEOUT, detail=detail)
            case channel.Reason.FLOOD:
                size = sum(len(chunk.data) for chunk in self._output)
                return self._outcome(End.FLOOD, detail=f"over its output limit of {size} bytes")
            case channel.Reason.REFUSED:
                self.stuck = f"the agent could not start a command: {message.note}"
                return self._outcome(End.LOST, detail=self.stuck)

    def _signaled(self, number: int) -> Outcome:
        if number == signal.SIGKILL:
            victim = diagnose.oom_victim(self._window.decisive, self._pid, self._name)
            if victim is not None:
                detail = f'out-of-memory killer ended "{victim[0]}" (pid {victim[1]})'
                return self._outcome(End.OOM, signal=number, detail=detail)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return self._outcome(End.SIGNALED, signal=number, detail=f"ended by {name}")

    # What the agent can no longer say

    def _dead(self) -> Outcome:
        decisive = self._window.decisive
        if diagnose.panic(decisive) is not None:
            return self._panicked()
        assert self._hypervisor.qmp is not None
        event = self._hypervisor.qmp.event("SHUTDOWN")
        if event is None or not event.get("guest"):
            words = self._hypervisor.last_words()
            return self._outcome(End.LOST, detail=f"the hypervisor ended: {words}")
        match diagnose.clean_end(decisive):
            case "Power down":
                detail = "guest powered off"
            case "Restarting system":
                detail = "guest rebooted"
            case "System halted":
                detail = "guest halted"
            case _:
                detail = "guest reset without an orderly end (triple fault, sysrq b)"
        return self._outcome(End.DOWN, detail=detail)

    def _panicked(self) -> Outcome:
        why = diagnose.panic(self._window.decisive)
        return self._outcome(End.PANIC, detail=f"kernel panic: {why}")

    def _hung(self, what: str) -> Outcome:
        assert self._hypervisor.qmp is not None
        state = self._hypervisor.qmp.status()
        if state and state != "running":
            what += f"; the hypervisor reports it as {state}"
        elif self._hypervisor.nmi():
            self._hypervisor.listen(3.0)
            what += "; see the console for traces"
        return self._outcome(End.HANG, detail=what)

    def _outcome(
        self,
        end: End,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        detail: str = "",
    ) -> Outcome:
        return Outcome(
            end=end,
            exit_code=exit_code,
            signal=signal,
            output=tuple(self._output),
            console=self._window.lines(),
            start=self._wall,
            duration=time.monotonic() - self._start,
            guest_start=self._started,
            guest_seconds=self._guest_seconds,
            limit=self._limit,
            detail=detail,
        )
