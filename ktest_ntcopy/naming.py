# SPDX-License-Identifier: GPL-2.0-only
"""From a node id to the name a case has in reports, without collecting anything.

xdist's controller knows node ids only; reports need target, program and case.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.kunit import KunitSuite
from ktest_ntcopy.features.model import Expectation, Feature, Program, load_feature
from ktest_ntcopy.results.journal import CaseId

FEATURES = Path(__file__).parent / "features"
#: Node ids of the package's own features start so wherever the package lies and
#: whatever pytest takes for the root directory: reports of two hosts compare.
PREFIX = "ktest_ntcopy/features"
_VMLINUX = "vmlinux."
#: Target of all KUnit results; the program is the suite.
KUNIT = "kunit"
#: The case that answers for what belongs to no case of a suite: no C function is named so.
WHOLE = "suite-as-a-whole"


def case_name(feature: Feature, program: Program, point: str) -> str:
    """Name of a case's item: bare for the program that is named as its feature."""
    return point if program.name == feature.name else f"{program.name}.{point}"


def expectation_name(expectation: Expectation) -> str:
    """Name of the item of a trace in vmlinux."""
    return f"{_VMLINUX}{expectation.id}"


def kunit_name(suite: KunitSuite, case: str) -> str:
    """Name of the item of a KUnit case."""
    return f"{KUNIT}.{suite.name}.{case}"


def kunit_cases(suite: KunitSuite) -> tuple[str, ...]:
    """Cases of a suite as they are collected; last the one for the suite itself."""
    return (*(c.name for c in suite.cases), WHOLE)


def python_case(nodeid: str) -> CaseId:
    """Target, program and case of a test written in Python."""
    path, _, rest = nodeid.partition("::")
    # "::" inside brackets belongs to the parameters.
    head, bracket, parameters = rest.partition("[")
    *classes, case = head.split("::")
    module = path.removesuffix(".py").strip("./").replace("/", ".")
    name = case + bracket + parameters
    return "pytest", ".".join(filter(None, (module, *classes))) or "pytest", name or "collection"


class Naming:
    """Names of one run's cases; ``root`` is what node ids are relative to."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cases = cache(self._load)
        self._selftests = cache(self._load_selftests)
        self._kunit = cache(self._load_kunit)

    def is_ours(self, nodeid: str) -> bool:
        """True for an item collected from a feature file."""
        return ".toml::" in nodeid

    def needs_machine(self, nodeid: str) -> bool:
        """True for a case that runs in the guest."""
        return self.is_ours(nodeid) and f"::{_VMLINUX}" not in nodeid

    def needs_programs(self, nodeid: str) -> bool:
        """True for a case that runs a compiled test program."""
        return self.needs_machine(nodeid) and f"::{KUNIT}." not in nodeid

    def case(self, nodeid: str) -> CaseId:
        """Target, program and case."""
        path, _, name = nodeid.partition("::")
        if not path.endswith(".toml"):
            return python_case(nodeid)
        stem = Path(path).stem
        return self._cases(path).get(name) or ("kselftest", stem, name or "collection")

    def selftest(self, nodeid: str) -> tuple[Feature, Program, str] | None:
        """Feature, program and fixture.variant.case of a C test; None for any other."""
        path, _, name = nodeid.partition("::")
        return self._selftests(path).get(name) if path.endswith(".toml") else None

    def kunit(self, nodeid: str) -> tuple[Feature, KunitSuite] | None:
        """Feature and suite of a KUnit case; None for any other test."""
        path, _, name = nodeid.partition("::")
        return self._kunit(path).get(name) if path.endswith(".toml") else None

    def _load_kunit(self, path: str) -> dict[str, tuple[Feature, KunitSuite]]:
        feature = self._feature(path)
        if feature is None:
            return {}
        return {
            kunit_name(suite, case): (feature, suite)
            for suite in feature.kunit
            for case in kunit_cases(suite)
        }

    def _load_selftests(self, path: str) -> dict[str, tuple[Feature, Program, str]]:
        feature = self._feature(path)
        if feature is None:
            return {}
        return {
            case_name(feature, program, point): (feature, program, point)
            for program in feature.programs
            for point in program.points()
        }

    def _feature(self, path: str) -> Feature | None:
        folder, _, file = path.rpartition("/")
        try:
            return load_feature((FEATURES if folder == PREFIX else self._root / folder) / file)
        except ConfigError:
            return None

    def _load(self, path: str) -> dict[str, CaseId]:
        feature = self._feature(path)
        if feature is None:
            return {}
        found: dict[str, CaseId] = {
            expectation_name(e): ("vmlinux", feature.name, e.id) for e in feature.expectations
        }
        for program in feature.programs:
            for point in program.points():
                name = case_name(feature, program, point)
                found[name] = (f"kselftest.{program.target}", program.name, point)
        for suite in feature.kunit:
            for case in kunit_cases(suite):
                found[kunit_name(suite, case)] = (KUNIT, suite.name, case)
        return found
