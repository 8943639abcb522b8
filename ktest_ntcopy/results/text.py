# SPDX-License-Identifier: GPL-2.0-only
"""Make text from a guest safe to keep and to show.  Pure functions, linear time."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Escape sequences of a terminal: CSI, OSC (ended by BEL or ST), two-character ones.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[0-Z\\^-~])"
)
# Everything XML 1.0 refuses, the C1 controls, which it only discourages, and characters
# that make a line read other than it is: no width, other direction, line separators.
_FORBIDDEN = re.compile(
    "[^\t\n\x20-\x7e\xa0-\u200a\u2010-\u2027\u202f-\u205f\u2070-\ud7ff\ue000-\ufefe"
    "\uff00-\ufffd\U00010000-\U0010ffff]"
)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def clean(text: str) -> str:
    """Text that any terminal and any XML 1.0 parser takes.

    Terminal escapes go, line ends become ``\\n``, forbidden characters (controls,
    surrogates, non-characters, changes of direction) become visible backslash escapes.
    """
    if _FORBIDDEN.search(text) is None:  # covers escapes and carriage returns; nearly always
        return text
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _FORBIDDEN.sub(_escape, text)


def visible(text: str) -> str:
    """Clean text on one line, whole: line ends and tabs become ``\\n`` and ``\\t``."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def one_line(text: str, limit: int = 500) -> str:
    """Clean text on one line of at most ``limit`` characters, ended by "..." if cut."""
    # Cut before cleaning too: a line may be as long as a flood.
    line = " ".join(clean(text[: 8 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def excerpt(text: str, limit: int) -> str:
    """The text if it has at most ``limit`` characters, its head and tail otherwise."""
    if len(text) <= limit:
        return text
    half = max(0, (limit - 60) // 2)
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[len(text) - half :]}"


def excerpt_lines(lines: Sequence[str], limit: int, focus: int | None = None) -> str:
    """Lines joined, bounded to about ``limit`` characters.

    Head and tail are kept; with ``focus`` (an index) the middle goes around that line
    and what follows it instead of the head.
    """
    total = sum(len(x) + 1 for x in lines)
    if total <= limit:
        return "\n".join(lines)
    start = 0 if focus is None else max(0, focus - 2)
    first = _take(lines, start, 1, limit // 2)
    last = _take(lines, len(lines) - 1, -1, limit // 2, stop=start + len(first) - 1)
    gap = len(lines) - start - len(first) - len(last)
    parts = [f"[... {start} lines left out ...]"] if start else []
    parts += first
    if gap > 0:
        parts.append(f"[... {gap} lines left out ...]")
    parts += reversed(last)
    return "\n".join(parts)


def _take(
    lines: Sequence[str], index: int, step: int, room: int, *, stop: int | None = None
) -> list[str]:
    """Lines from ``index`` on in direction ``step`` while there is room; at least one."""
    end = stop if stop is not None else len(lines)
    taken: list[str] = []
    while index != end and 0 <= index < len(lines):
        line = excerpt(lines[index], 2000)
        room -= len(line) + 1
        if room < 0 and taken:
            break
        taken.append(line)
        index += step
    return taken
