# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own harness: the generated tests build, install and run under it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.kernel.process import clean_env
from ktest_ntcopy.machine.base import Command, End, MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.preflight import Preflight, Room

FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
MARKER = next(e.name for e in FEATURE.expectations if e.marker)
#: Programs by name; those for 32 bits need a compiler that the kernel's Makefile may not find.
PROGRAMS = {p.name: p for f in load_features() for p in f.programs if p.bits != 32}
#: Builds and installs our programs alone: the whole target needs more packages and minutes.
ONLY_OURS = (
    f"TEST_GEN_PROGS={' '.join(PROGRAMS)}",
    *("TEST_PROGS=", "TEST_GEN_FILES=", "TEST_PROGS_EXTENDED=", "TEST_FILES=", "TEST_INCLUDES="),
    *("YNL_GEN_PROGS=", "YNL_GEN_FILES=", "INSTALL_DEP_TARGETS="),
)


@pytest.fixture(scope="module")
def installed(kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed kselftest folder with the net target reduced to ours."""
    tree = open_kernel(kernel).source_tree
    assert tree is not None, f"{kernel} does not lie in a build folder of its source"
    folder = tmp_path_factory.mktemp("kselftest")
    make = ["make", "-C", str(tree / "tools/testing/selftests"), f"O={folder}", "TARGETS=net"]
    done = subprocess.run(
        [*make, *ONLY_OURS, f"KSFT_INSTALL_PATH={folder}/installed", "install"],
        env=clean_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning:" not in done.stderr, done.stderr
    return folder / "installed"


def test_all_are_listed(installed: Path) -> None:
    listed = (installed / "kselftest-list.txt").read_text().splitlines()
    assert {f"net:{name}" for name in PROGRAMS} <= set(listed)


def skipped(name: str, kernel: Path, spec: MachineSpec) -> set[str]:
    """Cases that say of a variant that it has no sense, or need what this kernel has not."""
    feature = next(f for f in load_features() if PROGRAMS[name] in f.programs)
    preflight = Preflight(Image(open_kernel(kernel)), Room.of(spec))
    senseless = {
        f"{fixture.name}.{variant}.{case.name}"
        for fixture in PROGRAMS[name].fixtures
        for case in fixture.cases
        for variant in case.skip
    }
    points = PROGRAMS[name].points()
    assert senseless <= set(points)
    needy = {p for p in points if preflight.obstacle(feature, PROGRAMS[name].needed(p))}
    return senseless | needy


@pytest.mark.parametrize("name", PROGRAMS)
def test_passes_in_the_booted_kernel(name: str, kernel: Path, installed: Path) -> None:
    machine_spec = MachineSpec(kernel=kernel, share=Path("/"))
    with QemuMachine(machine_spec) as machine:
        machine.boot()
        # A pipe: the harness re-opens standard output, which truncates a file.
        script = f"./run_kselftest.sh -t net:{name} 2>&1 | cat"
        command = Command(
            argv=("/bin/sh", "-c", script), root="/host", cwd=str(installed), timeout=180
        )
        outcome = machine.run(command)
    assert outcome.end is End.EXITED, outcome.detail
    assert f"ok 1 selftests: net: {name}" in outcome.text.splitlines(), outcome.text[-3000:]
    skips = len(skipped(name, kernel, machine_spec))
    passes = len(PROGRAMS[name].points()) - skips
    totals = f"# # Totals: pass:{passes} fail:0 xfail:0 xpass:0 skip:{skips} error:0"
    assert totals in outcome.text


def test_skips_on_the_running_kernel(installed: Path) -> None:
    """Nobody's kernel has the flag yet, so here it must say so and do nothing else."""
    if MARKER in Path("/proc/kallsyms").read_text():
        pytest.fail("this host's kernel has MSG_NTCOPY; run this test on a stock one")
    done = subprocess.run(
        ["sh", "-c", "./run_kselftest.sh -t net:msg_ntcopy 2>&1 | cat"],
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f" # SKIP kernel has no MSG_NTCOPY: {MARKER} is not in /proc/kallsyms" in done.stdout
    assert "not ok" not in done.stdout
