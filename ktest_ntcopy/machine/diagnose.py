# SPDX-License-Identifier: GPL-2.0-only
"""What a dead guest, or one that never came up, tells about the cause.  Pure text work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ktest_ntcopy.machine.channel import FATAL_MARK

_PANIC = re.compile(r"Kernel panic - not syncing: ?(?P<why>.*)")
_CLEAN_END = re.compile(r"reboot: (?P<what>Restarting system|Power down|System halted)")
_OOM = re.compile(
    r"[Oo]ut of memory: Killed process (?P<pid>\d+) \((?P<comm>.*?)\),? (?:total-vm|UID)"
)
_AGENT = re.compile(re.escape(FATAL_MARK) + r"(?P<why>.*)")
_FAULT = re.compile(
    r"(?P<what>BUG: .*|kernel BUG at .*|Oops: .*|general protection fault.*|divide error.*"
    r"|invalid opcode.*|stack segment.*)"
)

#: Lines that decide on an outcome; the console keeps them even if a flood buries them.
DECISIVE = re.compile(
    "|".join(
        (
            "Kernel panic - not syncing",
            "reboot: ",
            "[Oo]ut of memory: Killed process",
            re.escape(FATAL_MARK),
            _FAULT.pattern.replace("?P<what>", "?:"),
        )
    )
)

#: The kernel keeps this many bytes of a process name.
_COMM_MAX = 15

_NO_INITRAMFS = "the kernel has no initramfs support (CONFIG_BLK_DEV_INITRD)"

#: What a panic at boot, or QEMU's complaint, means to whoever made the kernel.
_BOOT_CAUSES: tuple[tuple[str, str], ...] = (
    (r"Unable to mount root fs", _NO_INITRAMFS),
    (r"Failed to execute /init", "the kernel cannot run the guest agent (CONFIG_BINFMT_ELF)"),
    (r"No working init found", _NO_INITRAMFS),
    (
        r"without PVH ELF Note",
        "this vmlinux cannot be booted directly: it needs CONFIG_PVH, or use bzImage",
    ),
    (r"invalid kernel header|linux kernel too old", "this is no bootable kernel image"),
    (r"could not load kernel|could not open kernel", "QEMU cannot read the kernel"),
)


_NO_MEMORY = re.compile(r"[Cc]annot allocate memory|cannot set up guest memory")


def host_cause(hypervisor: Sequence[str]) -> str | None:
    """What this host lacks to run the guest, or None."""
    if any(_NO_MEMORY.search(line) for line in hypervisor):
        return "not enough memory on this host"
    return None


def panic(lines: Iterable[str]) -> str | None:
    """Why the kernel panicked, or None; a "Fatal exception" with the fault that led to it.

    A line that a program wrote into the kernel log does not count when the
    kernel went on to an orderly end.
    """
    why = fault = None
    for line in lines:
        if (found := _PANIC.search(line)) and why is None:
            why = found["why"].strip() or "no reason given"
            if fault and why.startswith("Fatal exception"):
                why += f" ({fault})"
        elif (found := _FAULT.search(line)) and fault is None:
            fault = found["what"].strip()
        elif _CLEAN_END.search(line):
            why = None
    return why


def clean_end(lines: Iterable[str]) -> str | None:
    """ "Restarting system", "Power down" or "System halted", whichever came last."""
    what = None
    for line in lines:
        if found := _CLEAN_END.search(line):
            what = found["what"]
    return what


def oom_victim(lines: Iterable[str], pid: int, comm: str) -> tuple[str, int] | None:
    """Name and pid of the process the out-of-memory killer chose, if it was this one.

    ``comm`` helps when the numbers are those of another pid namespace.
    """
    victims = [(m["comm"], int(m["pid"])) for line in lines if (m := _OOM.search(line))]
    for victim in victims:
        if victim[1] == pid:
            return victim
    for victim in victims:
        if comm and victim[0] == comm[:_COMM_MAX]:
            return victim
    return None


def agent_complaint(lines: Iterable[str]) -> str | None:
    """Why the agent gave up, or None."""
    for line in lines:
        if found := _AGENT.search(line):
            return found["why"].strip()
    return None


def boot_cause(console: Sequence[str], hypervisor: Sequence[str]) -> str | None:
    """Why a guest did not come up, in words of whoever has to act; None if unknown."""
    if complaint := agent_complaint(console):
        return complaint
    for pattern, meaning in _BOOT_CAUSES:
        for line in (*console, *hypervisor):
            if re.search(pattern, line):
                return meaning
    if (why := panic(console)) is not None:
        return f"kernel panic at boot: {why}"
    return None


def excerpt(console: Sequence[str], count: int = 12) -> str:
    """The last lines of the console, for an error message."""
    shown = [line for line in console if line.strip()][-count:]
    if not shown:
        return "the console stayed empty"
    return "last console lines:\n" + "\n".join(f"  {line}" for line in shown)
