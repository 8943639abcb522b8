# SPDX-License-Identifier: GPL-2.0-only
"""The list of generated tests that lies beside them in a kernel tree.

It tells whoever runs them what there is without asking the binaries, whose
own listing pairs fixtures, variants and tests in columns.  Its name starts
with a dot because the kernel's top .gitignore passes over such files: it is a
note of ours, needs no line in the directory's .gitignore and cannot slip into
a posting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ktest_ntcopy import __version__
from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.kernel.render import Rendered

NAME = ".ktest_ntcopy.manifest.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class ManifestCase:
    """One fixture.variant.test."""

    fixture: str
    variant: str
    test: str
    about: str  #: what it proves
    timeout: int  #: seconds at reference speed
    skip: str = ""  #: why this variant does not apply, empty if it does

    @property
    def name(self) -> str:
        """What the program's ``-r`` takes."""
        return f"{self.fixture}.{self.variant}.{self.test}"


@dataclass(frozen=True, kw_only=True)
class ManifestProgram:
    """One test program and its cases, in the order in which it runs them."""

    name: str
    feature: str
    target: str
    sources: tuple[str, ...]  #: files in the target's folder, the program's own first
    libs: tuple[str, ...]
    bits: int = 0  #: 32, or 0 for the word size of the kernel
    cases: tuple[ManifestCase, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All generated programs of one kselftest target."""

    kernel: str  #: "6.12"
    target: str
    generator: str  #: version of this package
    programs: tuple[ManifestProgram, ...]
    #: of each file in ``sources`` as it was generated; a manifest from before has none
    sha256: Mapping[str, str] = field(default_factory=dict)


def manifest_path(tree: Path, target: str) -> Path:
    """Where the manifest of a target lies in a kernel tree."""
    return tree / "tools/testing/selftests" / target / NAME


def _cases(rendered: Rendered) -> list[dict[str, Any]]:
    program = rendered.program
    return [
        {
            "name": f"{f.name}.{v.name}.{c.name}",
            "fixture": f.name,
            "variant": v.name,
            "test": c.name,
            "about": c.about,
            "timeout": c.timeout or program.timeout,
            **({"skip": c.skip[v.name]} if v.name in c.skip else {}),
        }
        for f in program.fixtures
        for v in f.variants
        for c in f.cases
    ]


def sha256(content: bytes) -> str:
    """What a manifest records of a generated file."""
    return hashlib.sha256(content).hexdigest()


def dump_manifest(
    target: str, version: str, programs: Sequence[Rendered], sources: Mapping[str, str]
) -> str:
    """The manifest as JSON text, the same for the same data.

    ``sources`` has the text of every generated file by its name.
    """
    data = {
        "format": FORMAT,
        "generator": __version__,
        "kernel": version,
        "target": target,
        "programs": [
            {
                "name": r.program.name,
                "feature": r.feature.name,
                "target": target,
                "sources": [f"{r.program.name}.c", *r.headers],
                "libs": list(r.program.libs),
                **({"bits": r.program.bits} if r.program.bits else {}),
                "cases": _cases(r),
            }
            for r in sorted(programs, key=lambda r: r.program.name)
        ],
        "sha256": {name: sha256(sources[name].encode()) for name in sorted(sources)},
    }
    return json.dumps(data, indent=1, ensure_ascii=True) + "\n"


def load_manifest(path: Path) -> Manifest:
    """Read a manifest.  Raises ConfigError naming the file and what is wrong with it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ConfigError(
                f"{path}: format {data['format']}, expected {FORMAT}; generate the tests again"
            )
        return Manifest(
            kernel=str(data["kernel"]),
            target=str(data["target"]),
            generator=str(data["generator"]),
            programs=tuple(_load_program(p) for p in data["programs"]),
            sha256={str(name): str(of) for name, of in data.get("sha256", {}).items()},
        )
    except FileNotFoundError as err:
        raise ConfigError(f"{path}: no generated tests; run `ktest-ntcopy generate` first") from err
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise ConfigError(f"{path}: not a manifest ({err}); generate the tests again") from err


def _load_program(data: dict[str, Any]) -> ManifestProgram:
    return ManifestProgram(
        name=str(data["name"]),
        feature=str(data["feature"]),
        target=str(data["target"]),
        sources=tuple(str(s) for s in data["sources"]),
        libs=tuple(str(s) for s in data["libs"]),
        bits=int(data.get("bits", 0)),
        cases=tuple(
            ManifestCase(
                fixture=str(c["fixture"]),
                variant=str(c["variant"]),
                test=str(c["test"]),
                about=str(c["about"]),
                timeout=int(c["timeout"]),
                skip=str(c.get("skip", "")),
            )
            for c in data["cases"]
        ),
    )
