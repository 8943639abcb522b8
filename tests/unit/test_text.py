# SPDX-License-Identifier: GPL-2.0-only
"""Guest text made safe and short."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.results.text import clean, excerpt, excerpt_lines, one_line
from tests.unit.effort import is_linear


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain\n\ttext ü €", "plain\n\ttext ü €"),
        ("\x1b[31;1mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1b(Ba\x1bMb\x1b", "ab\\x1b"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x00\x08\x7f\x9b", "\\x00\\x08\\x7f\\x9b"),
        ("\ud800\ufffe\u202e\u2028", "\\ud800\\ufffe\\u202e\\u2028"),
        ("\U0001f600", "\U0001f600"),
        ("\\x1b[0m", "\\x1b[0m"),
    ],
)
def test_clean(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec=None)))
def test_clean_text_is_xml_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    element = ET.Element("a")
    element.text = cleaned
    assert (ET.fromstring(ET.tostring(element, "utf-8")).text or "") == cleaned
    assert clean(cleaned) == cleaned


@settings(deadline=None)
@given(st.text(), st.integers(10, 600))
def test_one_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line
    assert line == line.strip()


def test_one_line_says_that_it_was_cut() -> None:
    assert one_line("word " * 100, 20) == "word word word wo..."


@settings(deadline=None)
@given(st.text(), st.integers(100, 300))
def test_excerpt(text: str, limit: int) -> None:
    text = text * 20
    short = excerpt(text, limit)
    assert len(short) <= limit + 10
    if len(text) <= limit:
        assert short == text
    else:
        assert text.startswith(short.split("\n[... ")[0])
        assert text.endswith(short.split("left out ...]\n")[-1])


@settings(deadline=None)
@given(
    count=st.integers(0, 200),
    width=st.integers(0, 30),
    limit=st.integers(50, 2000),
    focus=st.none() | st.integers(0, 199),
)
def test_excerpt_of_lines(count: int, width: int, limit: int, focus: int | None) -> None:
    lines = [f"{n}:" + "x" * width for n in range(count)]
    focus = None if focus is None or focus >= count else focus
    shown = excerpt_lines(lines, limit, focus).split("\n")
    kept = [x for x in shown if not x.startswith("[...")]
    if sum(len(x) + 1 for x in lines) <= limit:
        assert shown == (lines or [""])
        return
    # In order, none twice, the end always there, and the gaps are counted right.
    numbers = [int(x.split(":")[0]) for x in kept]
    assert numbers == sorted(set(numbers))
    left_out = sum(int(x.split()[1]) for x in shown if x.startswith("[..."))
    assert left_out == count - len(kept)
    assert lines[-1] in kept
    assert lines[0 if focus is None else max(0, focus - 2)] in kept
    assert sum(len(x) + 1 for x in kept) <= limit + 2 * (width + 10)


def test_one_endless_line_is_bounded() -> None:
    assert len(excerpt_lines(["x" * 100_000], 1000)) < 3000
    assert len(excerpt_lines(["a", "x" * 100_000, "b"], 1000)) < 3000


@pytest.mark.parametrize("unit", ["\x1b]", "\x1b[", "\x1b[0", "\x1b", "\x00", "\r", "ü"])
def test_cleaning_takes_linear_time(unit: str) -> None:
    assert is_linear(clean, unit, 10_000)
