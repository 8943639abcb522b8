# SPDX-License-Identifier: GPL-2.0-only
"""What features leave in vmlinux, without all else that their files say.

Reading TOML takes longer than most questions about a kernel.  So ``ktest-ntcopy docs`` also
writes the expectations to ``traces.json``, with a hash of each feature file.  That is only
believed about a file that still has this hash; any other is read itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import source_hash
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.expect import Expectation, expectations
from ktest_ntcopy.features.versions import Versions

if TYPE_CHECKING:
    from ktest_ntcopy.features.model import Feature

_HERE = Path(__file__).parent
_LICENCE = ' "SPDX-License-Identifier": "GPL-2.0-only",'
#: The generated file.
TRACES = _HERE / "traces.json"


@dataclass(frozen=True, kw_only=True)
class Traces:
    """Of one feature; :class:`ktest_ntcopy.features.model.Feature` has these, too."""

    name: str
    title: str
    expectations: tuple[Expectation, ...]


@cache
def load_traces() -> tuple[Traces, ...]:
    """Of all features, by file name.  Raises ConfigError for what it reads of a file."""
    return read_traces(_HERE, TRACES)


def read_traces(folder: Path, generated: Path) -> tuple[Traces, ...]:
    """Those of the feature files in a folder, with the help of what was generated from them."""
    known = _generated(generated)
    found = []
    for path in sorted(folder.glob("*.toml")):
        try:
            data = path.read_bytes()
        except OSError as err:
            raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err
        kept = known.get(path.name)
        if kept and kept["hash"] == _hash(data):
            found.append(_traces(path.name, kept))
        else:
            found.append(_parsed(path))
    return tuple(found)


def _hash(data: bytes) -> str:
    """What Python itself knows a source by that it has compiled."""
    return source_hash(data).hex()


def _generated(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}  # the feature files say it all
    return known if isinstance(known, dict) else {}


def _traces(file: str, kept: Mapping[str, Any]) -> Traces:
    return Traces(
        name=kept["name"],
        title=kept["title"],
        expectations=tuple(_expectation(file, one) for one in kept["expectations"]),
    )


def _expectation(file: str, kept: Mapping[str, Any]) -> Expectation:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
    if versions := values.pop("versions", ""):
        values["versions"] = Versions.parse(versions)
    return Expectation(file=file, **values)


def _parsed(path: Path) -> Traces:
    from ktest_ntcopy.features.table import read_table

    table, text = read_table(path)
    return Traces(
        name=table.text("name"),
        title=table.text("title"),
        expectations=expectations(table, text),
    )


def render_traces(features: Iterable[Feature]) -> str:
    """The text of the generated file: a line for each expectation."""
    parts = []
    for feature in features:
        lines = ",\n".join(f"   {json.dumps(_kept(e))}" for e in feature.expectations)
        parts += [
            f" {json.dumps(feature.path.name)}: {{",
            f'  "hash": {json.dumps(_hash(feature.path.read_bytes()))},',
            f'  "name": {json.dumps(feature.name)},',
            f'  "title": {json.dumps(feature.title)},',
            f'  "expectations": [\n{lines}\n  ]\n }},',
        ]
    return "\n".join(["{", _LICENCE, *parts]).removesuffix(",") + "\n}\n"


def _kept(expectation: Expectation) -> dict[str, Any]:
    """All that is said of it, but for the file that says it, and what goes without saying."""
    values = {
        key: value
        for key, value in vars(expectation).items()
        if key != "file" and value != getattr(Expectation, key, ...)
    }
    if expectation.versions:
        values["versions"] = expectation.versions.text
    return values
