# SPDX-License-Identifier: GPL-2.0-only
"""The interface of a machine: boot, run commands, close.

Nothing here knows QEMU.  User Mode Linux, the running kernel or a restored
snapshot implement the same :class:`Machine`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class End(enum.StrEnum):
    """How a command ended, as seen from the host."""

    EXITED = "exited"  #: returned an exit status
    SIGNALED = "signaled"  #: ended by a signal that nobody else explains
    OOM = "oom"  #: ended by the kernel's out-of-memory killer
    TIMEOUT = "timeout"  #: over its time limit, ended by the agent
    FLOOD = "flood"  #: over its output limit, ended by the agent
    PANIC = "panic"  #: the kernel panicked
    HANG = "hang"  #: the guest no longer answers
    DOWN = "down"  #: the guest powered off or rebooted
    LOST = "lost"  #: the machine itself went away (hypervisor ended)


#: Where the agent lies in every guest.  As a command it answers questions: "leaks".
AGENT = "/init"
#: After these the machine is of no further use and the next command needs a new one.
FATAL_ENDS = frozenset({End.PANIC, End.HANG, End.DOWN, End.LOST})


@dataclass(frozen=True, kw_only=True)
class Command:
    """One program to run in the machine.

    ``timeout`` is in seconds on a machine of reference speed; the machine
    multiplies it by its own measured slowdown.
    """

    argv: tuple[str, ...]
    timeout: float = 30.0
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    root: str = "/"  #: root directory; any other gets a copy-on-write view of its own
    output_limit: int = 4 << 20  #: bytes


@dataclass(frozen=True)
class Chunk:
    """A piece of output, in the order the guest read it."""

    time: float  #: guest clock (CLOCK_BOOTTIME), seconds since boot; same clock as printk
    data: bytes


@dataclass(frozen=True)
class ConsoleLine:
    """One line of the guest's console, sanitised to printable text."""

    time: float  #: host clock (time.monotonic), seconds, when the line was complete
    text: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one command.  Never raised: a dead guest is an outcome too."""

    end: End
    exit_code: int | None = None  #: only for EXITED
    signal: int | None = None  #: only for SIGNALED, OOM
    output: tuple[Chunk, ...] = ()  #: stdout and stderr, merged in order
    console: tuple[ConsoleLine, ...] = ()  #: what the console said meanwhile
    start: float = 0.0  #: host wall clock (time.time)
    duration: float = 0.0  #: seconds, host clock
    guest_start: float = 0.0  #: by the guest's clock, as in Chunk; 0 if unknown
    guest_seconds: float = 0.0  #: the command's own run time by the guest's clock; 0 if unknown
    limit: float = 0.0  #: seconds, the scaled limit that applied
    detail: str = ""  #: one line that names the cause, empty when EXITED

    @property
    def text(self) -> str:
        """The output decoded; undecodable bytes become backslash escapes."""
        return b"".join(c.data for c in self.output).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, kw_only=True)
class MachineInfo:
    """Facts about a booted machine, for reports."""

    kind: str  #: "qemu", later "uml", "host"
    accel: str  #: "kvm", "tcg", "native"
    arch: str  #: uname -m
    release: str  #: uname -r
    version: str  #: uname -v
    boot_seconds: float  #: start to agent ready
    slowdown: float  #: 1.0 = reference speed; time limits are multiplied by it
    command_line: tuple[str, ...]  #: what starts this machine, for a reproducer


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """What to boot.  The initramfs is made by the caller's implementation."""

    kernel: Path
    files: Mapping[str, Path] = field(default_factory=dict)  #: guest path -> host file
    share: Path | None = None  #: host directory, read-only root below /host
    cpus: int = 2
    memory_mib: int = 512
    append: str = ""  #: extra kernel command line
    hypervisor_args: tuple[str, ...] = ()  #: extra arguments, in the hypervisor's own terms
    run_dir: Path | None = None  #: sockets and console log; a temporary one if None
    timeout: float = 60.0  #: seconds for boot at reference speed
    #: Seconds at reference speed without a console line that make a booting guest a dead
    #: one, for kernels that run tests of their own before the agent; 0: no limit but
    #: ``timeout``.  How such a boot ends says nothing about the accelerator.
    boot_silence: float = 0.0


class Machine(Protocol):
    """One guest.  Use as a context manager; ``close`` is idempotent and never raises."""

    @property
    def info(self) -> MachineInfo: ...

    @property
    def alive(self) -> bool: ...

    @property
    def boot_console(self) -> tuple[ConsoleLine, ...]:
        """What the console said until the agent was ready, or until the boot failed."""
        ...

    def boot(self) -> MachineInfo:
        """Start and wait for the agent.  Raises BootError or MachineError."""
        ...

    def run(self, command: Command) -> Outcome: ...

    def close(self) -> None: ...
