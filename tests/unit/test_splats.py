# SPDX-License-Identifier: GPL-2.0-only
"""Kernel complaints in every format that netdev tests meet, and what must not be one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.machine.base import ConsoleLine
from ktest_ntcopy.results.splats import (
    LINES_MAX,
    SPLATS_MAX,
    Kind,
    Splat,
    detect,
    serious,
    strip_printk,
)
from tests.unit.effort import cpu_below
from tests.unit.splat_samples import (
    HUNG_TASK,
    KASAN,
    NETDEVICE,
    SAMPLES,
    X86_OOPS,
    X86_WARN_73,
    X86_WARN_612,
    console,
)

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> list[ConsoleLine]:
    return [ConsoleLine(0.0, x) for x in (GOLDEN / name).read_text().split("\n")]


def only(splats: tuple[Splat, ...]) -> Splat:
    assert len(splats) == 1, [(s.kind, s.title) for s in splats]
    return splats[0]


@pytest.mark.parametrize("stamp", [12.5, None])
@pytest.mark.parametrize("name", SAMPLES)
def test_each_kind_is_found_once(name: str, stamp: float | None) -> None:
    text, kind, function = SAMPLES[name]
    splat = only(detect(console(text, stamp=stamp)))
    assert splat.kind is kind
    assert splat.serious
    assert splat.title in text or kind is Kind.WARNING
    if function:
        assert splat.trace[0] == function


# A bare trace cannot be told from the rest of the report before it.
@pytest.mark.parametrize("name", [n for n, s in SAMPLES.items() if s[1] is not Kind.TRACE])
def test_a_fault_after_a_harmless_report_is_found(name: str) -> None:
    text, kind, _ = SAMPLES[name]
    oom = "a.out invoked oom-killer: gfp_mask=0xcc0, order=0\nMem-Info:\n"
    assert kind in [s.kind for s in detect(console(oom + text))]


def test_warning_has_the_same_fingerprint_in_both_formats() -> None:
    old, new = only(detect(console(X86_WARN_612))), only(detect(console(X86_WARN_73)))
    assert old.fingerprint == new.fingerprint
    assert old.title == "WARNING at net/core/stream.c:212 sk_stream_kill_queues"
    assert len(old.fingerprint) == 12


def test_fingerprint_ignores_addresses_and_pids_but_not_functions() -> None:
    one = only(detect(console(X86_OOPS)))
    other = X86_OOPS.replace("0000000000000018", "0000000000000abc").replace("PID: 77", "PID: 5")
    assert only(detect(console(other, stamp=99.0))).fingerprint == one.fingerprint
    elsewhere = X86_OOPS.replace("tcp_sendmsg_locked", "udp_sendmsg")
    assert only(detect(console(elsewhere))).fingerprint != one.fingerprint


def test_trace_starts_at_the_fault_and_leaves_out_reporters() -> None:
    splat = only(detect(console(X86_OOPS)))
    assert splat.trace[:3] == ("skb_do_copy_data_nocache", "tcp_sendmsg_locked", "tcp_sendmsg")


def test_text_of_a_warning_is_part_of_its_title() -> None:
    text = X86_WARN_612.replace(
        "WARNING: CPU", "refcount_t: underflow; use-after-free.\nWARNING: CPU"
    )
    splat = only(detect(console(text)))
    assert splat.title.endswith("sk_stream_kill_queues: refcount_t: underflow; use-after-free.")
    assert splat.fingerprint == only(detect(console(X86_WARN_612))).fingerprint
    assert len(splat.lines) == len(text.strip().split("\n"))


def test_cut_here_without_a_heading_is_forgotten() -> None:
    text = "------------[ cut here ]------------\n" + "noise\n" * 50 + NETDEVICE
    splat = only(detect(console(text)))
    assert (splat.kind, len(splat.lines)) == (Kind.LEAK, 1)


def test_rule_ends_a_sanitizer_report() -> None:
    splat = only(detect(console(KASAN + "a line of everyday")))
    assert splat.lines[-1].endswith("=" * 66)


def test_registers_of_other_processors_are_not_the_fault() -> None:
    text = "Kernel panic - not syncing: x\nCall Trace:\n do_exit+0x1/0x2\nRIP: 0010:halt+0x1/0x2"
    assert only(detect(console(text))).trace == ("do_exit",)


def test_two_reports_in_a_row_are_two() -> None:
    kinds = [s.kind for s in detect(console(X86_OOPS + X86_WARN_73 + NETDEVICE + KASAN))]
    assert kinds == [Kind.OOPS, Kind.WARNING, Kind.LEAK, Kind.KASAN]


def test_panic_after_an_oops_is_its_own() -> None:
    kinds = [s.kind for s in detect(console(X86_OOPS + "Kernel panic - not syncing: Fatal"))]
    assert kinds == [Kind.OOPS, Kind.PANIC]


def test_silence_ends_a_report() -> None:
    lines = [*console(HUNG_TASK, stamp=10.0), *console("Call Trace:\n foo+0x1/0x2", stamp=60.0)]
    assert [s.kind for s in detect(lines)] == [Kind.HUNG_TASK, Kind.TRACE]


def test_lines_and_time_are_kept() -> None:
    lines = [ConsoleLine(3.5, "[    1.000000] fine"), *console(X86_WARN_612)]
    splat = only(detect(lines))
    assert splat.lines[0].endswith("[ cut here ]------------")
    assert splat.lines[-1].endswith("---[ end trace 0000000000000000 ]---")
    assert splat.time == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "traps: a.out[77] general protection fault ip:401136 sp:7ffc error:0 in a.out[401000+1000]",
        "a.out[78]: segfault at 0 ip 0000000000401136 sp 00007ffc error 4 in a.out[401000+1000]",
        "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on",
        "DEBUG: not a bug",
        "workqueue: rtnl_work hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
        "perf: interrupt took too long (2506 > 2500), lowering kernel.perf_event_max_sample_rate",
        "INFO: lockdep is turned off.",
        "WARNING: a driver grumbles about its firmware",
        "rcu: Hierarchical RCU implementation.",
        "clocksource: Switched to clocksource tsc",
        "NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
        "sysrq: HELP : loglevel(0-9) reboot(b) crash(c)",
        "my program says: Kernel panic - not syncing: or so",
        "page_owner is disabled",
        "loop: module loaded [#1]",
        "",
    ],
)
def test_noise_is_no_splat(text: str) -> None:
    assert detect(console(text)) == ()


def test_real_boot_has_none() -> None:
    lines = golden("console_boot.txt")
    assert len(lines) > 200
    assert detect(lines) == ()


def test_real_panic_has_its_title() -> None:
    splat = only(detect(golden("console_crash.txt")))
    assert (splat.kind, splat.title) == (
        Kind.PANIC,
        "Kernel panic - not syncing: sysrq triggered crash",
    )
    assert "write_sysrq_trigger" in splat.trace  # guessed frames, in want of others


def test_real_dumps_and_oom_kill_are_not_serious() -> None:
    splats = detect(golden("console_dump.txt"))
    assert [s.kind for s in splats] == [Kind.DUMP] * 3 + [Kind.OOM, Kind.PANIC]
    assert [s.title for s in serious(splats)] == [
        "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000300"
    ]


def test_allocation_failure_is_reported_but_not_serious() -> None:
    text = "msg_ntcopy: page allocation failure: order:4, mode:0xcc0(GFP_KERNEL)\nCall Trace:\n"
    splat = only(detect(console(text + " a+0x1/0x2")))
    assert (splat.kind, splat.serious) == (Kind.ALLOCATION, False)


def test_expected_splats_are_allowed_by_pattern_or_fingerprint() -> None:
    splats = detect(console(X86_WARN_612 + KASAN))
    assert len(serious(splats)) == 2
    assert [s.kind for s in serious(splats, ["sk_stream_kill_queues"])] == [Kind.KASAN]
    assert [s.kind for s in serious(splats, [splats[1].fingerprint])] == [Kind.WARNING]


@pytest.mark.parametrize(
    ("line", "message", "stamp"),
    [
        ("[    1.250000] a", "a", 1.25),
        ("[    1.250000][    T1] a", "a", 1.25),
        ("[    1.250000][    C0] a", "a", 1.25),
        ("<4>[12345.000001] a", "a", 12345.000001),
        ("user text[    1.250000] BUG: x", "BUG: x", 1.25),
        ("no stamp", "no stamp", None),
        ("[pid] [0.1]", "[pid] [0.1]", None),
    ],
)
def test_printk_prefix(line: str, message: str, stamp: float | None) -> None:
    assert strip_printk(line) == (message, stamp)


def test_a_heading_behind_unfinished_user_text_is_found() -> None:
    line = ConsoleLine(0.0, "waiting...[    1.250000] BUG: Bad page map in process x")
    assert only(detect([line])).kind is Kind.BUG


def test_bounds() -> None:
    many = console("\n".join([NETDEVICE] * (SPLATS_MAX * 2)))
    assert len(detect(many)) == SPLATS_MAX
    endless = console(HUNG_TASK + "\n".join(" foo+0x1/0x2" for _ in range(5000)))
    assert len(only(detect(endless)).lines) == LINES_MAX


PIECES = st.sampled_from(
    [*(text for text, _, _ in SAMPLES.values()), "noise", "Call Trace:", "==="]
)


@settings(deadline=None)
@given(st.lists(st.text() | PIECES, max_size=20), st.booleans())
def test_anything_is_read(texts: list[str], stamped: bool) -> None:
    lines = console("\n".join(texts), stamp=1.0 if stamped else None)
    for splat in detect(lines):
        assert splat.lines
        assert splat.title.strip()


@pytest.mark.parametrize("line", ["a: " * 300_000, "[#1] " * 200_000, "Call Trace: " * 80_000])
def test_a_long_line_takes_little_time(line: str) -> None:
    with cpu_below(2.0):
        detect([ConsoleLine(0.0, line)] * 3)
