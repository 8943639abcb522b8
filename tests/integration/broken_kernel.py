# SPDX-License-Identifier: GPL-2.0-only
"""Copies of a kernel with a few bytes changed, and what the selftests say of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import Program
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.names.symbols import load_symbols
from ktest_ntcopy.image.types.btf import load_btf
from ktest_ntcopy.machine.base import Command, End, MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.results.ktap import Directive, parse


@dataclass
class Image:
    """A vmlinux, to find things in."""

    path: Path
    patches: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        symbols, btf = load_symbols(self.path), load_btf(self.path)
        if symbols is None or btf is None:
            pytest.skip(f"{self.path} has no symbols or no BTF: nothing can be found in it")
        self.symbols, self.btf = symbols, btf

    def need(self, symbol: str, feature: str) -> None:
        """Skip the test unless the kernel has the feature that the symbol belongs to."""
        if symbol not in self.symbols:
            pytest.skip(f"{self.path} has no {feature} to break")

    def offset(self, address: int) -> int:
        with Elf(self.path) as elf:
            for name in (".text", ".data", ".rodata"):
                section = elf.section(name)
                if section and section.address <= address < section.address + section.size:
                    return section.offset + address - section.address
        raise AssertionError(f"{address:#x} is in no section that is loaded from the file")

    def body(self, function: str) -> bytes:
        symbol = self.symbols[function]
        with Elf(self.path) as elf:
            return elf.at(symbol.address, symbol.size)

    def change(self, function: str, at: int, new: bytes) -> None:
        """Other code from byte ``at`` of a function on."""
        self.patches.append((self.offset(self.symbols[function].address) + at, new))

    def replace(self, function: str, old: str, new: str, *, times: int) -> None:
        """Change every occurrence of some code, given in hex, in a function."""
        before, after = bytes.fromhex(old), bytes.fromhex(new)
        assert len(before) == len(after)
        body = self.body(function)
        if body.count(before) != times:
            pytest.skip(f"{function} was compiled to other instructions than expected")
        at = body.find(before)
        while at >= 0:
            self.change(function, at, after)
            at = body.find(before, at + 1)

    def jump(self, function: str, target: str) -> None:
        """Let one function be another one."""
        distance = self.symbols[target].address - (self.symbols[function].address + 5)
        self.change(function, 0, b"\xe9" + distance.to_bytes(4, "little", signed=True))

    def retarget(self, function: str, callee: str, target: str | None) -> None:
        """Let a function call another one instead of ``callee``, or none at all."""
        start, body, found = self.symbols[function].address, self.body(function), 0
        for at in range(len(body) - 4):
            after = start + at + 5
            distance = int.from_bytes(body[at + 1 : at + 5], "little", signed=True)
            if body[at] != 0xE8 or after + distance != self.symbols[callee].address:
                continue
            code = bytes.fromhex("0f1f440000")
            if target:
                distance = self.symbols[target].address - after
                code = b"\xe8" + distance.to_bytes(4, "little", signed=True)
            self.change(function, at, code)
            found += 1
        if not found:
            pytest.skip(f"{function} was compiled without a call of {callee}")


Break = Callable[[Image], None]


@dataclass(frozen=True)
class Mutant:
    """What is broken, what is run, and what of it must fail: some cases, not all."""

    change: Break
    run: frozenset[str]
    fail: frozenset[str]

    def __post_init__(self) -> None:
        assert self.fail
        assert self.fail < self.run


def points(program: Program, *patterns: str) -> frozenset[str]:
    """All cases that match one of the patterns, each of which matches some."""
    found = {p: [point for point in program.points() if re.fullmatch(p, point)] for p in patterns}
    assert all(found.values()), found
    return frozenset(point for matches in found.values() for point in matches)


def failures(
    kernel: Path, programs: Mapping[str, Path], program: Program, points: frozenset[str]
) -> set[str]:
    """Boot, run the cases, and return those that failed; none may be skipped or missing."""
    path = next(p for p in programs if p.endswith(f"/{program.name}"))
    assert points <= set(program.points())
    select = [word for point in sorted(points) for word in ("-r", point)]
    spec = MachineSpec(kernel=kernel, files=programs, cpus=1, append="rcupdate.rcu_expedited=1")
    with QemuMachine(spec) as machine:
        machine.boot()
        done = machine.run(Command(argv=(path, *select), timeout=120.0))
    print(done.text)  # for whoever wants to know why a case did not do what it should
    assert done.end is End.EXITED, done.detail
    document = parse(done.text)
    seen = {p.name: p for p in document.points}
    assert set(seen) == points
    assert not [p.name for p in seen.values() if p.directive is not Directive.NONE]
    return {name for name, point in seen.items() if not point.ok}
