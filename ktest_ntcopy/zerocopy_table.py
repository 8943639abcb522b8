# SPDX-License-Identifier: GPL-2.0-only
"""The table of the MSG_ZEROCOPY_UARG posting, measured in a guest.

The kernel's own msg_zerocopy test runs between two network namespaces: copying, with
completions from the error queue, and with completions from sendmsg().  The three runs
of a round follow each other in the same namespaces and are compared with each other only,
so that a slow moment of the host hits a whole round.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import ConfigError, KtestError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.features.table import Table
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.kernel.guest_program import build_static
from ktest_ntcopy.kernel.process import Notify
from ktest_ntcopy.machine.base import Command, End, Machine, MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.paths import data_root
from ktest_ntcopy.results.text import one_line

FEATURE = "msg_zerocopy_uarg"
#: Sends after which the sender looks for completions.
LIMITS = (1, 8, 32)
#: What the driver is told to do -> what the posting calls it.
MODES = {"copy": "Copy", "-z": "ZCopy", "-n": "New ZCopy"}
RATIOS = (("-z", "copy"), ("-n", "copy"), ("-n", "-z"))
#: Seconds that msg_zerocopy adds to the run time it is told.
_EXTRA = 0.2
_SELFTESTS = Path("tools/testing/selftests")
_TEST, _DRIVER = "msg_zerocopy", "zerocopy_pair"


@dataclass(frozen=True)
class Link:
    """One column."""

    protocol: str
    family: int  #: 4 or 6

    def __str__(self) -> str:
        return f"{self.protocol.upper()} v{self.family}"

    @property
    def key(self) -> str:
        """In the published figures."""
        return f"{self.protocol}{self.family}"


LINKS = (Link("tcp", 4), Link("tcp", 6), Link("udp", 4), Link("udp", 6))


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the sender counted in one run."""

    sent: int  #: bytes
    completions: int
    zerocopy: bool  #: data was sent from where it was, not copied on the way
    sends: int
    polls: int
    reads: int  #: of the error queue


#: One round: the runs of all modes, in the same namespaces.
Round = Mapping[str, Run]
#: All rounds of a limit and a link.
Rounds = Mapping[tuple[int, Link], list[Round]]

_LINES = (
    re.compile(r"mode (\S+)"),
    re.compile(r"tx=\d+ \(\d+ MB\) txc=(?P<completions>\d+) zc=(?P<zc>[yn])"),
    re.compile(
        r"tx calls: sendmsg=(?P<sends>\d+) poll=(?P<polls>\d+) recvmsg=(?P<reads>\d+) "
        r"bytes=(?P<sent>\d+)(?: .*)?"
    ),
)


def parse(text: str) -> dict[str, Run]:
    """The runs that the driver's output tells of, by mode.

    Raises KtestError on a line that is none of its own, and if a run is not whole.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    found = {}
    for at in range(0, len(lines), len(_LINES)):
        mode, *told = (form.fullmatch(line) for form, line in zip(_LINES, lines[at:], strict=False))
        if mode is None or len(told) != 2 or None in told:
            said = one_line(" | ".join(lines[at : at + 3]))
            raise KtestError(f"{_TEST} printed {said!r}, not one run")
        values = {k: v for match in told if match for k, v in match.groupdict().items()}
        zerocopy = values.pop("zc") == "y"
        found[mode[1]] = Run(zerocopy=zerocopy, **{k: int(v) for k, v in values.items()})
    return found


@dataclass(frozen=True)
class Spread:
    """Smallest, middle and largest of several values."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one value."""
        known = sorted(values)
        return cls(known[0], statistics.median(known), known[-1])

    def show(self, places: int = 0, unit: str = "") -> str:
        """The middle, with the others behind it."""
        a, b, c = (f"{v:.{places}f}" for v in (self.least, self.median, self.most))
        return f"{b}{unit} ({a}-{c})"


@dataclass(frozen=True)
class Published:
    """The figures that others have published."""

    rates: Mapping[tuple[int, str], Mapping[str, int]]  #: (limit, mode) -> link -> figure
    #: (limit, posting) -> protocol -> least and most of New ZCopy / ZCopy, per cent
    gains: Mapping[tuple[int, str], Mapping[str, tuple[int, int]]]


def published() -> Published:
    """From the feature file.  Raises ConfigError naming what is wrong with it."""
    feature = next(f for f in load_features() if f.name == FEATURE)
    top = Table(feature.published, str(feature.path), "published")
    rates, gains = {}, {}
    for row in top.tables("rate"):
        key = row.take("limit", int), row.choice("mode", tuple(MODES))
        rates[key] = {link.key: row.take(link.key, int) for link in LINKS}
        row.end()
    for row in top.tables("gain"):
        ranges = {}
        place = row.take("limit", int), row.text("posting")
        for protocol in ("tcp", "udp"):
            ends = row.take(protocol, list)
            if len(ends) != 2 or not all(isinstance(e, int) for e in ends):
                row.fail(f"'{protocol}' is not a least and a most per cent")
            ranges[protocol] = (ends[0], ends[1])
        gains[place] = ranges
        row.end()
    top.end()
    return Published(rates, gains)


@dataclass(frozen=True)
class _Source:
    name: str
    libs: tuple[str, ...] = ()


def _compile(tree: Path, folder: Path) -> dict[str, Path]:
    """Test and driver, as paths in the guest and here."""
    test = tree / _SELFTESTS / "net" / f"{_TEST}.c"
    try:
        text = test.read_text(encoding="utf-8", errors="replace")
    except OSError as err:
        raise ConfigError(f"{test}: {err.strerror}; --tree names a kernel source tree") from err
    if "MSG_ZEROCOPY_UARG" not in text:
        raise ConfigError(
            f"{test}: takes no completions from sendmsg(); `ktest-ntcopy apply --tree {tree}` "
            "brings the series that makes it"
        )
    net = folder / "net"
    net.mkdir()
    ours = data_root() / "tools-testing-net"
    for path in (test, ours / "bench" / f"{_DRIVER}.c", *(ours / "net").glob("*.h")):
        shutil.copyfile(path, net / path.name)
    for path in (tree / _SELFTESTS).glob("*.h"):
        shutil.copyfile(path, folder / path.name)
    return {f"/{n}": build_static(_Source(n), net, folder / "out") for n in (_TEST, _DRIVER)}


def _round(machine: Machine, link: Link, limit: int, seconds: int, modes: tuple[str, ...]) -> Round:
    argv = (f"/{_DRIVER}", f"/{_TEST}", str(link.family), link.protocol, str(seconds), str(limit))
    # The sender waits up to 10 seconds for its last completions, the driver for a receiver.
    command = Command(argv=(*argv, *modes), timeout=20 + len(modes) * (seconds + 20))
    outcome = machine.run(command)
    if outcome.end is not End.EXITED or outcome.exit_code:
        said = one_line(" | ".join(outcome.text.strip().splitlines()[-2:]))
        raise KtestError(f"{_TEST} failed, {link}, limit {limit}: {outcome.detail or said}")
    runs = parse(outcome.text)
    if set(runs) != set(modes):
        raise KtestError(
            f"{_TEST}, {link}, limit {limit}: ran {one_line(', '.join(runs)) or 'nothing'}"
        )
    for mode, one in runs.items():
        if not one.sent or (mode != "copy" and not one.completions):
            raise KtestError(f"{_TEST} {mode}, {link}, limit {limit}: nothing was sent")
    return runs


def measure(
    kernel: Path, tree: Path, *, seconds: int, repeat: int, notify: Notify
) -> tuple[Rounds, str]:
    """``repeat`` rounds of everything on one kernel, and how its guest ran ("tcg", "kvm")."""
    found: dict[tuple[int, Link], list[Round]] = {}
    modes = tuple(MODES)
    with tempfile.TemporaryDirectory(prefix="ktest-table-") as name:
        spec = MachineSpec(kernel=kernel, files=_compile(tree, Path(name)))
        with QemuMachine(spec, notify=notify) as machine:
            accel = machine.boot().accel
            for number in range(repeat):
                # No mode always comes first, or last.
                turned = modes[number % 3 :] + modes[: number % 3]
                notify(f"round {number + 1} of {repeat}")
                for limit in LIMITS:
                    for link in LINKS:
                        one = _round(machine, link, limit, seconds, turned)
                        found.setdefault((limit, link), []).append(one)
    return found, accel


def _row(title: str, cells: Iterable[str]) -> str:
    return "".join([f"{title:<24}", *(f"{cell:>19}" for cell in cells)]).rstrip()


def _percent(ends: tuple[int, int]) -> str:
    return "-".join(f"{100 + e}" for e in dict.fromkeys(ends)) + "%"


def _rate(mode: str, seconds: int) -> Callable[[Round], float]:
    return lambda runs: runs[mode].sent / 1e6 / (seconds + _EXTRA)


def _ratio(one: str, other: str) -> Callable[[Round], float]:
    return lambda runs: 100 * runs[one].sent / runs[other].sent


def _calls(run: Run) -> tuple[float, float, float]:
    count = run.completions
    return run.sends / count, run.polls / count, run.reads / count


def _all_calls(mode: str) -> Callable[[Round], float]:
    return lambda runs: sum(_calls(runs[mode]))


def _known_ratio(known: Published, limit: int, one: str, other: str) -> Iterator[str]:
    """What others have published of one ratio: a row for each posting."""
    ours, theirs = known.rates.get((limit, one)), known.rates.get((limit, other))
    if ours and theirs:
        yield _row("  published", (f"{100 * ours[k.key] / theirs[k.key]:.1f}%" for k in LINKS))
    for (at, posting), gain in known.gains.items():
        if at == limit and (one, other) == ("-n", "-z"):
            yield _row(f"  published, {posting}", (_percent(gain[k.protocol]) for k in LINKS))


def _section(limit: int, rounds: Rounds, known: Published, seconds: int) -> Iterator[str]:
    def cells(value: Callable[[Round], float], places: int = 0, unit: str = "") -> list[str]:
        spreads = (Spread.of(map(value, rounds[limit, link])) for link in LINKS)
        return [spread.show(places, unit) for spread in spreads]

    yield _row(f"Notification limit {limit}", map(str, LINKS))
    for mode, title in MODES.items():
        yield _row(f"{title}, MB/s", cells(_rate(mode, seconds)))
        if rates := known.rates.get((limit, mode)):
            yield _row("  published", (str(rates[link.key]) for link in LINKS))
    for one, other in RATIOS:
        yield _row(f"{MODES[one]} / {MODES[other]}", cells(_ratio(one, other), unit="%"))
        yield from _known_ratio(known, limit, one, other)
    for mode in ("-z", "-n"):
        yield _row(f"{MODES[mode]}, calls", cells(_all_calls(mode), places=2))
        for at, name in enumerate(("sendmsg", "poll", "recvmsg")):
            middle = (
                statistics.median(_calls(r[mode])[at] for r in rounds[limit, link])
                for link in LINKS
            )
            yield _row(f"  {name}", (f"{value:.2f}" for value in middle))


def _statement(rounds: Rounds, accel: str) -> str:
    copied = not any(r[m].zerocopy for rs in rounds.values() for r in rs for m in ("-z", "-n"))
    machine = (
        "This guest was emulated.  Its MB/s and their ratios say nothing about hardware: an\n"
        "emulator has no caches and no memory bandwidth to save, and a system call costs it\n"
        "something else than a processor."
        if accel == "tcg"
        else f"This guest ran under {accel}: ratios depend on its host, and on who else uses it."
    )
    local = (
        "Both ends were in one kernel, which copies zerocopy data when it is received\n"
        "(skb_orphan_frags_rx): every completion said so, and no copy was saved.  The figures\n"
        "published with v8 are from a kernel changed to leave that out."
        if copied
        else "Some completions said that no copy was made."
    )
    return (
        f"{machine}\n{local}\n"
        "What it does show is the number of system calls for each completion, which was\n"
        "counted, and that each completion arrived exactly once, which the test verified.\n"
        "One poll after each send is the test's habit and not needed for completions.\n"
        "The posting names no unit and no machine for its figures."
    )


def render(rounds: Rounds, known: Published, *, seconds: int, accel: str) -> str:
    """The whole table as text, with what it can and cannot show."""
    count = len(next(iter(rounds.values())))
    lines = [
        f"Median (least-most) of {count} rounds, {seconds + _EXTRA:.1f} s for each run; "
        "calls: system calls of the sender per completion"
    ]
    for limit in LIMITS:
        lines += ["", *_section(limit, rounds, known, seconds)]
    return "\n".join([*lines, "", _statement(rounds, accel)])


def run(kernel: Path, tree: Path | None, *, seconds: int, repeat: int, notify: Notify) -> str:
    """Measure and render.  ``tree`` has the test; by default the one the kernel is built from."""
    known = published()
    tree = tree or open_kernel(kernel).source_tree
    if tree is None:
        raise ConfigError(f"{kernel}: its source tree is not known; --tree names it")
    found, accel = measure(kernel, tree, seconds=seconds, repeat=repeat, notify=notify)
    return render(found, known, seconds=seconds, accel=accel)
