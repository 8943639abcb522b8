# SPDX-License-Identifier: GPL-2.0-only
"""A pytest plugin whose machines run nothing: a script says what each case does.

The script is the JSON file named by FAKE_SCRIPT: {"cases": {point: action},
"boot": action, "kunit": {filter: [line, ...]}}; a boot with a KUnit filter prints
its lines, and panics if they end so.  Each boot, command and end is one line of the
file FAKE_LOG.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ktest_ntcopy.errors import BootError, BuildError, MachineError
from ktest_ntcopy.image.file.kernel_file import KernelFile
from ktest_ntcopy.machine.base import (
    FATAL_ENDS,
    Chunk,
    Command,
    ConsoleLine,
    End,
    MachineInfo,
    MachineSpec,
    Outcome,
)

PANIC = "Kernel panic - not syncing: Attempted to be silly"


def script() -> dict[str, Any]:
    text = Path(os.environ["FAKE_SCRIPT"]).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def log(text: str) -> None:
    with Path(os.environ["FAKE_LOG"]).open("a", encoding="utf-8") as file:
        file.write(f"{os.environ.get('PYTEST_XDIST_WORKER', 'master')} {text}\n")


class FakeMachine:
    def __init__(self, spec: MachineSpec) -> None:
        self.spec = spec
        self.info = MachineInfo(
            kind="fake",
            accel="tcg",
            arch="x86_64",
            release="6.12.117-test",
            version="#1 SMP",
            boot_seconds=0.25,
            slowdown=2.0,
            command_line=("fake", str(spec.kernel)),
        )
        self._alive = False
        self.boot_console: tuple[ConsoleLine, ...] = ()

    @property
    def alive(self) -> bool:
        return self._alive

    def boot(self) -> MachineInfo:
        if "kunit.enable=1" in self.spec.append:
            return self._boot_kunit()
        action = script().get("boot", "")
        log(f"boot {','.join(sorted(self.spec.files))}")
        if action == "fail":
            raise BootError(f"{self.spec.kernel}: it never came up\nthe console's last words")
        if action == "slow":
            time.sleep(0.3)
        if action == "host":
            raise MachineError("no memory on this host")
        self._alive = True
        return self.info

    def _boot_kunit(self) -> MachineInfo:
        said = script()
        name = self.spec.append.partition("kunit.filter_glob=")[2]
        log(f"kunit {name}")
        lines = said.get("kunit", {}).get(name, ["KTAP version 1", "1..0"])
        if said.get("boot", "") == "fail":
            lines = ["it never came up"]
        self.boot_console = tuple(ConsoleLine(float(n), line) for n, line in enumerate(lines))
        if said.get("boot", "") == "fail" or lines[-1] == PANIC:
            raise BootError(f"{self.spec.kernel}: {lines[-1]}\nlast words", end=End.PANIC)
        self._alive = True
        return self.info

    def run(self, command: Command) -> Outcome:
        if not self._alive:
            raise MachineError("the machine cannot take a command: kernel panic between: silly")
        point = command.argv[-1]
        log(f"run {' '.join(command.argv)} {command.env.get('KTEST_REQUIRE', '-')}")
        action = script()["cases"].get(point, "pass")
        outcome = ACTIONS[action](point) if action in ACTIONS else self._special(action, point)
        if outcome.end in FATAL_ENDS:
            self._alive = False
        return outcome

    def _special(self, action: str, point: str) -> Outcome:
        if action == "exit":
            os._exit(7)
        if action == "kill-parent":
            # Wherever it runs, the process to kill is the one that writes the reports.
            target = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            os.kill(target, signal.SIGKILL)
            time.sleep(60)
        if action == "late-panic":
            self._alive = False
            return said(f"1..1\nok 1 {point}\n", code=0)
        raise AssertionError(action)

    def close(self) -> None:
        if self._alive:
            log("close")
        self._alive = False


def said(text: str, *, code: int | None = None, end: End = End.EXITED) -> Outcome:
    return Outcome(
        end=end,
        exit_code=code,
        output=(Chunk(1.0, f"TAP version 13\n{text}".encode()),),
        start=time.time(),
        duration=0.01,
        limit=60.0,
    )


def panic(point: str) -> Outcome:
    return Outcome(
        end=End.PANIC,
        output=(Chunk(1.0, f"TAP version 13\n1..1\n# RUN {point}\n".encode()),),
        console=(ConsoleLine(1.0, "before it"), ConsoleLine(2.0, PANIC)),
        start=time.time(),
        duration=0.02,
        limit=60.0,
        detail=PANIC,
    )


ACTIONS = {
    "pass": lambda point: said(f"1..1\nok 1 {point}\n", code=0),
    "fail": lambda point: said(
        f"1..1\n# file.c:12:{point}:Expected 1 (1) == 2 (2)\nnot ok 1 {point}\n", code=1
    ),
    "skip": lambda point: said(f"1..1\nok 1 {point} # SKIP no such protocol\n", code=4),
    "xfail": lambda point: said(f"1..1\nok 1 {point} # XFAIL known to fail\n", code=0),
    "xpass": lambda point: said(f"1..1\nok 1 {point} # XPASS\n", code=0),
    "silent": lambda _: said("1..0\n", code=0),
    "timeout": lambda _: said("1..1\n", end=End.TIMEOUT),
    "hostile": lambda point: said(
        f"reprcrash reprtraceback \x00\x1b[31m\udcff\n1..1\nnot ok 1 {point}\n".encode(
            "utf-8", "surrogateescape"
        ).decode("utf-8", "backslashreplace"),
        code=1,
    ),
    "panic": panic,
}


def pytest_ktest_make_machine(spec: MachineSpec) -> FakeMachine:
    if script().get("make") == "fail":
        raise MachineError("qemu-none: no such program on this host: install it")
    return FakeMachine(spec)


def pytest_ktest_build_programs(config: pytest.Config, kernel: KernelFile) -> Mapping[str, Path]:
    assert config.option.ktest_kernel
    log(f"build {kernel.release}")
    if script().get("build") == "fail":
        raise BuildError("msg_ntcopy.c:3: error: it does not compile")
    if script().get("build") == "slow":
        time.sleep(0.3)
    return {"/ksft/net/msg_ntcopy": Path("/bin/true")}
