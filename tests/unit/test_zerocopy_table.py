# SPDX-License-Identifier: GPL-2.0-only
"""The MSG_ZEROCOPY_UARG table: read, compared within a round, and rendered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy import cli, zerocopy_table
from ktest_ntcopy.errors import USAGE, ConfigError, KtestError
from ktest_ntcopy.features import model
from ktest_ntcopy.machine.base import Chunk, Command, End, MachineInfo, Outcome
from ktest_ntcopy.zerocopy_table import LIMITS, LINKS, MODES, Run, Spread

PRINTED = """\
mode copy
tx=9 (2 MB) txc=0 zc=n
tx calls: sendmsg=10 poll=9 recvmsg=0 bytes=2000000
mode -z
tx=126 (7 MB) txc=126 zc=n
tx calls: sendmsg=126 poll=127 recvmsg=252 bytes=7000000 per completion=4.01

mode -n
tx=100 (6 MB) txc=100 zc=y
tx calls: sendmsg=100 poll=101 recvmsg=2 bytes=6000000 per completion=2.03
"""


def run(megabytes: int, **changes: Any) -> Run:
    counted = {"completions": 10, "zerocopy": False, "sends": 10, "polls": 11, "reads": 5}
    return Run(sent=megabytes * 1_000_000, **{**counted, **changes})


def test_every_number_of_a_run_is_read() -> None:
    assert zerocopy_table.parse(PRINTED) == {
        "copy": Run(sent=2000000, completions=0, zerocopy=False, sends=10, polls=9, reads=0),
        "-z": Run(sent=7000000, completions=126, zerocopy=False, sends=126, polls=127, reads=252),
        "-n": Run(sent=6000000, completions=100, zerocopy=True, sends=100, polls=101, reads=2),
    }


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_run_that_is_not_whole_is_refused(cut: int) -> None:
    lines = [line for line in PRINTED.splitlines() if line]
    if cut % 3 == 0:
        assert len(zerocopy_table.parse("\n".join(lines[:cut]))) == cut // 3
        return
    with pytest.raises(KtestError, match="not one run"):
        zerocopy_table.parse("\n".join(lines[:cut]))


def test_what_else_the_test_says_is_not_taken_for_a_figure() -> None:
    with pytest.raises(KtestError, match="serr: inconsistent"):
        zerocopy_table.parse(PRINTED.replace("mode -z\n", "mode -z\nserr: inconsistent\n"))


@given(st.text(max_size=300))
def test_any_output_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(KtestError):
        assert set(zerocopy_table.parse(text)) <= set(text.split())


def test_spread() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 9.0]) == Spread(1.0, 2.5, 9.0)
    assert Spread.of([117.4]).show(1, "%") == "117.4% (117.4-117.4)"


def test_what_was_published_is_what_the_posting_says() -> None:
    known = zerocopy_table.published()
    assert known.rates[8, "-n"]["tcp4"] / known.rates[8, "copy"]["tcp4"] == pytest.approx(
        1.1738, abs=0.0001
    )
    assert known.rates[8, "-z"]["udp6"] / known.rates[8, "copy"]["udp6"] == pytest.approx(
        1.1932, abs=0.0001
    )
    assert {limit for limit, _ in known.gains} | {limit for limit, _ in known.rates} == set(LIMITS)


def test_a_fault_in_the_published_figures_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = zerocopy_table.FEATURE
        path = Path("msg_zerocopy_uarg.toml")
        published: Mapping[str, Any] = {
            "gain": [{"limit": 1, "posting": "v4", "tcp": [1], "udp": [1, 2]}]
        }

    monkeypatch.setattr(zerocopy_table, "load_features", lambda: (Broken,))
    with pytest.raises(ConfigError, match=r"published.gain\[1\]: 'tcp' is not a least and a most"):
        zerocopy_table.published()


def every(make: Callable[[str, int], Run], count: int) -> zerocopy_table.Rounds:
    """``count`` rounds of everything; ``make`` has the mode and the number of the round."""
    return {
        (limit, link): [{mode: make(mode, n) for mode in MODES} for n in range(count)]
        for limit in LIMITS
        for link in LINKS
    }


def rows(text: str, title: str) -> list[list[str]]:
    return [line.split(title, 1)[1].split() for line in text.splitlines() if title in line]


def test_ratios_are_those_of_each_round() -> None:
    # A host that is ten times slower in the second round must not show in a ratio.
    speed = {"copy": 100, "-z": 110, "-n": 121}
    rounds = every(lambda mode, n: run(speed[mode] * (10, 1, 10)[n]), 3)
    known = zerocopy_table.published()
    text = zerocopy_table.render(rounds, known, seconds=1, accel="tcg")
    assert rows(text, "New ZCopy / ZCopy") == [["110%", "(110-110)"] * 4] * len(LIMITS)
    assert rows(text, "New ZCopy / Copy") == [["121%", "(121-121)"] * 4] * len(LIMITS)
    assert rows(text, "New ZCopy, MB/s")[0][:2] == ["1008", "(101-1008)"]
    assert rows(text, "Copy, MB/s")[0][:2] == ["833", "(83-833)"]
    # The posting's own percentages, beside ours.
    assert ["117.4%", "114.4%", "124.4%", "121.7%"] in rows(text, "published")
    assert ["113%", "113%", "118-121%", "118-121%"] in rows(text, "published, v4")
    assert ["108%", "108%", "95-103%", "95-103%"] in rows(text, "published, v4")


def test_system_calls_are_counted_for_each_completion() -> None:
    rounds = every(lambda mode, n: run(9, reads=20 if mode == "-z" else 0), 1)
    text = zerocopy_table.render(rounds, zerocopy_table.published(), seconds=1, accel="tcg")
    assert rows(text, "New ZCopy, calls")[0] == ["2.10", "(2.10-2.10)"] * 4
    # The other row of that title.
    assert ["4.10", "(4.10-4.10)"] * 4 in rows(text, "ZCopy, calls")
    assert rows(text, "recvmsg")[0] == ["2.00"] * 4


@pytest.mark.parametrize(
    ("accel", "zerocopy", "said"),
    [
        ("tcg", False, ("emulated", "skb_orphan_frags_rx", "v8")),
        ("kvm", False, ("under kvm", "skb_orphan_frags_rx")),
        ("kvm", True, ("under kvm", "no copy was made")),
    ],
)
def test_what_the_machine_can_show_is_said(
    accel: str, zerocopy: bool, said: tuple[str, ...]
) -> None:
    rounds = every(lambda _mode, _n: run(9, zerocopy=zerocopy), 1)
    text = zerocopy_table.render(rounds, zerocopy_table.published(), seconds=1, accel=accel)
    for words in said:
        assert words in text
    assert ("emulated" in text) is (accel == "tcg")


class Guest:
    """Answers every command with one outcome, and notes the commands."""

    alive = True
    boot_console = ()

    def __init__(self, outcome: Callable[[Command], Outcome]) -> None:
        self.outcome = outcome
        self.commands: list[Command] = []

    @property
    def info(self) -> MachineInfo:
        return MachineInfo(
            kind="fake",
            accel="tcg",
            arch="x86_64",
            release="6.12.117",
            version="#1",
            boot_seconds=1.0,
            slowdown=1.0,
            command_line=(),
        )

    def boot(self) -> MachineInfo:
        return self.info

    def run(self, command: Command) -> Outcome:
        self.commands.append(command)
        return self.outcome(command)

    def close(self) -> None:
        pass

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def exited(text: str, code: int = 0) -> Outcome:
    return Outcome(end=End.EXITED, exit_code=code, output=(Chunk(0.0, text.encode()),))


def measure(monkeypatch: pytest.MonkeyPatch, guest: Guest, repeat: int) -> zerocopy_table.Rounds:
    monkeypatch.setattr(zerocopy_table, "QemuMachine", lambda *_args, **_kwargs: guest)
    monkeypatch.setattr(zerocopy_table, "_compile", lambda *_: {})
    found, accel = zerocopy_table.measure(
        Path("vmlinux"), Path("tree"), seconds=1, repeat=repeat, notify=lambda _: None
    )
    assert accel == "tcg"
    return found


def test_rounds_are_complete_and_no_mode_is_always_first(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Guest(lambda _: exited(PRINTED))
    found = measure(monkeypatch, guest, repeat=3)
    assert found.keys() == {(limit, link) for limit in LIMITS for link in LINKS}
    assert all(len(rounds) == 3 for rounds in found.values())
    firsts = [command.argv[6] for command in guest.commands]
    assert {mode: firsts.count(mode) for mode in MODES} == dict.fromkeys(
        MODES, len(LIMITS) * len(LINKS)
    )


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (exited("mode -n\nmsg_zerocopy: send: Invalid argument\n", 1), "send: Invalid argument"),
        (Outcome(end=End.PANIC, detail="kernel panic: oops"), "kernel panic: oops"),
        (exited(PRINTED.partition("mode -n")[0]), "ran copy, -z"),
        (exited(""), "ran nothing"),
        (exited("mode -n\n\x1b[2Jsend: \rBroken\n", 1), "send:"),
        (exited(PRINTED.replace("txc=100", "txc=0")), "-n, TCP v4, limit 1: nothing was sent"),
        (exited(PRINTED.replace("bytes=2000000", "bytes=0")), "copy, TCP v4, limit 1: nothing"),
    ],
)
def test_a_run_that_fails_is_no_figure(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome, complaint: str
) -> None:
    with pytest.raises(KtestError) as caught:
        measure(monkeypatch, Guest(lambda _: outcome), repeat=1)
    assert complaint in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_tree_without_the_test_or_the_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command() -> str:
        argv = ["zerocopy-table", str(tmp_path / "vmlinux"), "--tree", str(tmp_path)]
        assert cli.main(argv) == USAGE
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        return line

    assert "msg_zerocopy.c: No such file or directory; --tree names" in command()
    net = tmp_path / "tools/testing/selftests/net"
    net.mkdir(parents=True)
    (net / "msg_zerocopy.c").write_text("int main(void) { return 0; }\n")
    assert "takes no completions from sendmsg()" in command()


@pytest.mark.parametrize("value", ["0", "-1", "x", "9999"])
def test_counts_are_sensible(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["zerocopy-table", "vmlinux", "--repeat", value])
    assert caught.value.code == USAGE
    assert "--repeat" in capsys.readouterr().err


def test_the_feature_is_there() -> None:
    assert zerocopy_table.FEATURE in {f.name for f in model.load_features()}
