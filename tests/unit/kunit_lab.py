# SPDX-License-Identifier: GPL-2.0-only
"""A KUnit runner whose machines print what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BootError, KtestError
from ktest_ntcopy.features.kunit import KunitCase, KunitSuite
from ktest_ntcopy.features.model import Feature, Support
from ktest_ntcopy.image.file.config import KernelConfig
from ktest_ntcopy.kunit import KunitRunner
from ktest_ntcopy.machine.base import Command, ConsoleLine, End, MachineInfo, MachineSpec, Outcome
from ktest_ntcopy.naming import WHOLE
from ktest_ntcopy.results.model import Cause, Result, Status
from tests.unit import kunit_logs as log
from tests.unit.pretended import INFO

NAMES = ("one", "two", "three")
SUITE = KunitSuite(
    name="demo",
    why="w",
    option="CONFIG_DEMO",
    timeout=7,
    cases=tuple(KunitCase(name=n, about="a") for n in NAMES),
)
FEATURE = Feature(
    name="demo_feature",
    title="t",
    summary="s",
    seed="s",
    path=Path("demo.toml"),
    support={"6.12": Support(version="6.12", state="series", series="20-demo")},
    kunit=(SUITE,),
)
PANICKED = BootError("/vmlinux: kernel panic at boot: Fatal exception\nwords", end=End.PANIC)
HUNG = BootError("/vmlinux: the guest printed nothing for 14 s\nwords", end=End.HANG)


@dataclass
class Boot:
    """What a boot prints and how it ends."""

    lines: Sequence[str]
    error: KtestError | None = None


class Pretended:
    """A machine that prints what the test says, by its filter."""

    def __init__(self, lab: Lab, spec: MachineSpec) -> None:
        self.lab, self.spec = lab, spec
        self.info = INFO
        self.alive = False
        self.boot_console: tuple[ConsoleLine, ...] = ()
        self.closed = False

    def boot(self) -> MachineInfo:
        words = dict(w.split("=") for w in self.spec.append.split())
        assert words["kunit.enable"] == "1"
        key = words["kunit.filter_glob"] + (" list" if "kunit.action" in words else "")
        self.lab.log.append(key)
        known = self.lab.boots[key]
        boot = known.pop(0) if isinstance(known, list) else known
        self.boot_console = log.console(boot.lines)
        if boot.error:
            raise boot.error
        return INFO

    def run(self, command: Command) -> Outcome:
        raise AssertionError(command)

    def close(self) -> None:
        self.closed = True


class Lab:
    def __init__(self) -> None:
        self.boots: dict[str, Boot | list[Boot]] = {}
        self.log: list[str] = []
        self.machines: list[Pretended] = []
        self.required: frozenset[str] = frozenset()
        self.demanded: frozenset[str] = frozenset()
        self.config: KernelConfig | None = KernelConfig({"CONFIG_KUNIT": "y"}, "x")
        self.infos: list[MachineInfo] = []
        self.made: KunitRunner | None = None

    @property
    def runner(self) -> KunitRunner:
        if self.made is None:
            self.made = KunitRunner(
                spec=MachineSpec(kernel=Path("/vmlinux"), append="quiet=1"),
                factory=self.make,
                config=self.config,
                version="6.12",
                required=lambda: self.required,
                demanded=self.demanded,
                command=lambda nodeid: f"again {nodeid}",
                worker="gw3",
                timeout_scale=2.0,
                on_boot=self.infos.append,
            )
        return self.made

    def make(self, spec: MachineSpec) -> Pretended:
        self.machines.append(Pretended(self, spec))
        return self.machines[-1]

    def result(self, name: str) -> Result:
        failed = self.runner.prepare(SUITE, name, nodeid=f"node::{name}")
        return failed or self.runner.run_case(FEATURE, SUITE, name, nodeid=f"node::{name}")

    def results(self, *names: str) -> list[tuple[Status, Cause]]:
        found = [self.result(n) for n in names or (*NAMES, WHOLE)]
        return [(r.status, r.cause) for r in found]


@pytest.fixture
def lab() -> Lab:
    return Lab()


def text(*parts: Sequence[str]) -> list[str]:
    return [*log.BEFORE, *(line for part in parts for line in part)]


START = (log.head(), log.begin("demo", 3))
