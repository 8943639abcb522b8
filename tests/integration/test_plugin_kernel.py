# SPDX-License-Identifier: GPL-2.0-only
"""The plugin with a real kernel: its own tests, misbehaving ones, and runs that are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.results.journal import Run, read_journal
from ktest_ntcopy.results.model import Cause, Status

ROOT = Path(__file__).resolve().parents[2]
FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
SOME = FEATURE.programs[0].points()[::60]
FILE = "ktest_ntcopy/features/msg_ntcopy.toml"

#: Program, cases, and what becomes of each.
MISBEHAVING = {
    "points": {
        "passes": (Status.PASS, Cause.NONE),
        "fails": (Status.FAIL, Cause.ASSERTION),
        "skips": (Status.SKIP, Cause.SKIP),
        "fault": (Status.ERROR, Cause.SIGNAL),
        "eats": (Status.ERROR, Cause.OOM),
        "panics": (Status.ERROR, Cause.PANIC),
    },
    "killinit": {"kills_everything": (Status.ERROR, Cause.EXIT)},
    "flood": {"prints_without_end": (Status.ERROR, Cause.FLOOD)},
    "spin": {"never_ends": (Status.ERROR, Cause.TIMEOUT)},
    "noise": {"prints_no_text": (Status.ERROR, Cause.BAIL_OUT)},
    "wedge": {"stops_the_guest": (Status.ERROR, Cause.HANG)},
}


FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
_MARKER = next(e.name for e in FEATURE.expectations if e.marker)
#: What every case says on a kernel without the feature.
ABSENT = f"the kernel is without msg_ntcopy (no symbol {_MARKER} in vmlinux)"
#: Every kind of fixture has a case that this selects.
SELECTION = "unix_stream or tcp4 or raw4 or v12"


def command(kernel: Path, folder: Path, *args: str) -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
        *("-p", "no:hypothesispytest", f"--kernel={kernel}"),
        *("--ktest-memory=256", f"--junitxml={folder}/out.xml", *args),
    ]


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "CI"))}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}


def run(
    kernel: Path, folder: Path, *args: str, **env: str
) -> tuple[subprocess.CompletedProcess[str], Run]:
    done = subprocess.run(
        command(kernel, folder, *args),
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done, read_journal(folder / "out.ndjson")


def machines(marker: Path) -> list[int]:
    """QEMU processes that belong to a run, by the mark in their environment."""
    mark = f"KTEST_MARK={marker}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, told = (entry / "comm").read_text(), (entry / "environ").read_bytes()
        except OSError:
            continue  # ended meanwhile
        if name.startswith("qemu-system") and mark in told.split(b"\0"):
            found.append(int(entry.name))
    return found


def wait_for(condition: object, seconds: float) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("way", [("-p", "no:xdist"), ("-n2",)], ids=["plain", "n2"])
def test_the_feature_on_a_kernel_that_has_it(
    kernel: Path, tmp_path: Path, way: tuple[str, ...]
) -> None:
    done, journal = run(kernel, tmp_path, "-v", *(f"{FILE}::{p}" for p in SOME), *way)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [r.case for r in journal.cases()] == list(SOME)
    header = journal.header
    assert header.release in done.stdout
    assert header.accel in ("kvm", "tcg")
    assert header.machine == "qemu"
    assert header.config_hash
    facts = {
        p.get("name") for p in ET.parse(tmp_path / "out.xml").getroot().iterfind(".//property")
    }
    assert {"kernel.release", "arch", "accel", "kernel.config_hash", "machine.command"} <= facts


def test_traces_in_vmlinux(kernel: Path, tmp_path: Path) -> None:
    done, journal = run(kernel, tmp_path, "-m", "vmlinux")
    assert done.returncode == 0, done.stdout
    assert {r.status for r in journal.cases()} == {Status.PASS}
    assert sum(r.duration for r in journal.cases()) < 5


@pytest.fixture(scope="session")
def unpatched() -> Path:
    """A kernel of the same source and configuration without the series."""
    named = os.environ.get("KTEST_KERNEL_UNPATCHED")
    if not named:
        pytest.fail("set KTEST_KERNEL_UNPATCHED to a vmlinux built without the series")
    return Path(named)


def test_a_kernel_without_the_feature_skips_with_the_reason(
    unpatched: Path, tmp_path: Path
) -> None:
    done, journal = run(unpatched, tmp_path, "-k", SELECTION, "msg_ntcopy")
    assert done.returncode == 0, done.stdout
    assert not journal.header.machine, "nothing had to boot"
    cases = [c for c in journal.cases() if c.target == "kselftest.net"]
    assert len(cases) > 60
    assert Counter((c.status, c.message) for c in cases) == {(Status.SKIP, ABSENT): len(cases)}


def test_a_kernel_without_the_feature_fails_if_it_is_required(
    unpatched: Path, tmp_path: Path
) -> None:
    chosen = ("--ktest-require=msg_ntcopy", "-k", f"({SELECTION}) or vmlinux", "msg_ntcopy")
    done, journal = run(unpatched, tmp_path, *chosen)
    assert done.returncode == 1, done.stdout
    cases = journal.cases()
    passed = {f"{c.target}.{c.case}" for c in cases if c.status is not Status.FAIL}
    # Kernels without the feature have these, too, or lack them, too.
    others = {f"vmlinux.{e.id}" for e in FEATURE.expectations if e.shared or e.absent}
    assert passed == others
    messages = {c.message for c in cases if c.target == "kselftest.net"}
    assert messages == {f"msg_ntcopy is required, but {ABSENT}"}


def feature_file(folder: Path) -> Path:
    text = 'name = "bad"\ntitle = "t"\nsummary = "s"\nseed = "s"\n'
    text += '[kernel."6.12"]\nstate = "upstream"\n'
    for program, cases in MISBEHAVING.items():
        text += f'[[program]]\nname = "{program}"\ntarget = "net"\ntemplate = "none"\ntimeout = 2\n'
        text += '[[program.fixture]]\nname = "does"\n[program.fixture.variants]\nit = {}\n'
        for case in cases:
            text += f'[[program.fixture.cases]]\nname = "{case}"\nabout = "a"\n'
    path = folder / "bad.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("way", [("-p", "no:xdist"), ("-n2",)], ids=["plain", "n2"])
def test_misbehaving_programs_are_reported_as_what_they_are(
    kernel: Path, guest_programs: Mapping[str, Path], tmp_path: Path, way: tuple[str, ...]
) -> None:
    programs = {f"/ksft/net/{p}": str(guest_programs[f"/bin/{p}"]) for p in MISBEHAVING}
    done, journal = run(
        kernel,
        tmp_path,
        *("-p", "tests.integration.real_programs", str(feature_file(tmp_path)), *way),
        REAL_PROGRAMS=json.dumps(programs),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = {(r.program, r.case): (r.status, r.cause) for r in journal.cases()}
    assert found == {
        (program, f"does.it.{case}"): verdict
        for program, cases in MISBEHAVING.items()
        for case, verdict in cases.items()
    }
    panicked = next(r for r in journal.cases() if r.cause is Cause.PANIC)
    assert "sysrq triggered crash" in panicked.message
    assert "Call Trace:" in panicked.console
    assert "INTERNALERROR" not in done.stdout
    assert "Traceback" not in done.stdout
    root = ET.parse(tmp_path / "out.xml").getroot()
    suite = root.find("testsuite")
    assert suite is not None
    assert suite.get("tests") == str(len(found))
    errors = sum(status is Status.ERROR for status, _ in found.values())
    assert (suite.get("errors"), suite.get("failures"), suite.get("skipped")) == (
        str(errors),
        "1",
        "1",
    )


@pytest.mark.parametrize("way", [("-p", "no:xdist"), ("-n2",)], ids=["plain", "n2"])
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["INT", "TERM", "KILL"]
)
def test_a_run_that_is_ended_leaves_results_and_no_machine(
    kernel: Path, tmp_path: Path, way: tuple[str, ...], number: signal.Signals
) -> None:
    # Sockets below it need short paths.
    with tempfile.TemporaryDirectory(prefix="kt-") as name:
        end_a_run(kernel, tmp_path, way, number, Path(name))


def end_a_run(
    kernel: Path, tmp_path: Path, way: tuple[str, ...], number: signal.Signals, temporary: Path
) -> None:
    # Whoever runs us in the background may have us ignore the interrupt.
    process = subprocess.Popen(
        [
            *("env", "--default-signal=INT"),
            *command(kernel, tmp_path, "msg_ntcopy", "-m", "selftest", *way),
        ],
        cwd=tmp_path,
        env=environment(KTEST_MARK=str(tmp_path), TMPDIR=str(temporary)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    journal = tmp_path / "out.ndjson"

    def some_results() -> bool:
        return journal.exists() and len(read_journal(journal).results) >= 5

    try:
        assert wait_for(some_results, 120), "no results"
        assert machines(tmp_path)
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as the terminal does
        else:
            process.send_signal(number)
        assert process.wait(60) == (-9 if number is signal.SIGKILL else 2)
        assert wait_for(lambda: not machines(tmp_path), 20), "QEMU is left behind"
    finally:
        process.kill()
        process.wait()
    run = read_journal(journal)
    assert len(run.results) >= 5
    assert {r.status for r in run.results} <= {Status.PASS, Status.SKIP}, "an innocent is blamed"
    assert len(run.cases()) == len(FEATURE.programs[0].points())
    assert (tmp_path / "out.xml").exists() == (number is not signal.SIGKILL)
    # pytest keeps its own folders, pytest-of-USER, on purpose.
    assert wait_for(lambda: not list(temporary.glob("ktest*")), 5), "files are left behind"
