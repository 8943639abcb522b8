# SPDX-License-Identifier: GPL-2.0-only
"""What is refused before QEMU starts, and what QEMU is started with."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BootError, ConfigError, MachineError
from ktest_ntcopy.machine.base import MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.machine.qemu_command import (
    Layout,
    check_kernel,
    find_qemu,
    kernel_arguments,
    qemu_arguments,
)
from ktest_ntcopy.machine.speed import measured_slowdown

LAYOUT = Layout(
    control=Path("/s/agent"),
    monitor=Path("/s/qmp"),
    console=Path("/s/tty"),
    initramfs=Path("/r/i.cpio"),
    log=Path("/r/qemu.log"),
    scratch=Path("/s"),
)


def elf(machine: int, *, wide: bool = True, big_endian: bool = False) -> bytes:
    ident = b"\x7fELF" + bytes([2 if wide else 1, 2 if big_endian else 1]) + bytes(10)
    return ident + struct.pack(">HH" if big_endian else "<HH", 2, machine) + bytes(100)


def bzimage() -> bytes:
    return bytes(0x202) + b"HdrS" + bytes(100)


@pytest.mark.parametrize("data", [elf(62), bzimage()])
def test_bootable(tmp_path: Path, data: bytes) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(data)
    check_kernel(kernel)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (elf(183), "a kernel for arm64; this machine emulates x86_64"),
        (elf(22, big_endian=True), "a kernel for s390x"),
        (elf(3, wide=False), "a kernel for i386"),
        (elf(62, wide=False), "a kernel for x86_64"),  # x32 is no kernel either
        (elf(9999), "a kernel for machine 9999"),
        (b"", "neither an ELF vmlinux nor an x86 bzImage"),
        (b"\x7fELF", "neither an ELF"),
        (b"#!/bin/sh\n", "neither an ELF"),
        (bzimage()[:0x204], "neither an ELF"),
    ],
)
def test_not_bootable(tmp_path: Path, data: bytes, message: str) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(data)
    with pytest.raises(BootError, match=f"{kernel}: {message}"):
        check_kernel(kernel)


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        check_kernel(tmp_path / "kernel")
    with pytest.raises(ConfigError, match="Is a directory"):
        check_kernel(tmp_path)


def test_no_qemu() -> None:
    with pytest.raises(MachineError, match="install the package qemu-system-x86"):
        find_qemu("qemu-system-none")


def test_caller_has_the_last_word_on_the_kernel_command_line() -> None:
    spec = MachineSpec(kernel=Path("k"), append="loglevel=7 panic=0")
    words = kernel_arguments(spec, accel="tcg").split()
    assert words[-2:] == ["loglevel=7", "panic=0"]
    assert "tsc=reliable" in words
    assert "tsc=reliable" not in kernel_arguments(spec, accel="kvm").split()


def test_kunit_runs_only_if_the_caller_says_so() -> None:
    plain = kernel_arguments(MachineSpec(kernel=Path("k")), accel="tcg").split()
    assert [w for w in plain if w.startswith("kunit")] == ["kunit.enable=0"]
    asked = MachineSpec(kernel=Path("k"), append="kunit.enable=1")
    words = kernel_arguments(asked, accel="tcg").split()
    assert words.index("kunit.enable=0") < words.index("kunit.enable=1")


def test_arguments() -> None:
    spec = MachineSpec(kernel=Path("/k"), cpus=3, memory_mib=99, share=Path("/a,b"))
    arguments = qemu_arguments("/q", spec, LAYOUT, accel="kvm")
    pairs = dict(itertools.pairwise(arguments))
    assert arguments[0] == "/q"
    assert pairs["-accel"] == "kvm"
    assert (pairs["-smp"], pairs["-m"], pairs["-kernel"]) == ("3", "99", "/k")
    assert "path=/a,,b," in pairs["-fsdev"]
    assert "readonly=on" in pairs["-fsdev"]
    assert "-no-reboot" in arguments
    without = qemu_arguments("/q", MachineSpec(kernel=Path("/k")), LAYOUT, accel="tcg")
    assert "-fsdev" not in without


@pytest.mark.parametrize(
    ("compute", "kernel", "boot", "expected"),
    [
        (0.0, 0.0, 0.0, 1.0),
        (0.00017, 0.0002, 1.0, 1.0),
        (0.00068, 0.0002, 1.0, 4.0),
        (0.00017, 0.0012, 1.0, 6.0),
        (0.00017, 0.0002, 15.0, 5.0),
        (10.0, 10.0, 10.0, 30.0),
    ],
)
def test_slowdown(compute: float, kernel: float, boot: float, expected: float) -> None:
    assert measured_slowdown(compute, kernel, boot) == pytest.approx(expected)


def test_unknown_accelerator() -> None:
    with pytest.raises(ValueError, match="not auto, kvm or tcg"):
        QemuMachine(MachineSpec(kernel=Path("k")), accel="hvf")


def test_machine_that_was_not_booted() -> None:
    machine = QemuMachine(MachineSpec(kernel=Path("k")))
    assert not machine.alive
    with pytest.raises(MachineError, match="has not booted"):
        machine.info  # noqa: B018
    machine.close()
    machine.close()


def test_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(elf(62))
    (tmp_path / "run").mkdir()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ktest_ntcopy.machine.qemu.initramfs.write", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    machine = QemuMachine(MachineSpec(kernel=kernel, run_dir=tmp_path / "run"), accel="tcg")
    with pytest.raises(MachineError, match="run: no space left for the machine's files"):
        machine.boot()
    assert not list(tmp_path.glob("ktest-*"))


def test_run_dir_that_is_a_file(tmp_path: Path) -> None:
    kernel, run_dir = tmp_path / "vmlinux", tmp_path / "run"
    kernel.write_bytes(elf(62))
    run_dir.touch()
    with pytest.raises(MachineError, match="run: File exists"):
        QemuMachine(MachineSpec(kernel=kernel, run_dir=run_dir), accel="tcg").boot()
