# SPDX-License-Identifier: GPL-2.0-only
"""Pytest runs with the plugin, on machines that run nothing."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.results.journal import read_journal
from ktest_ntcopy.results.model import Status
from tests.unit.spawned import ROOT, run_pytest
from tests.unit.whole_kernel import whole

FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
POINTS = FEATURE.programs[0].points()
A, B, C, D, E, F = POINTS[:6]
FILE = "ktest_ntcopy/features/msg_ntcopy.toml"
WAYS = {"plain": (), "no-xdist": ("-p", "no:xdist"), "xdist": ("-n1",)}


@dataclass
class Done:
    """How a pytest run ended."""

    code: int
    out: str
    err: str
    folder: Path

    def journal(self, name: str = "out.ndjson") -> dict[str, Status]:
        return {r.case: r.status for r in read_journal(self.folder / name).cases()}

    def junit(self, name: str = "out.xml") -> ET.Element:
        return ET.parse(self.folder / name).getroot()

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []


class Lab:
    """Runs pytest with the fake machines, far from the repository."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.folder = pytester.path
        self.kernel = self.folder / "vmlinux"
        self.kernel.write_bytes(whole())
        self.script({})

    def script(self, cases: dict[str, str], **more: str) -> None:
        (self.folder / "script").write_text(json.dumps({"cases": cases, **more}))

    def run(
        self,
        *args: str,
        junit: bool = True,
        kernel: str | None = "vmlinux",
        apart: bool = False,
        within: Sequence[str] = (),
    ) -> Done:
        """``apart``: in a process of its own, as workers of xdist always are, and as it is
        ``within`` another command."""
        words = ["-p", "tests.unit.fake_machine", "-p", "no:cacheprovider"]
        words += ["-p", "no:hypothesispytest", *([f"--kernel={kernel}"] if kernel else [])]
        words += [*(["--junitxml=out.xml"] if junit else []), *args]
        if not apart and not within and not any(a.startswith("-n") for a in args):
            result = self._pytester.runpytest_inprocess(*words)
            return Done(int(result.ret), result.stdout.str(), result.stderr.str(), self.folder)
        done = run_pytest(*words, cwd=self.folder, within=within)
        return Done(done.returncode, done.stdout, done.stderr, self.folder)

    def ids(self, *args: str, **more: Any) -> list[str]:
        done = self.run("--collect-only", "-q", *args, junit=False, **more)
        return [line for line in done.out.splitlines() if "::" in line]


@pytest.fixture
def lab(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name in [
        n for n in os.environ if n.startswith(("PYTEST_", "CI", "BUILD_NUMBER", "KTEST_"))
    ]:
        monkeypatch.delenv(name)
    for name, value in {
        "PYTHONPATH": str(ROOT),
        "FAKE_SCRIPT": str(pytester.path / "script"),
        "FAKE_LOG": str(pytester.path / "log"),
        "KTEST_CACHE": str(pytester.path / "cache"),
        "COLUMNS": "200",
    }.items():
        monkeypatch.setenv(name, value)
    return Lab(pytester)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return WAYS[request.param]


def node(point: str) -> str:
    return f"{FILE}::{point}"
