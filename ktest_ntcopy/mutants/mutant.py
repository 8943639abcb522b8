# SPDX-License-Identifier: GPL-2.0-only
"""A mutant as it lies in the repository: a small patch under a few header lines."""

from __future__ import annotations

import email.parser
import email.policy
import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.kernel import series as patches
from ktest_ntcopy.paths import data_root

_HEADERS = ("SPDX-License-Identifier", "Feature", "Breaks", "Caught-by")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One property of one feature, broken.

    ``caught_by`` are patterns (:mod:`fnmatch`) of case names, as the journal has
    them: the tests that name the property.  Another failing test does not count.
    """

    name: str  #: "feature/file name"
    path: Path
    feature: str
    breaks: str  #: what is wrong with this kernel, one line
    caught_by: tuple[str, ...]

    @cached_property
    def patch(self) -> patches.Patch:
        """What is done to a tree that has all series."""
        return patches.Patch(self.path)

    def names(self, case: str) -> bool:
        """Whether a failure of that case catches this mutant."""
        return any(fnmatch.fnmatchcase(case, pattern) for pattern in self.caught_by)


def parse(path: Path, text: str) -> Mutant:
    """Read one file.  Raises ConfigError that says what it lacks."""
    head = email.parser.HeaderParser(policy=email.policy.default).parsestr(text)
    for key in head:
        if key not in _HEADERS:
            raise ConfigError(f"{path}: unknown header '{key}'; known: {', '.join(_HEADERS)}")
    for key in _HEADERS:
        if not head.get(key):
            raise ConfigError(f"{path}: header '{key}:' is missing")
    features = [f.name for f in load_features()]
    if head["Feature"] not in features:
        raise ConfigError(f"{path}: no feature '{head['Feature']}'; there are {features}")
    if not re.search(r"^diff --git a/\S+ b/\S+$", text, re.MULTILINE):
        raise ConfigError(f"{path}: has no patch")
    return Mutant(
        name=f"{path.parent.name}/{path.stem}",
        path=path,
        feature=str(head["Feature"]),
        breaks=str(head["Breaks"]),
        caught_by=tuple(str(pattern) for pattern in head.get_all("Caught-by", [])),
    )


def read(version: str) -> tuple[Mutant, ...]:
    """All mutants for a kernel version, by feature and name.  Raises ConfigError."""
    folder = data_root() / "mutants" / version
    found = []
    for path in sorted(folder.glob("*/*.patch")):
        mutant = parse(path, path.read_text(encoding="utf-8"))
        if mutant.feature != path.parent.name:
            raise ConfigError(f"{path}: is for {mutant.feature}, so it belongs into that folder")
        found.append(mutant)
    return tuple(found)


def select(mutants: Iterable[Mutant], wanted: Iterable[str]) -> tuple[Mutant, ...]:
    """Those whose name, or feature, is wanted; all if nothing is.  Raises ConfigError."""
    every, patterns = tuple(mutants), tuple(wanted)
    if not patterns:
        return every
    for pattern in patterns:
        if not any(_wanted(m, pattern) for m in every):
            known = ", ".join(m.name for m in every)
            raise ConfigError(f"no mutant '{pattern}'; there are {known}")
    return tuple(m for m in every if any(_wanted(m, p) for p in patterns))


def _wanted(mutant: Mutant, pattern: str) -> bool:
    return mutant.feature == pattern or fnmatch.fnmatchcase(mutant.name, pattern)
