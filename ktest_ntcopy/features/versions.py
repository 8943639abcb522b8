# SPDX-License-Identifier: GPL-2.0-only
"""Ranges of kernel versions, as feature files write them: ``">=6.12, <7.0"``."""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int]  #: major, minor

_TERM = re.compile(r"(>=|<=|==|>|<)\s*(\d{1,4})\.(\d{1,4})")
_LOWEST: Version = (0, 0)
_HIGHEST: Version = (10_000, 0)


def parse_version(text: str) -> Version:
    """Major and minor of "6.12" or "6.12.117-1".  Raises ValueError."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if not found:
        raise ValueError(f"{text!r} is no kernel version")
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class Versions:
    """All versions from ``low`` up to, but without, ``high``.  True unless it is all there are."""

    low: Version = _LOWEST
    high: Version = _HIGHEST
    text: str = ""  #: as it was written

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Comparisons with ``>= > < <= ==``, separated by commas, all of which must hold.

        Raises ValueError saying what is wrong.
        """
        low, high = _LOWEST, _HIGHEST
        for term in text.split(","):
            found = _TERM.fullmatch(term.strip())
            if not found:
                raise ValueError(f"{term.strip()!r} is no comparison such as '>=6.12' or '<7.0'")
            at = (int(found[2]), int(found[3]))
            after = (at[0], at[1] + 1)
            if found[1] in (">=", ">", "=="):
                low = max(low, after if found[1] == ">" else at)
            if found[1] in ("<", "<=", "=="):
                high = min(high, at if found[1] == "<" else after)
        if low >= high:
            raise ValueError(f"no version is {text}")
        return cls(low, high, text)

    def __bool__(self) -> bool:
        return (self.low, self.high) != (_LOWEST, _HIGHEST)

    def __contains__(self, version: str) -> bool:
        return self.low <= parse_version(version) < self.high

    def overlaps(self, other: Versions) -> bool:
        """True if some version is in both."""
        return max(self.low, other.low) < min(self.high, other.high)

    def __str__(self) -> str:
        return self.text or "any version"


#: No restriction.
ANY = Versions()
