# SPDX-License-Identifier: GPL-2.0-only
"""What is made of a QEMU that ends before its guest is ready."""

from __future__ import annotations

import copy
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ktest_ntcopy.errors import BootError, MachineError, MachineLost
from ktest_ntcopy.machine import boot
from ktest_ntcopy.machine.base import End, MachineSpec
from ktest_ntcopy.machine.hypervisor import Hypervisor, HypervisorGone
from ktest_ntcopy.machine.qemu_command import Layout

TERMINATED = "qemu-system-x86_64: terminating on signal 15 from pid 1 (init)"


_open = os.pidfd_open


def open_late(pid: int) -> int:
    """Opens the process when it has ended and its parent knows: there is none any more."""
    fd = _open(pid)
    try:
        select.select([fd], [], [])
    finally:
        os.close(fd)
    raise ProcessLookupError(pid)


@pytest.mark.parametrize("opened", [_open, open_late], ids=["in time", "too late"])
@pytest.mark.parametrize(
    ("script", "words", "killed"),
    [
        ("kill -9 $$", "killed by SIGKILL", True),
        ("kill -15 $$", "killed by SIGTERM", True),
        (f"echo '{TERMINATED}'", f"exit status 0: {TERMINATED}", True),
        ("echo bad option; exit 1", "exit status 1: bad option", False),
        ("exec /no/such/qemu", "exit status 127", False),
    ],
)
def test_end_before_the_sockets_are_connected(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    words: str,
    killed: bool,
    opened: Callable[[int], int],
) -> None:
    monkeypatch.setattr("os.pidfd_open", opened)
    layout = Layout(
        control=tmp_path / "agent",
        monitor=tmp_path / "qmp",
        console=tmp_path / "tty",
        initramfs=tmp_path / "initramfs",
        log=tmp_path / "qemu.log",
        scratch=tmp_path,
    )
    with pytest.raises(HypervisorGone) as caught:
        Hypervisor(["/bin/sh", "-c", script], layout, token=1)
    assert str(caught.value).startswith(words)
    assert caught.value.killed is killed
    refused = boot.refusal(caught.value, MachineSpec(kernel=tmp_path))
    assert type(refused) is (MachineLost if killed else MachineError)
    assert str(refused).startswith(f"QEMU did not start: {words}")


class Ended:
    """A QEMU that ended while its guest booted."""

    gone = True

    def __init__(self, *, killed: bool, event: object, console: list[str]) -> None:
        self.killed = killed
        self.qmp = self.console = self.window = self
        self._event = event
        self._console = console

    def event(self, _: str) -> object:
        return self._event

    def said(self) -> list[str]:
        return []

    def last_words(self) -> str:
        return "its last words"

    def lines(self) -> list[object]:
        return [type("Line", (), {"text": text}) for text in self._console]


PANIC = ["Kernel panic - not syncing: no init"]


@pytest.mark.parametrize(
    ("killed", "event", "console", "kind"),
    [
        (True, None, [], MachineLost),
        (True, {"reason": "host-signal"}, [], MachineLost),
        (False, None, [], MachineError),
        (False, {"reason": "guest-reset"}, [], BootError),
        (True, None, PANIC, BootError),  # the kernel was done for already
    ],
)
def test_end_while_the_guest_boots(
    tmp_path: Path, killed: bool, event: object, console: list[str], kind: type[Exception]
) -> None:
    ended: Any = Ended(killed=killed, event=event, console=console)
    error = boot.failure(ended, MachineSpec(kernel=tmp_path), "")
    assert type(error) is kind


@pytest.mark.parametrize(
    ("console", "symptom", "end"),
    [
        (PANIC, "", End.PANIC),
        (["Linux version 6.12"], "", End.DOWN),
        (["Linux version 6.12"], "the guest printed nothing for 30 s", End.HANG),
        (PANIC, "the guest printed nothing for 30 s", End.HANG),  # the NMI's
    ],
)
def test_how_a_boot_ended(tmp_path: Path, console: list[str], symptom: str, end: End) -> None:
    ended: Any = Ended(killed=False, event={"reason": "guest-reset"}, console=console)
    error = boot.failure(ended, MachineSpec(kernel=tmp_path), symptom)
    assert isinstance(error, BootError)
    assert error.end == end
    assert copy.copy(error).end == end
