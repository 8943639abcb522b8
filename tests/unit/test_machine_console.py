# SPDX-License-Identifier: GPL-2.0-only
"""The console: whatever a guest prints becomes printable lines in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ktest_ntcopy.machine.base import ConsoleLine
from ktest_ntcopy.machine.console import BOOT_HEAD, HEAD, LINE_MAX, TAIL, Console, Window, sanitise


def texts(console: Console) -> list[str]:
    return [line.text for line in console.window.lines()]


@given(st.binary())
@example(b"\x1b[31m\x00\x7f\x80\xff\xe2\x80\xae\xe2\x80\xa8\xed\xa0\x80")
def test_sanitised_text_prints(data: bytes) -> None:
    text = sanitise(data)
    assert text.replace("\t", "").isprintable()
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain text\tand tab", "plain text\tand tab"),
        ("grün €".encode(), "grün €"),
        (b"\x1b[2J", "\\x1b[2J"),
        (b"a\0b\rc\x7f", "a\\x00b\\x0dc\\x7f"),
        (b"\xff\xc3(", "\\xff\\xc3("),
        ("\u202eevil".encode(), "\\u202eevil"),
        ("\U000e0041".encode(), "\\U000e0041"),
    ],
)
def test_escapes(data: bytes, text: str) -> None:
    assert sanitise(data) == text


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=20))
def test_pieces_do_not_matter(data: bytes, sizes: list[int]) -> None:
    whole, pieces = Console(), Console()
    whole.feed(data, 1.0)
    rest = data
    for size in sizes:
        pieces.feed(rest[:size], 1.0)
        rest = rest[size:]
    pieces.feed(rest, 1.0)
    for console in (whole, pieces):
        console.flush(1.0)
    assert texts(whole) == texts(pieces)


def test_time_is_when_a_line_was_complete() -> None:
    console = Console()
    console.feed(b"one\r\ntw", 1.0)
    console.feed(b"o\n", 2.0)
    assert console.window.lines() == (ConsoleLine(1.0, "one"), ConsoleLine(2.0, "two"))


def test_line_without_end_is_cut() -> None:
    console = Console()
    console.feed(b"x" * (3 * LINE_MAX), 1.0)
    assert [len(text) for text in texts(console)] == [LINE_MAX, LINE_MAX]
    console.flush(2.0)
    assert "".join(texts(console)) == "x" * (3 * LINE_MAX)


def test_flood_keeps_head_and_tail() -> None:
    console = Console()
    console.restart()
    for number in range(10_000):
        console.feed(b"line %d\n" % number, 1.0)
    lines = texts(console)
    assert len(lines) == HEAD + TAIL + 1
    assert lines[0] == "line 0"
    assert lines[-1] == "line 9999"
    assert lines[HEAD] == f"[... {10_000 - HEAD - TAIL} lines of console output left out ...]"


def test_boot_has_room_for_what_kernel_tests_print() -> None:
    console = Console()
    for number in range(BOOT_HEAD):
        console.feed(b"line %d\n" % number, 1.0)
    assert texts(console)[-1] == f"line {BOOT_HEAD - 1}"
    assert console.window.dropped == 0


def test_flood_does_not_bury_a_panic() -> None:
    window = Window(head=1, tail=1)
    window.add(ConsoleLine(0.0, "start"))
    window.add(ConsoleLine(0.0, "Kernel panic - not syncing: why"))
    for _ in range(5000):
        window.add(ConsoleLine(0.0, "Out of memory: Killed process 1 (x) total-vm"))
    assert window.decisive[0] == "Kernel panic - not syncing: why"
    assert len(window.decisive) < 1000


def test_windows_do_not_overlap() -> None:
    console = Console()
    console.feed(b"boot\npart", 1.0)
    first = console.window
    second = console.restart()
    console.feed(b"ial\nmore\n", 2.0)
    assert [line.text for line in first.lines()] == ["boot"]
    assert [line.text for line in second.lines()] == ["partial", "more"]


def test_log_holds_everything(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log")
    console.feed(b"a\n\xff\n", 1.0)
    console.restart()
    console.feed(b"b\n", 1.0)
    console.close()
    assert (tmp_path / "console.log").read_text() == "a\n\\xff\nb\n"


def test_log_has_a_greatest_size(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log", log_max=10)
    for _ in range(100):
        console.feed(b"12345\n", 1.0)
    console.close()
    text = (tmp_path / "console.log").read_text()
    assert text == "12345\n[the console log reached its greatest size]\n"
    assert len(texts(console)) == 100


def test_full_disk_does_not_lose_lines() -> None:
    console = Console(Path("/dev/full"))
    console.feed(b"a\nb\n", 1.0)
    console.close()
    assert texts(console) == ["a", "b"]
    assert "space" in console.log_error
