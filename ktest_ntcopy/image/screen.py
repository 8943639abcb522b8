# SPDX-License-Identifier: GPL-2.0-only
"""Text from files, for a terminal."""

from __future__ import annotations


def safe(text: str) -> str:
    """The text with whatever could steer a terminal made visible; lines and tabs stay.

    Names of files and symbols, releases and options come from the kernel file, so they may
    hold anything.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    from ktest_ntcopy.results.text import clean  # takes a while to import

    return clean(text)


def safe_line(text: str) -> str:
    """The same on one line."""
    if text.isprintable():
        return text
    from ktest_ntcopy.results.text import visible

    return visible(text)
