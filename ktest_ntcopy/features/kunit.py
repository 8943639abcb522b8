# SPDX-License-Identifier: GPL-2.0-only
"""KUnit suites of a feature: the ``[[kunit]]`` tables of a feature file."""

from __future__ import annotations

from dataclasses import dataclass

from ktest_ntcopy.features.needs import Need, needs
from ktest_ntcopy.features.table import Table

#: Names are part of node ids, of JUnit's classname, and of a glob on the command line.
_SUITE = "[A-Za-z0-9_][A-Za-z0-9_-]*"
_FUNCTION = "[A-Za-z_][A-Za-z0-9_]*"

#: Seconds that a case may be silent if the suite does not say otherwise.
TIMEOUT = 15


@dataclass(frozen=True, kw_only=True)
class KunitCase:
    """One KUNIT_CASE; one that takes parameters is one case, too."""

    name: str  #: of the C function
    about: str


@dataclass(frozen=True, kw_only=True)
class KunitSuite:
    """One kunit_suite that is built into the kernel."""

    name: str
    why: str
    option: str  #: with CONFIG_; the kernel has the suite if it is set
    cases: tuple[KunitCase, ...]
    timeout: int = TIMEOUT  #: seconds without a console line, at reference speed, that are a hang
    series: str = ""  #: folder below linux-patches/<version> that adds it; empty: the feature's
    needs: tuple[Need, ...] = ()  #: besides the option

    def needed(self) -> tuple[Need, ...]:
        """All that the suite needs; its option last."""
        return (*self.needs, Need("config", self.option))


def kunit_suites(table: Table) -> tuple[KunitSuite, ...]:
    """All suites of a feature file.  Raises ConfigError."""
    suites = tuple(_suite(t) for t in table.tables("kunit"))
    table.unique(tuple(s.name for s in suites), "KUnit suites")
    return suites


def _suite(table: Table) -> KunitSuite:
    suite = KunitSuite(
        name=table.name("suite", _SUITE),
        why=table.text("why"),
        option=table.name("option", "CONFIG_[A-Za-z0-9_]+"),
        cases=tuple(_case(t) for t in table.tables("cases")),
        timeout=table.take("timeout", int, TIMEOUT),
        series=table.text("series", ""),
        needs=needs(table),
    )
    if suite.timeout <= 0:
        table.fail("'timeout' is not positive")
    if not suite.cases:
        table.fail("a suite needs cases")
    table.unique(tuple(c.name for c in suite.cases), "cases")
    table.end()
    return suite


def _case(table: Table) -> KunitCase:
    case = KunitCase(name=table.name("name", _FUNCTION), about=table.text("about"))
    table.end()
    return case
