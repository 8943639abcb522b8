# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures of the tests that boot a kernel; ``KTEST_KERNEL`` names it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.machine.base import Command, MachineSpec, Outcome
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.programs import build_programs

from .broken_kernel import Break, Image

_PROGRAMS = Path(__file__).with_name("guest_programs")


@pytest.fixture(scope="session")
def kernel() -> Path:
    """The kernel to boot."""
    named = os.environ.get("KTEST_KERNEL")
    if not named:
        pytest.fail("set KTEST_KERNEL to a vmlinux or bzImage built with Kconfig.fragment")
    path = Path(named).absolute()
    if not path.is_file():
        pytest.fail(f"KTEST_KERNEL={named}: no such file")
    return path


@pytest.fixture(scope="session")
def guest_programs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Guest path of every misbehaving program -> the compiled file."""
    folder = tmp_path_factory.mktemp("guest_programs")

    def build(source: Path) -> tuple[str, Path]:
        out = folder / source.stem
        command = ["gcc", "-std=gnu11", "-static", "-O1", "-s", "-Wall", "-Wextra", "-Werror"]
        done = subprocess.run(
            [*command, "-o", str(out), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.fail(f"{source} does not compile:\n{done.stderr}")
        return f"/bin/{source.stem}", out

    with ThreadPoolExecutor() as pool:
        return dict(pool.map(build, sorted(_PROGRAMS.glob("*.c"))))


class Guests:
    """Runs commands in a machine and gets a new one when the last has died."""

    def __init__(self, spec: MachineSpec) -> None:
        self.spec = spec
        self.booted = 0
        self._machine: QemuMachine | None = None

    @property
    def machine(self) -> QemuMachine:
        if self._machine is None or not self._machine.alive:
            self.close()
            self._machine = QemuMachine(self.spec)
            self._machine.boot()
            self.booted += 1
        return self._machine

    def run(self, *argv: str, timeout: float = 10.0, **rest: object) -> Outcome:
        return self.machine.run(Command(argv=argv, timeout=timeout, **rest))  # type: ignore[arg-type]

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()


@pytest.fixture(scope="module")
def guests(
    kernel: Path, guest_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guests]:
    spec = MachineSpec(
        kernel=kernel,
        files=guest_programs,
        memory_mib=256,
        run_dir=tmp_path_factory.mktemp("run"),
    )
    guests = Guests(spec)
    yield guests
    guests.close()


@pytest.fixture(scope="module")
def selftests(kernel: Path) -> Mapping[str, Path]:
    """The compiled selftests: path in the guest -> file here."""
    return build_programs(open_kernel(kernel), None)


@pytest.fixture
def broken(kernel: Path, tmp_path: Path) -> Iterator[Callable[[Break], Path]]:
    """Makes a copy of the kernel with something broken; it is large and goes again."""
    copy = tmp_path / "vmlinux"

    def make(change: Break) -> Path:
        vmlinux = open_kernel(kernel).vmlinux
        if vmlinux is None:
            pytest.skip(f"{kernel} comes without the vmlinux that could be changed")
        image = Image(vmlinux)
        change(image)
        assert image.patches
        shutil.copyfile(vmlinux, copy)
        with copy.open("r+b") as file:
            for at, data in image.patches:
                file.seek(at)
                file.write(data)
        return copy

    yield make
    copy.unlink(missing_ok=True)
