# SPDX-License-Identifier: GPL-2.0-only
"""From a started QEMU to the agent's first message, or to the reason why there is none."""

from __future__ import annotations

import time

from ktest_ntcopy.errors import BootError, MachineError, MachineLost
from ktest_ntcopy.machine import channel, diagnose
from ktest_ntcopy.machine.base import End, MachineSpec
from ktest_ntcopy.machine.hypervisor import Hypervisor, HypervisorGone
from ktest_ntcopy.machine.speed import Silence

#: A boot that had more seconds than this is worth some more for a trace of where it stands.
_PATIENT = 5.0
#: Seconds a panicked guest has to reset itself.
_PANIC_GRACE = 3.0


def wait_ready(
    hypervisor: Hypervisor, spec: MachineSpec, *, limit: float, silence: float
) -> channel.Ready:
    """The agent's first message.

    The guest is given up after ``limit`` seconds, or ``silence`` seconds without a
    word on its console.  Raises what :func:`failure` makes of a guest that does not get there.
    """
    assert hypervisor.qmp is not None
    start = time.monotonic()
    panicked = 0.0
    quiet = Silence(silence, start)
    while True:
        for message in hypervisor.pump(0.25):
            if isinstance(message, channel.Ready):
                return message
        now = time.monotonic()
        decisive = hypervisor.console.window.decisive
        if hypervisor.gone:
            raise failure(hypervisor, spec, "")
        if hypervisor.qmp.event("STOP") is not None:
            state = hypervisor.qmp.status()
            raise failure(
                hypervisor, spec, f"the hypervisor stopped the guest ({state or 'no state'})"
            )
        if diagnose.panic(decisive) is not None or diagnose.agent_complaint(decisive):
            panicked = panicked or now
            if now - panicked > _PANIC_GRACE:
                raise failure(hypervisor, spec, "")
        symptom = ""
        if now - start > limit:
            symptom = f"the guest did not report back within {limit:.3g} s"
        elif quiet.too_long(now, hypervisor.console.last_time):
            symptom = f"the guest printed nothing for {quiet.seconds:.3g} s"
        if symptom:
            if limit > _PATIENT and hypervisor.nmi():
                hypervisor.listen(1.5)
            raise failure(hypervisor, spec, symptom)


def failure(hypervisor: Hypervisor, spec: MachineSpec, symptom: str) -> BootError | MachineError:
    """Why a guest did not come up, as an exception: its own fault or the host's.

    ``symptom`` is what it was given up for; empty if it, or QEMU, ended by itself.
    """
    assert hypervisor.qmp is not None
    console = [line.text for line in hypervisor.console.window.lines()]
    said = hypervisor.said()
    if hypervisor.gone and (why := diagnose.host_cause(said)):
        words = hypervisor.last_words()
        return MachineError(f"{why} for a guest of {spec.memory_mib} MiB: {words}")
    cause = symptom or diagnose.boot_cause(console, said)
    if hypervisor.gone and not cause:
        words = hypervisor.last_words()
        if hypervisor.killed:
            return MachineLost(f"QEMU ended while the guest booted: {words}")
        if hypervisor.qmp.event("SHUTDOWN") is None:
            return MachineError(f"QEMU ended while the guest booted: {words}")
        cause = "the guest reset itself before it reported back"
    panicked = diagnose.panic(console) is not None
    end = End.HANG if symptom else End.PANIC if panicked else End.DOWN
    return BootError(f"{spec.kernel}: {cause}\n{diagnose.excerpt(console)}", end=end)


def refusal(gone: HypervisorGone, spec: MachineSpec) -> BootError | MachineError:
    """Why QEMU ended before it had set itself up, as an exception."""
    words, said = str(gone), gone.said
    if why := diagnose.host_cause(said):
        return MachineError(f"{why} for a guest of {spec.memory_mib} MiB: {words}")
    if cause := diagnose.boot_cause((), said):
        return BootError(f"{spec.kernel}: {cause} ({words})")
    kind = MachineLost if gone.killed else MachineError
    return kind(f"QEMU did not start: {words}")
