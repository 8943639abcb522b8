# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel's documentation claims: which test holds it to that, and does it still say so."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

#: Where the documents are in a kernel tree.
FOLDER = "Documentation/networking"
_UNDERLINES = frozenset("=-~^\"'`#*+")


@dataclass(frozen=True)
class Claim:
    """A few words of one section of a document that some test takes at their meaning."""

    document: str  #: file in FOLDER
    section: str  #: its heading
    words: tuple[str, ...]
    test: str
    feature: str = ""  #: whose series brings the section, if it is not the kernel's own

    def __str__(self) -> str:
        return f"{self.document}-{self.section.split(' (')[0]}-{self.test}"


#: All that were made so far, in the order of the tests.
CLAIMS: list[Claim] = []


def claim(document: str, section: str, *words: str, feature: str = "") -> Callable[[Any], Any]:
    """Decorate a test with what it takes from where."""

    def note(test: Any) -> Any:
        CLAIMS.append(Claim(document, section, words, test.__name__, feature))
        return pytest.mark.documented(document, section, *words)(test)

    return note


def section(text: str, heading: str) -> str | None:
    """What a reStructuredText document says below a heading, up to the next one.

    White space is single blanks; a heading's case does not matter.  None if there is no
    such heading.
    """
    lines = text.splitlines()
    headings = [
        number
        for number, (line, below) in enumerate(itertools.pairwise(lines))
        if _underlines(below, line)
    ]
    for number, following in itertools.pairwise((*headings, len(lines))):
        if lines[number].strip().casefold() == heading.casefold():
            return " ".join(" ".join(lines[number + 2 : following]).split())
    return None


def _underlines(line: str, title: str) -> bool:
    mark = line.rstrip()
    # Some documents have underlines that are a little too short.
    return (
        len(set(mark)) == 1
        and mark[0] in _UNDERLINES
        and bool(title.strip())
        and not title.startswith(" ")
        and len(mark) >= 3
        and abs(len(mark) - len(title.rstrip())) <= 2
    )


def stale(found: Claim, text: str) -> str:
    """Why a claim is not in a document any more; empty if it is."""
    said = section(text, found.section)
    if said is None:
        return f"{found.document} has no section {found.section!r} any more"
    missing = [word for word in found.words if word not in said]
    if missing:
        return f"{found.document}, {found.section!r} does not say {missing[0]!r} any more"
    return ""
