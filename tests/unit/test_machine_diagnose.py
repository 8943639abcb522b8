# SPDX-License-Identifier: GPL-2.0-only
"""Causes of death, read from console lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.machine import diagnose

PANIC = "[    1.5] Kernel panic - not syncing: sysrq triggered crash"
OOM = (
    "[   12.3] Out of memory: Killed process 57 (hog) total-vm:812kB, anon-rss:4kB, "
    "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:44kB oom_score_adj:500"
)
MEMCG = "Memory cgroup out of memory: Killed process 58 (a (b) c) total-vm:812kB, anon-rss:4kB"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], None),
        (["all is well"], None),
        ([PANIC], "sysrq triggered crash"),
        (["Kernel panic - not syncing:"], "no reason given"),
        (
            ["[1] BUG: kernel NULL pointer dereference, address: 8", "[1] Oops: Oops: 0002 [#1]",
             "[1] Kernel panic - not syncing: Fatal exception"],
            "Fatal exception (BUG: kernel NULL pointer dereference, address: 8)",
        ),
        # A second one is a consequence of the first.
        ([PANIC, "Kernel panic - not syncing: Fatal exception"], "sysrq triggered crash"),
        # A kernel that ends in order has not panicked, whatever is in its log.
        ([PANIC, "[2.0] reboot: Power down"], None),
        ([PANIC, "[2.0] reboot: Restarting system"], None),
    ],
)  # fmt: skip
def test_panic(lines: list[str], why: str | None) -> None:
    assert diagnose.panic(lines) == why


@pytest.mark.parametrize(
    ("lines", "pid", "comm", "victim"),
    [
        ([OOM], 57, "hog", ("hog", 57)),
        ([OOM], 57, "", ("hog", 57)),
        ([OOM], 3, "hog", ("hog", 57)),  # a pid namespace of its own
        ([OOM], 58, "other", None),
        ([OOM, MEMCG], 58, "sh", ("a (b) c", 58)),
        ([OOM], 0, "", None),
        ([], 57, "hog", None),
        (["Out of memory: Killed process 57"], 57, "hog", None),
        (["Out of memory: Killed process 7 (a_very_long_nam) total-vm:1"], 9,
         "a_very_long_name_indeed", ("a_very_long_nam", 7)),
    ],
)  # fmt: skip
def test_oom_victim(lines: list[str], pid: int, comm: str, victim: tuple[str, int] | None) -> None:
    assert diagnose.oom_victim(lines, pid, comm) == victim


@pytest.mark.parametrize(
    ("console", "said", "cause"),
    [
        (["VFS: Unable to mount root fs on unknown-block(0,0)"], [], "CONFIG_BLK_DEV_INITRD"),
        (["Kernel panic - not syncing: No working init found."], [], "CONFIG_BLK_DEV_INITRD"),
        (["Failed to execute /init (error -8)", "panic: No working init found"], [],
         "CONFIG_BINFMT_ELF"),
        (["[3] ktest-agent: fatal: no virtio-serial support (CONFIG_VIRTIO_CONSOLE)"], [],
         "no virtio-serial support (CONFIG_VIRTIO_CONSOLE)"),
        ([], ["qemu: Error loading uncompressed kernel without PVH ELF Note"], "CONFIG_PVH"),
        ([PANIC], [], "kernel panic at boot: sysrq triggered crash"),
    ],
)  # fmt: skip
def test_boot_cause(console: list[str], said: list[str], cause: str) -> None:
    found = diagnose.boot_cause(console, said)
    assert found is not None
    assert cause in found


def test_unknown_boot_cause() -> None:
    assert diagnose.boot_cause(["nothing special"], ["warning: this and that"]) is None


def test_host_cause() -> None:
    line = "qemu: cannot set up guest memory 'pc.ram': Cannot allocate memory"
    assert diagnose.host_cause([line]) == "not enough memory on this host"
    assert diagnose.host_cause(["warning"]) is None


def test_every_line_it_looks_for_is_kept_by_the_console() -> None:
    for line in (PANIC, OOM, MEMCG, "reboot: Power down", "Oops: 0002", "ktest-agent: fatal: x"):
        assert diagnose.DECISIVE.search(line), line


@given(st.lists(st.text()))
def test_any_text_will_do(lines: list[str]) -> None:
    diagnose.panic(lines)
    diagnose.clean_end(lines)
    diagnose.oom_victim(lines, 1, "x")
    diagnose.boot_cause(lines, lines)
    assert diagnose.excerpt(lines)


def test_excerpt_shows_the_end() -> None:
    text = diagnose.excerpt([*map(str, range(50)), "", "last"], count=3)
    assert text == "last console lines:\n  48\n  49\n  last"
    assert diagnose.excerpt(["", " "]) == "the console stayed empty"
