# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a feature file, and its loader.

A feature file is the only place that states a flag's value, the traces the
feature leaves in vmlinux, the options it needs and the tests it has.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ktest_ntcopy.errors import ConfigError

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Define:
    """A constant that programs may have to define for themselves."""

    name: str
    value: int
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class Support:
    """How one kernel version comes to have the feature."""

    version: str  #: "6.12"
    state: str  #: "series" (ours), "upstream" (already there)
    series: str = ""  #: folder below linux-patches/<version>


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Something the feature must leave in vmlinux.

    ``kind`` is "symbol", "member" (``name`` is "struct.member"), "enumerator"
    or "config"; ``versions`` empty means every supported version.
    """

    kind: str
    name: str
    why: str
    versions: tuple[str, ...] = ()
    arches: tuple[str, ...] = ()
    marker: bool = False  #: this trace alone tells that a kernel has the feature


@dataclass(frozen=True, kw_only=True)
class KconfigOption:
    """An option the tests need; becomes a line of Kconfig.fragment and of net/config."""

    name: str  #: with CONFIG_
    value: str = "y"
    why: str
    selftest: bool = True  #: also listed in the selftest directory's config


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One FIXTURE_VARIANT_ADD: designated initialisers as C expressions."""

    name: str
    fields: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One TEST_F."""

    name: str
    about: str
    timeout: int = 0  #: seconds, 0 = the program's
    skip: Mapping[str, str] = field(default_factory=dict)  #: variant -> why it does not apply


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """One FIXTURE: every variant runs every case."""

    name: str
    variants: tuple[Variant, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True, kw_only=True)
class Program:
    """One C test program."""

    name: str
    target: str  #: kselftest TARGET, e.g. "net"
    template: str  #: below tools-testing-net/
    timeout: int  #: seconds per case at reference speed
    fixtures: tuple[Fixture, ...]
    libs: tuple[str, ...] = ()  #: linker flags

    def points(self) -> tuple[str, ...]:
        """Every ``fixture.variant.case``, in the order the harness runs them."""
        return tuple(
            f"{f.name}.{v.name}.{c.name}"
            for f in self.fixtures
            for v in f.variants
            for c in f.cases
        )


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One netdev change, whole."""

    name: str
    title: str
    summary: str
    seed: str  #: subject of the posting it goes back to
    path: Path
    support: Mapping[str, Support]
    defines: tuple[Define, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    kconfig: tuple[KconfigOption, ...] = ()
    programs: tuple[Program, ...] = ()
    published: Mapping[str, Any] = field(default_factory=dict)  #: figures of the posting

    def expected(self, version: str, arch: str) -> tuple[Expectation, ...]:
        """Expectations that hold for this kernel version and architecture."""
        return tuple(
            e
            for e in self.expectations
            if (not e.versions or version in e.versions) and (not e.arches or arch in e.arches)
        )


def _fixture(data: Mapping[str, Any]) -> Fixture:
    return Fixture(
        name=data["name"],
        variants=tuple(
            Variant(name=name, fields={k: str(v) for k, v in fields.items()})
            for name, fields in data["variants"].items()
        ),
        cases=tuple(Case(**case) for case in data["cases"]),
    )


def _program(data: Mapping[str, Any]) -> Program:
    rest = {k: v for k, v in data.items() if k not in ("fixture", "libs")}
    return Program(
        **rest,
        libs=tuple(data.get("libs", ())),
        fixtures=tuple(_fixture(f) for f in data["fixture"]),
    )


def _expectation(data: Mapping[str, Any]) -> Expectation:
    lists = {k: tuple(data[k]) for k in ("versions", "arches") if k in data}
    return Expectation(**{**data, **lists})


def load_feature(path: Path) -> Feature:
    """Read one feature file.  Raises ConfigError naming the file and the fault."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return Feature(
            name=data["name"],
            title=data["title"],
            summary=data["summary"],
            seed=data["seed"],
            path=path,
            support={v: Support(version=v, **s) for v, s in data["kernel"].items()},
            defines=tuple(Define(**d) for d in data.get("define", ())),
            expectations=tuple(_expectation(e) for e in data.get("expect", ())),
            kconfig=tuple(KconfigOption(**k) for k in data.get("kconfig", ())),
            programs=tuple(_program(p) for p in data.get("program", ())),
            published=data.get("published", {}),
        )
    except KeyError as err:
        raise ConfigError(f"{path}: key {err} is missing") from err
    except (TypeError, tomllib.TOMLDecodeError, OSError) as err:
        raise ConfigError(f"{path}: {err}") from err


@cache
def load_features() -> tuple[Feature, ...]:
    """All features, by file name."""
    return tuple(load_feature(p) for p in sorted(_HERE.glob("*.toml")) if p.stem != "guest")


@cache
def guest_kconfig() -> tuple[KconfigOption, ...]:
    """Options without which no guest boots or reports, from ``guest.toml``."""
    data = tomllib.loads((_HERE / "guest.toml").read_text(encoding="utf-8"))
    return tuple(KconfigOption(**{"selftest": False, **k}) for k in data["kconfig"])


def kconfig() -> tuple[KconfigOption, ...]:
    """All options of guest and features, sorted, each once; first statement wins."""
    merged: dict[str, KconfigOption] = {}
    for option in (*guest_kconfig(), *(o for f in load_features() for o in f.kconfig)):
        merged.setdefault(option.name, option)
    return tuple(sorted(merged.values(), key=lambda o: o.name))
