# SPDX-License-Identifier: GPL-2.0-only
"""Names and numbers of the features under test, from their files: the one place for them."""

from __future__ import annotations

from functools import cache

from ktest_ntcopy.features.model import Feature, load_features


@cache
def feature(name: str) -> Feature:
    """A feature by its name.  Raises LookupError if there is no file for it."""
    for found in load_features():
        if found.name == name:
            return found
    raise LookupError(f"no feature file {name}.toml")


def constant(name: str) -> int:
    """A number that a feature file defines, or expects of an enumerator.  Raises LookupError."""
    for each in load_features():
        for define in each.defines:
            if define.name == name:
                return define.value
        for expected in each.expectations:
            if (expected.kind, expected.name) == ("enumerator", name) and isinstance(
                expected.value, int
            ):
                return expected.value
    raise LookupError(f"no feature file gives a number for {name}")
