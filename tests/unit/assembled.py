# SPDX-License-Identifier: GPL-2.0-only
"""Small linked programs, assembled for the tests of machine code."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from ktest_ntcopy.image.code.paths import CodePaths
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.names.symbols import read_symbols

_FLAGS = ["-nostdlib", "-nostartfiles", "-Wl,-e,start", "-Wl,--build-id=none", "-Wl,-z,noexecstack"]
_WANTED = {
    "x86_64": ("gcc", ["-m64", "-static", "-no-pie"]),
    "i386": ("gcc", ["-m32", "-static", "-no-pie"]),
    "arm64": ("aarch64-linux-gnu-gcc", ["-static", "-no-pie"]),
    "arm64-pie": ("aarch64-linux-gnu-gcc", ["-static-pie", "-Wl,--no-dynamic-linker"]),
}


def function(name: str, *lines: str, size: str = "", binding: str = "globl") -> str:
    """Assembler text of a function; ``size`` replaces the true one."""
    body = "\n\t".join(lines)
    return (
        f"\t.text\n\t.{binding} {name}\n\t.type {name}, @function\n{name}:\n\t{body}\n"
        f"\t.size {name}, {size or f'. - {name}'}\n"
    )


def leaves(*names: str) -> str:
    """Assembler text of functions that call nothing."""
    return "".join(function(name, "nop", "nop", "ret") for name in names)


def link(folder: Path, *sources: str, machine: str = "x86_64") -> Path:
    """A program of assembler sources, each a file of its own."""
    compiler, flags = _WANTED[machine]
    if machine in ("x86_64", "i386") and platform.machine() != "x86_64":
        pytest.skip(f"this host's assembler is for {platform.machine()}, not for x86")
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed; see setup/debian-packages.txt")
    files = []
    for number, source in enumerate((*sources, function("start", "nop"))):
        files.append(folder / f"{number}.s")
        files[-1].write_text(source.replace("@", "%") if machine[:3] == "arm" else source)
    out = folder / "vmlinux"
    command = [compiler, *flags, *_FLAGS, "-o", str(out), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def code_of(path: Path) -> CodePaths:
    """The questions that a linked program answers."""
    elf = Elf(path)
    symbols = read_symbols(elf)
    assert symbols is not None
    return CodePaths(elf, symbols)


def assembled(folder: Path, *sources: str, machine: str = "x86_64") -> CodePaths:
    """:func:`link` and :func:`code_of` at once."""
    return code_of(link(folder, *sources, machine=machine))
