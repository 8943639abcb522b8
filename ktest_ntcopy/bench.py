# SPDX-License-Identifier: GPL-2.0-only
"""Figures with their goals, each paired with its baseline in the same run.

Both sides of a pair are measured in turn, so that a slow moment of the host
hits both.  Quoted are medians; nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ktest_ntcopy import bench_image, cost, zerocopy_table
from ktest_ntcopy.kernel.build import STAMP
from ktest_ntcopy.kernel.process import capture
from ktest_ntcopy.machine.base import MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine

Sample = Callable[[], float]


def _say(line: str) -> None:
    print(line, flush=True)


def pair(ours: Sample, theirs: Sample, rounds: int) -> tuple[list[float], list[float]]:
    """Measure two things in turn; their samples in seconds."""
    a, b = [], []
    for _ in range(rounds):
        a.append(ours())
        b.append(theirs())
    return a, b


def _show(what: str, samples: Iterable[float], unit: float = 1.0, name: str = "s") -> float:
    values = sorted(samples)
    middle = statistics.median(values)
    spread = f"{values[0] * unit:.3f} to {values[-1] * unit:.3f}"
    _say(f"  {what:<46} {middle * unit:>9.3f} {name}  ({spread})")
    return middle


def _timed(argv: Sequence[str | Path], cwd: Path | None = None) -> float:
    start = time.perf_counter()
    done = capture(argv, cwd=cwd)
    took = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"bench: {argv[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")
    return took


def startup(rounds: int) -> None:
    """pytest with the plugin installed but unused, against pytest without it."""
    _say("pytest start-up, the plugin installed but unused (goal: 15 ms or less added)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_nothing.py").write_text("def test_nothing(): pass\n", encoding="utf-8")
        base = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nothing.py"]
        with_it, without = pair(
            lambda: _timed(base, folder),
            lambda: _timed([*base, "-p", "no:ktest_ntcopy"], folder),
            rounds,
        )
    a, b = _show("with the plugin", with_it), _show("without", without)
    _say(f"  added: {(a - b) * 1000:.1f} ms\n")


def boot(kernel: Path, rounds: int) -> None:
    """QEMU's start to the agent's answer, against virtme-ng running ``true``."""
    _say("from QEMU's start to a command's end, TCG (goal: half of virtme-ng or less)")
    vng = Path(sys.executable).with_name("vng")
    runner = str(vng) if vng.exists() else shutil.which("vng")

    def ours() -> float:
        start = time.perf_counter()
        with QemuMachine(MachineSpec(kernel=kernel), accel="tcg") as machine:
            machine.boot()
            return time.perf_counter() - start

    def virtme(*more: str) -> str:
        """Boot with the host's root file system over 9p, run ``true``, power off."""
        assert runner
        argv = [runner, "-r", str(kernel), "--disable-kvm", "--force-9p", "-a", "root=/dev/root"]
        # It insists on a terminal; script gives it one.
        return subprocess.run(
            ["script", "-qec", " ".join([*argv, *more, "-e", "true"]), "/dev/null"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=300,
        ).stdout.decode(errors="replace")

    def theirs() -> float:
        start = time.perf_counter()
        virtme()
        return time.perf_counter() - start

    ours()  # agent and initramfs get cached
    if runner is None:
        _say("  virtme-ng is not installed (pip install virtme-ng): no baseline")
        _show("agent ready", [ours() for _ in range(rounds)])
        return
    # Without udev in the guest it loses the exit status, so look once at what it says.
    if "exited with code 0" not in virtme("-v"):
        raise SystemExit("bench: virtme-ng does not boot this kernel")
    mine, other = pair(ours, theirs, rounds)
    a, b = _show("agent ready", mine), _show("virtme-ng -e true", other)
    _say(f"  ratio: {a / b:.2f}\n")


def items(kernel: Path, rounds: int) -> None:
    """What an item costs beyond the test's own run time in the guest."""
    _say("per test item, beyond the test's own run time (goal: 30 ms or less)")
    with tempfile.TemporaryDirectory() as name:
        journal = Path(name) / "journal.ndjson"
        argv = [sys.executable, "-m", "pytest", f"--kernel={kernel}", "-q", "-p", "no:xdist"]
        argv += ["-k", "sendto or sendmsg", f"--ktest-journal={journal}"]
        costs = []
        for _ in range(rounds):
            took = _timed(argv)
            records = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
            ran = [r for r in records if r.get("target", "").startswith("kselftest")]
            own = [float(r["properties"]["guest.seconds"]) for r in ran]
            whole = [float(r["duration"]) for r in ran]
            costs.append((sum(whole) - sum(own)) / len(ran))
        _show(f"per item, over {len(ran)} items", costs, 1000, "ms")
        _say(f"  the whole command took {took:.1f} s\n")


def run(vmlinux: Path, rounds: int) -> None:
    """``make run`` with everything built; the time from nothing is in the build's stamp."""
    _say("make run (goals: everything built 45 s or less, nothing built 12 minutes or less)")
    with tempfile.TemporaryDirectory() as name:
        argv = [sys.executable, "-m", "ktest_ntcopy", "run", "--junitxml", f"{name}/junit.xml"]
        _show("everything built", [_timed(argv) for _ in range(rounds)])
    stamp = json.loads((vmlinux.parent / STAMP).read_text(encoding="utf-8"))
    _say(f"  building this kernel took {float(stamp['seconds']):.0f} s when it was last built\n")


def instructions(unpatched: Path, patched: Path) -> None:
    """Instructions of a send with the series and without."""
    _say("instructions of one send(), counted (goal: nothing worth naming on plain sends)")
    before, after = (cost.measure(k, _say) for k in (unpatched, patched))
    _say(re.sub(r"^", "  ", cost.table(before, after), flags=re.MULTILINE) + "\n")


def zerocopy(kernel: Path, rounds: int) -> None:
    """Completions from sendmsg() and from the error queue, beside what was published."""
    _say("MSG_ZEROCOPY_UARG")
    _say(zerocopy_table.run(kernel, None, seconds=1, repeat=rounds, notify=_say) + "\n")


def main() -> int:
    """Print every figure; ``--only`` chooses."""
    from ktest_ntcopy.arguments import DEFAULT_VERSION
    from ktest_ntcopy.cli import prepare

    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kernel", type=Path, help="vmlinux; default: ours, built if need be")
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    assert importlib.util.find_spec("xdist"), "make setup"

    kernel = args.kernel or prepare(DEFAULT_VERSION)[1]
    figures: dict[str, Callable[[], None]] = {
        "startup": lambda: startup(args.rounds * 4),
        "image": lambda: bench_image.run(kernel, args.rounds, _say),
        "boot": lambda: boot(kernel, args.rounds),
        "items": lambda: items(kernel, max(1, args.rounds // 2)),
        "instructions": lambda: instructions(prepare(DEFAULT_VERSION, patched=False)[1], kernel),
        "zerocopy": lambda: zerocopy(kernel, args.rounds),
        "run": lambda: run(kernel, max(1, args.rounds // 2)),
    }
    for name, figure in figures.items():
        if not args.only or name in args.only:
            figure()
    return 0


if __name__ == "__main__":
    sys.exit(main())
