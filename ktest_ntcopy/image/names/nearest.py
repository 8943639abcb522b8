# SPDX-License-Identifier: GPL-2.0-only
"""Names that look like one that is not there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate


def nearest(name: str, names: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """The names most like ``name``, best first.

    Comparing fully with every symbol of a kernel would take seconds, so only
    names that share a good part of their three-letter pieces are compared.
    """
    import difflib

    pieces = {name[i : i + 3] for i in range(len(name) - 2)}
    span = len(name) // 2 + 1
    low, high = len(name) - span, len(name) + span
    alike = [other for other in names if low <= len(other) <= high]
    close = [o for o, n in zip(alike, _shared(pieces, alike), strict=True) if n * 3 >= len(pieces)]
    return tuple(
        difflib.get_close_matches(
            name, dict.fromkeys(o for o in close if o != name), n=count, cutoff=0.6
        )
    )


def _shared(pieces: Iterable[str], names: Sequence[str]) -> list[int]:
    """How many of the pieces each name has.  One long text is searched fastest."""
    text = "\n".join(names)
    starts = list(accumulate((len(name) + 1 for name in names), initial=0))
    counts = [0] * len(names)
    for piece in pieces:
        at = text.find(piece)
        while at >= 0:
            number = bisect_right(starts, at) - 1
            counts[number] += 1
            at = text.find(piece, starts[number + 1])
    return counts
