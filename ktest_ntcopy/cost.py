# SPDX-License-Identifier: GPL-2.0-only
"""What a send costs in instructions, before and after a change.

The guest's virtual time advances by one nanosecond per instruction, so its
time stamp counter counts instructions: the figures are exact, the same on any
host, and the same every time.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from ktest_ntcopy.compiler import find_compiler
from ktest_ntcopy.errors import BuildError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.kernel.process import Notify, capture
from ktest_ntcopy.machine.base import Command, End, MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.paths import data_root

#: QEMU's options for one instruction per nanosecond of guest time.
COUNT_INSTRUCTIONS = ("-icount", "shift=0")
#: Guest path of the program that measures.
_PROGRAM = "/send_cost"


@dataclass(frozen=True, order=True)
class Case:
    """One kind of send."""

    transport: str
    size: int  #: bytes
    flags: str  #: "plain" or the flag's name


def _compile(folder: Path) -> Path:
    source = data_root() / "tools-testing-net/bench/send_cost.c"
    program = folder / "send_cost"
    defines = [f"-D{d.name}={d.value:#x}" for f in load_features() for d in f.defines]
    compiler = find_compiler().argv
    done = capture([*compiler, "-static", "-O2", "-Wall", *defines, "-o", program, source])
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise BuildError(f"{source}: {said[0] if said else 'gcc failed'}")
    return program


def parse(text: str) -> dict[Case, int]:
    """Minimum per case from the program's lines.  Raises BuildError on anything else."""
    found = {}
    for line in text.splitlines():
        try:
            transport, size, flags, least, _median = line.split()
            found[Case(transport, int(size), flags)] = int(least)
        except ValueError as err:
            raise BuildError(f"send_cost printed {line!r}, not a measurement") from err
    return found


def measure(kernel: Path, notify: Notify) -> dict[Case, int]:
    """Instructions of each kind of send on one kernel."""
    with tempfile.TemporaryDirectory() as name:
        spec = MachineSpec(kernel=kernel, files={_PROGRAM: _compile(Path(name))}, cpus=1)
        spec = replace(spec, hypervisor_args=COUNT_INSTRUCTIONS)
        with QemuMachine(spec, accel="tcg", notify=notify) as machine:
            machine.boot()
            outcome = machine.run(Command(argv=(_PROGRAM,), timeout=60))
    if outcome.end is not End.EXITED or outcome.exit_code:
        raise BuildError(f"{kernel}: send_cost failed: {outcome.detail or outcome.text.strip()}")
    return parse(outcome.text)


def table(before: dict[Case, int], after: dict[Case, int]) -> str:
    """One line per kind of send: before, after, difference."""
    lines = [f"{'send':<26} {'before':>8} {'after':>8} {'change':>8}"]
    for case in sorted(after):
        old, new = before.get(case, 0), after[case]
        what = f"{case.transport} {case.size} B {case.flags}"
        lines.append(f"{what:<26} {old:>8} {new:>8} {new - old:>+8}")
    return "\n".join(lines)
