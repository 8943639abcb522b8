# SPDX-License-Identifier: GPL-2.0-only
"""KUnit suites in feature files: what is shipped is in a series, what is not sound is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.kunit import TIMEOUT
from ktest_ntcopy.features.model import Feature, load_feature, load_features
from ktest_ntcopy.naming import WHOLE, Naming
from ktest_ntcopy.paths import data_root
from tests.unit.demo_feature import with_kunit

DEMO = with_kunit("demo-suite", {"one": "a", "two": "b"}, 'needs = ["feature"]\n')


def written(folder: Path, text: str) -> Path:
    path = folder / "demo.toml"
    path.write_text(text)
    return path


def test_all_of_a_suite(tmp_path: Path) -> None:
    (suite,) = load_feature(written(tmp_path, DEMO)).kunit
    assert (suite.name, suite.option, suite.timeout) == ("demo-suite", "CONFIG_DEMO_TEST", TIMEOUT)
    assert [c.name for c in suite.cases] == ["one", "two"]
    assert [str(n) for n in suite.needed()] == ["feature", "CONFIG_DEMO_TEST"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('suite = "demo-suite"', "", "kunit[1]: key 'suite' is missing"),
        ('suite = "demo-suite"', 'suite = "demo*"', "kunit[1]: 'suite' is 'demo*'"),
        ('suite = "demo-suite"', 'suite = "a.b"', "kunit[1]: 'suite' is 'a.b'"),
        ('option = "CONFIG_DEMO_TEST"', 'option = "DEMO"', "kunit[1]: 'option' is 'DEMO'"),
        (
            'option = "CONFIG_DEMO_TEST"',
            'option = "CONFIG_OTHER"',
            "kunit demo-suite: CONFIG_OTHER is not among the kconfig options",
        ),
        ("needs =", "timeout = 0\nneeds =", "kunit[1]: 'timeout' is not positive"),
        ("needs =", "timout = 3\nneeds =", "unknown key 'timout', did you mean 'timeout'?"),
        ('["feature"]', '["future"]', "kunit[1]: 'needs': 'future' is no need"),
        ('name = "two"', 'name = "one"', "kunit[1]: two cases are named 'one'"),
        ('name = "two"', 'name = "t-w-o"', "kunit[1].cases[2]: 'name' is 't-w-o'"),
    ],
)
def test_refused(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert DEMO.count(old) == 1
    with pytest.raises(ConfigError) as caught:
        load_feature(written(tmp_path, DEMO.replace(old, new)))
    assert text in str(caught.value)


def test_suite_without_cases(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kunit\[1\]: a suite needs cases"):
        load_feature(written(tmp_path, DEMO.partition("[[kunit.cases]]")[0]))


def test_names_in_reports(tmp_path: Path) -> None:
    written(tmp_path, DEMO)
    naming = Naming(tmp_path)
    assert naming.case("demo.toml::kunit.demo-suite.two") == ("kunit", "demo-suite", "two")
    whole = f"demo.toml::kunit.demo-suite.{WHOLE}"
    assert naming.case(whole) == ("kunit", "demo-suite", WHOLE)
    assert naming.needs_machine(whole)
    assert not naming.needs_programs(whole)
    found = naming.kunit(whole)
    assert found is not None
    assert (found[0].name, found[1].name) == ("demo", "demo-suite")
    assert naming.kunit("demo.toml::kunit.demo-suite.three") is None
    assert naming.kunit("test_it.py::kunit.demo-suite.two") is None


@pytest.mark.parametrize("feature", load_features(), ids=lambda f: f.name)
def test_shipped_suites_are_those_of_the_series(feature: Feature) -> None:
    """Both ways: a case that either side lacks would fail on every kernel."""
    for suite in feature.kunit:
        for version, support in feature.support.items():
            series = suite.series or support.series
            if not series:
                continue
            folder = data_root() / "linux-patches" / version / series
            added = [
                line[1:]
                for patch in sorted(folder.glob("*.patch"))
                for line in patch.read_text(encoding="utf-8").splitlines()
                if line.startswith("+")
            ]
            text = "\n".join(added)
            assert re.search(rf'\.name\s*=\s*"{suite.name}"', text)
            cases = re.findall(r"\bKUNIT_CASE(?:_PARAM|_SLOW)?\((\w+)", text)
            assert cases == [c.name for c in suite.cases]
