# SPDX-License-Identifier: GPL-2.0-only
"""Reading a vmlinux, against the tools that people use for it.

Every reader is a process of its own, and readers take turns within a round, so that a slow
moment of the host hits all.  What counts is processor time, user and system, of the process
and all that it started; wall time stands beside it and says how busy the host was.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ktest_ntcopy.image.expectations import Found, check
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import open_kernel

_MEMORY = 3 << 30  # bytes that a reader may take
_SECONDS = 20  # of processor time that a reader may take
_PATIENCE = 300  # seconds of wall time, on a host that is busy
ABSENT = "ktest_ntcopy_is_not_there"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process took."""

    cpu: float  #: seconds, user and system
    wall: float  #: seconds
    peak: int  #: bytes of the largest single process
    inside: float | None  #: seconds of processor time without start-up, where it tells
    answer: str  #: what it printed
    problem: str = ""  #: why it came to no answer


@dataclass(kw_only=True)
class Reader:
    """One reader's way to one answer."""

    name: str
    argv: list[str]
    once: bool = False  #: too slow for more than a first run
    runs: list[Run] = field(default_factory=list)

    def middle(self, of: Callable[[Run], float]) -> float:
        """The median."""
        return statistics.median(map(of, self.runs))


#: Starts a reader within its bounds and writes what it took.  A process of its own, and a
#: small one: a child's peak is at least the memory of the process that it was forked from.
_METER = """
import json, os, resource, sys, time
report, seconds, memory, *argv = sys.argv[1:]
start = time.perf_counter()
child = os.fork()
if not child:
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    try:
        os.execvp(argv[0], argv)
    finally:
        os._exit(127)
_, status, used = os.wait4(child, 0)
took = [time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss << 10]
with open(report, "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), *took], file)
"""


def as_installed(folder: Path) -> dict[str, str]:
    """The environment of readers: Python finds its modules compiled, as where it may keep
    them so.  ``folder`` keeps them."""
    slow = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in slow}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder)}


def measure(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Run:
    """Run a reader to its end, or to its bounds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report, bounds = folder / "report", [str(_SECONDS), str(_MEMORY)]
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            meter = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _METER, str(report), *bounds, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=env,
            )
            try:
                meter.wait(_PATIENCE)
            except BaseException as why:
                os.killpg(meter.pid, signal.SIGKILL)
                meter.wait()
                if not isinstance(why, subprocess.TimeoutExpired):
                    raise
        text = (folder / "out").read_text("utf-8", "replace").strip()
        said = (folder / "err").read_text("utf-8", "replace").strip().splitlines()
        if not report.exists():
            late = f"> {_PATIENCE} s of wall time"
            return Run(cpu=0.0, wall=_PATIENCE, peak=0, inside=None, answer="", problem=late)
        status, wall, cpu, peak = json.loads(report.read_text("utf-8"))
    problem = ""
    # The shell and its last command say with 1 that there was nothing to count or to find.
    if status and not (status == 1 and not said):
        problem = (said or [f"exit status {status}"])[-1][:60]
        if status == -signal.SIGXCPU or cpu >= _SECONDS:
            problem = f"> {_SECONDS} s"
        elif any("MemoryError" in line or "out of memory" in line for line in said):
            problem = f"> {_MEMORY >> 30} GiB"
    inside = None
    if not status and text.startswith('{"seconds"'):
        told = json.loads(text)
        inside, text = float(told["seconds"]), str(told["answer"])
    return Run(cpu=cpu, wall=wall, peak=peak, inside=inside, answer=text, problem=problem)


def take_turns(
    readers: Sequence[Reader], rounds: int, env: Mapping[str, str] | None = None
) -> None:
    """Measure all, one after the other, again and again."""
    for number in range(rounds):
        for reader in readers:
            if number == 0 or not (reader.once or reader.runs[-1].problem):
                reader.runs.append(measure(reader.argv, env))


def table(title: str, readers: Sequence[Reader], *, words: int = 40) -> str:
    """All figures of one question; ratios are to the first reader."""
    lines = [title]
    lines.append(
        f"  {'':<24}{'CPU s: median (min to max)':>30}{'wall s':>9}{'MiB':>6}{'ratio':>8}"
        f"{'inside s':>10}{'ratio':>8}"
    )
    first = readers[0]
    for reader in readers:
        last = reader.runs[-1]
        if last.problem:
            lines.append(f"  {reader.name:<24}{last.problem:>30}{'':>9}{last.peak >> 20:>6}")
            continue
        cpu = sorted(run.cpu for run in reader.runs)
        middle = statistics.median(cpu)
        spread = f"{middle:.3f} ({cpu[0]:.3f} to {cpu[-1]:.3f})"
        ratio = f"{middle / first.middle(lambda r: r.cpu):.2f}"
        inside = within = ""
        if last.inside is not None:
            took = reader.middle(lambda r: r.inside or 0.0)
            inside = f"{took:.4f}"
            if first.runs[-1].inside:
                within = f"{took / first.middle(lambda r: r.inside or 0.0):.1f}"
        lines.append(
            f"  {reader.name:<24}{spread:>30}{reader.middle(lambda r: r.wall):>9.2f}"
            f"{max(run.peak for run in reader.runs) >> 20:>6}{ratio:>8}{inside:>10}{within:>8}"
            f"  {' '.join(last.answer.split())[:words]}"
        )
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """What is asked about, taken from the kernel in hand."""

    symbols: tuple[str, ...]
    enumerator: str
    struct: str
    chain: tuple[str, ...]  #: functions, each calling the next


def subjects(vmlinux: Path) -> Subjects:
    """A hundred symbols spread over the table, and expectations that this kernel meets."""
    from ktest_ntcopy.features.model import load_features

    image = Image(open_kernel(vmlinux))
    assert image.symbols is not None
    wanted = [e for f in load_features() for e in f.expectations if not e.absent]
    met = [e for e in wanted if check(image, e, alike=False).found is Found.FOUND]
    first = {e.kind: e for e in reversed(met)}
    assert image.code is not None
    paths = [image.code.path(*e.ends, through=e.through) for e in met if e.kind == "call"]
    longest = max(paths, key=lambda path: len(path.steps))
    chain = (*(name for name, _ in longest.steps), longest.target)
    names = [name for name in image.symbols if name.isidentifier()]
    return Subjects(
        symbols=tuple(names[:: max(1, len(names) // 100)][:100]),
        enumerator=first["enumerator"].name,
        struct=first["member"].name.partition(".")[0],
        chain=chain,
    )


def questions(vmlinux: Path, asked: Subjects, folder: Path) -> dict[str, list[Reader]]:
    """Every question with its readers, ours first; tools that are not there are left out."""
    file = str(vmlinux)
    listed = folder / "names"
    listed.write_text("\n".join(asked.symbols) + "\n", encoding="utf-8")

    def ours(question: str, *names: str, reader: str = "ours", once: bool = False) -> Reader:
        argv = [sys.executable, "-m", "ktest_ntcopy.bench_readers", reader, question, file]
        return Reader(name=reader, argv=[*argv, *names], once=once)

    def shell(name: str, script: str, *values: str) -> Reader:
        return Reader(name=name, argv=["sh", "-c", script, "sh", file, *values])

    # Each name ends its line in nm's output and in readelf's.
    nm = 'nm "$1" | grep -c "${2:- }"'
    by_nm = 'nm "$1" | sed "s/.* //" | grep -cxFf "$2"'
    by_readelf = 'readelf -sW "$1" | sed "s/.* //" | grep -cxFf "$2"'
    command = [sys.executable, "-m", "ktest_ntcopy", "check", "--brief", file]
    found: dict[str, list[Reader]] = {
        "100 symbols": [
            ours("symbols", *asked.symbols),
            shell("nm", by_nm, str(listed)),
            shell("readelf -sW", by_readelf, str(listed)),
            ours("symbols", *asked.symbols, reader="drgn"),
            ours("symbols", *asked.symbols, reader="pyelftools"),
        ],
        f"one enumerator, {asked.enumerator}": [
            ours("enumerator", asked.enumerator),
            shell("pahole -F btf", 'pahole -F btf "$1" | grep -w "$2"', asked.enumerator),
            ours("enumerator", asked.enumerator, reader="drgn"),
            ours("enumerator", asked.enumerator, reader="pyelftools", once=True),
        ],
        f"one struct, {asked.struct}": [
            ours("struct", asked.struct),
            shell("pahole -F btf", 'pahole -F btf -C "$2" "$1" | grep size:', asked.struct),
            ours("struct", asked.struct, reader="drgn"),
            ours("struct", asked.struct, reader="pyelftools", once=True),
        ],
        f"a call path, {' -> '.join(asked.chain)}": [
            ours("path", *asked.chain),
            shell(
                "objdump, each function",
                "file=$1; shift; while [ $# -gt 1 ]; do objdump -d --no-show-raw-insn "
                '--disassemble="$1" "$file" | grep -c "<$2>"; shift; done',
                *asked.chain,
            ),
        ],
        "an absent name, as symbol and (ours, pahole, drgn) enumerator": [
            ours("absent", ABSENT),
            shell("nm", nm, ABSENT),
            shell("readelf -sW", 'readelf -sW "$1" | grep -c "$2"', ABSENT),
            shell("pahole -F btf", 'pahole -F btf "$1" | grep -cw "$2"', ABSENT),
            ours("absent", ABSENT, reader="drgn"),
            ours("absent", ABSENT, reader="pyelftools"),
        ],
        "all expectations of all features (goals: inside 0.15 s, 100 MiB)": [ours("everything")],
        "the command line (goal: nm | grep takes half of it or more)": [
            Reader(name="ktest-ntcopy check", argv=command),
            shell("nm | grep", nm, "sendmsg"),
        ],
    }
    missing = {tool for tool in ("nm", "readelf", "pahole", "objdump") if not shutil.which(tool)}
    return {
        title: [r for r in readers if r.name.split()[0].strip(",") not in missing]
        for title, readers in found.items()
    }


def run(vmlinux: Path, rounds: int, say: Callable[[str], None]) -> None:
    """Print every question's table."""
    size = vmlinux.stat().st_size >> 20
    say(f"reading a {size} MiB vmlinux, in the page cache; {rounds} rounds")
    with vmlinux.open("rb") as file:
        while file.read(1 << 24):
            pass
    with tempfile.TemporaryDirectory() as name:
        for title, readers in questions(vmlinux, subjects(vmlinux), Path(name)).items():
            take_turns(readers, rounds, as_installed(Path(name) / "compiled"))
            say(table(title, readers) + "\n")
