# SPDX-License-Identifier: GPL-2.0-only
"""The shape of a feature file, and its loader.

A feature file is the only place that states a flag's value, the traces the
feature leaves in vmlinux, the options it needs and the tests it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ktest_ntcopy.features.expect import Expectation as Expectation  # part of the model
from ktest_ntcopy.features.expect import expectations
from ktest_ntcopy.features.kunit import KunitSuite, kunit_suites
from ktest_ntcopy.features.needs import Need, needs, transports
from ktest_ntcopy.features.table import Table, read_table

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
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One TEST_F."""

    name: str
    about: str
    timeout: int = 0  #: seconds, 0 = the program's
    skip: Mapping[str, str] = field(default_factory=dict)  #: variant -> why it does not apply
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """One FIXTURE: every variant runs every case."""

    name: str
    variants: tuple[Variant, ...]
    cases: tuple[Case, ...]
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Program:
    """One C test program."""

    name: str
    target: str  #: kselftest TARGET, e.g. "net"
    template: str  #: below tools-testing-net/
    timeout: int  #: seconds per case at reference speed
    fixtures: tuple[Fixture, ...]
    libs: tuple[str, ...] = ()  #: linker flags
    bits: int = 0  #: 32 for a 32-bit program on a 64-bit kernel, 0 for the kernel's own size
    needs: tuple[Need, ...] = ()

    def points(self) -> tuple[str, ...]:
        """Every ``fixture.variant.case``, in the order the harness runs them."""
        return tuple(
            f"{f.name}.{v.name}.{c.name}"
            for f in self.fixtures
            for v in f.variants
            for c in f.cases
        )

    def needed(self, point: str) -> tuple[Need, ...]:
        """All that one ``fixture.variant.case`` needs, the widest first."""
        names = point.split(".")
        fixture = next(f for f in self.fixtures if f.name == names[0])
        variant = next(v for v in fixture.variants if v.name == names[1])
        case = next(c for c in fixture.cases if c.name == names[2])
        sums = (*self.needs, *fixture.needs, *variant.needs, *case.needs)
        return tuple(dict.fromkeys(sums))


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
    kunit: tuple[KunitSuite, ...] = ()
    published: Mapping[str, Any] = field(default_factory=dict)  #: figures of the posting

    def expected(self, version: str, arch: str) -> tuple[Expectation, ...]:
        """Expectations that hold for this kernel version and architecture."""
        return tuple(e for e in self.expectations if not e.outside(version, arch))


# Names that become C identifiers, parts of node ids and file names.
_WORD = "[A-Za-z][A-Za-z0-9_]*"
_VERSION = "[0-9]+[.][0-9]+"


def _variant(name: str, fields: Any, table: Table) -> Variant:
    if not isinstance(fields, dict):
        table.fail(f"'{name}' is not a table")
    entry = table.table(name)
    return Variant(
        name=name,
        needs=(*transports().get(str(fields.get("via", "")).removeprefix("&"), ()), *needs(entry)),
        fields={str(k): str(v) for k, v in fields.items() if k != "needs"},
    )


def _case(table: Table, variants: tuple[str, ...]) -> Case:
    skip = {}
    skipped = table.table("skip", {})
    for variant, why in skipped.items(_WORD):
        if variant not in variants:
            skipped.fail(f"there is no variant '{variant}'")
        skip[variant] = str(why)
    case = Case(
        name=table.name("name", _WORD),
        about=table.text("about"),
        timeout=table.take("timeout", int, 0),
        skip=skip,
        needs=needs(table),
    )
    if case.timeout < 0:
        table.fail("'timeout' is negative")
    table.end()
    return case


def _fixture(table: Table) -> Fixture:
    listed = table.table("variants")
    variants = tuple(_variant(n, f, listed) for n, f in listed.items(_WORD))
    names = tuple(v.name for v in variants)
    fixture = Fixture(
        name=table.name("name", _WORD),
        variants=variants,
        cases=tuple(_case(t, names) for t in table.tables("cases")),
        needs=needs(table),
    )
    if not fixture.variants or not fixture.cases:
        table.fail("a fixture needs variants and cases")
    table.unique(tuple(c.name for c in fixture.cases), "cases")
    table.end()
    return fixture


def _programs(table: Table) -> tuple[Program, ...]:
    """The program, and the same once more for 32 bits if the data says so."""
    narrow = table.table("also_32bit") if table.has("also_32bit") else None
    program = _program(table)
    if not narrow:
        return (program,)
    also = needs(narrow)
    narrow.end()
    return (
        program,
        replace(
            program,
            name=f"{program.name}_32",
            bits=32,
            needs=(*program.needs, *also, Need("bits", value="32")),
        ),
    )


def _program(table: Table) -> Program:
    program = Program(
        name=table.name("name", _WORD),
        target=table.name("target", "[A-Za-z0-9_/-]+"),
        template=table.text("template"),
        timeout=table.take("timeout", int),
        libs=table.texts("libs"),
        needs=needs(table),
        fixtures=tuple(_fixture(t) for t in table.tables("fixture")),
    )
    if program.timeout <= 0:
        table.fail("'timeout' is not positive")
    if not program.fixtures:
        table.fail("a program needs fixtures")
    table.unique(tuple(f.name for f in program.fixtures), "fixtures")
    table.end()
    return program


def _option(table: Table, *, selftest: bool) -> KconfigOption:
    option = KconfigOption(
        name=table.name("name", "CONFIG_[A-Z0-9a-z_]+"),
        value=table.text("value", "y"),
        why=table.text("why"),
        selftest=table.take("selftest", bool, selftest),
    )
    table.end()
    return option


def _define(table: Table) -> Define:
    define = Define(
        name=table.name("name", _WORD),
        value=table.take("value", int),
        comment=table.text("comment", ""),
    )
    table.end()
    return define


def _support(version: str, data: Any, table: Table, file: str) -> Support:
    if not isinstance(data, dict):
        table.fail(f"'{version}' is not a table")
    entry = Table(data, file, f"kernel.{version}")
    support = Support(
        version=version,
        state=entry.choice("state", ("series", "upstream")),
        series=entry.text("series", ""),
    )
    if (support.state == "series") != bool(support.series):
        entry.fail("'series' names the folder of our patches, and nothing else does")
    entry.end()
    return support


def load_feature(path: Path) -> Feature:
    """Read one feature file.  Raises ConfigError naming the file, the place and the fault."""
    table, text = read_table(path)
    kernels = table.table("kernel")
    feature = Feature(
        name=table.name("name", _WORD),
        title=table.text("title"),
        summary=table.text("summary"),
        seed=table.text("seed"),
        path=path,
        support={v: _support(v, d, kernels, str(path)) for v, d in kernels.items(_VERSION)},
        defines=tuple(_define(t) for t in table.tables("define")),
        expectations=expectations(table, text),
        kconfig=tuple(_option(t, selftest=True) for t in table.tables("kconfig")),
        programs=tuple(p for t in table.tables("program") for p in _programs(t)),
        kunit=kunit_suites(table),
        published=table.table("published", {}).raw(),
    )
    table.unique(tuple(p.name for p in feature.programs), "programs")
    table.unique(tuple(k.name for k in feature.kconfig), "options")
    for suite in feature.kunit:
        if suite.option not in {k.name for k in feature.kconfig}:
            table.fail(f"kunit {suite.name}: {suite.option} is not among the kconfig options")
    table.end()
    return feature


@cache
def load_features() -> tuple[Feature, ...]:
    """All features, by file name."""
    return tuple(load_feature(p) for p in sorted(_HERE.glob("*.toml")))


def _options(name: str) -> tuple[KconfigOption, ...]:
    table, _ = read_table(_HERE / "kernels" / name)
    found = tuple(_option(t, selftest=False) for t in table.tables("kconfig"))
    table.unique(tuple(o.name for o in found), "options")
    table.end()
    return found


@cache
def guest_kconfig() -> tuple[KconfigOption, ...]:
    """Options without which no guest boots or reports, from ``guest.toml``."""
    return _options("guest.toml")


@cache
def debug_kconfig() -> tuple[KconfigOption, ...]:
    """What a debug kernel has on top of :func:`kconfig`, from ``debug.toml``, sorted."""
    return tuple(sorted(_options("debug.toml"), key=lambda o: o.name))


def kconfig() -> tuple[KconfigOption, ...]:
    """All options of guest and features, sorted, each once; first statement wins."""
    merged: dict[str, KconfigOption] = {}
    for option in (*guest_kconfig(), *(o for f in load_features() for o in f.kconfig)):
        merged.setdefault(option.name, option)
    return tuple(sorted(merged.values(), key=lambda o: o.name))
