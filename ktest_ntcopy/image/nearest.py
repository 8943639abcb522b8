# SPDX-License-Identifier: GPL-2.0-only
"""Names that look like one that is not there."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """The names most like ``name``, best first.

    Comparing fully with every symbol of a kernel would take seconds, so only
    names that share a good part of their three-letter pieces are compared.
    """
    import difflib

    pieces = {name[i : i + 3] for i in range(len(name) - 2)}
    close = {
        other: None
        for other in names
        if other != name
        and abs(len(other) - len(name)) <= len(name) // 2 + 1
        and sum(piece in other for piece in pieces) * 3 >= len(pieces)
    }
    return tuple(difflib.get_close_matches(name, close, n=count, cutoff=0.6))
