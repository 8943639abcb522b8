# SPDX-License-Identifier: GPL-2.0-only
"""Feature files: what is shipped is sound, what is not is refused in one line."""

from __future__ import annotations

import contextlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import (
    debug_kconfig,
    guest_kconfig,
    kconfig,
    load_feature,
    load_features,
)
from ktest_ntcopy.paths import data_root
from tests.unit.demo_feature import HEAD
from tests.unit.hostile_files import refused

GOOD = (
    HEAD
    + """\
[[define]]
name = "MSG_DEMO"
value = 0x10
[[expect]]
kind = "symbol"
name = "demo_symbol"
why = "because"
marker = true
[[expect]]
kind = "member"
name = "outer.inner"
why = "because"
versions = ">=6.12, <7.0"
arches = ["x86_64"]
[[kconfig]]
name = "CONFIG_DEMO"
why = "because"
[[program]]
name = "demo"
target = "net"
template = "net/demo.c.j2"
timeout = 30
[[program.fixture]]
name = "stream"
[program.fixture.variants]
tcp4 = { via = "x", number = 3 }
tcp6 = {}
[[program.fixture.cases]]
name = "payload"
about = "It arrives"
[[program.fixture.cases]]
name = "fault"
about = "It fails"
timeout = 60
skip = { tcp6 = "not there" }
[published]
gain = 1.4
"""
)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "demo.toml"
    path.write_text(text)
    return path


def refusal(path: Path) -> str:
    text = refused(load_feature, path)
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


def test_all_of_a_feature(tmp_path: Path) -> None:
    feature = load_feature(written(tmp_path, GOOD))
    assert feature.name == "demo"
    assert feature.support["6.12"].series == "20-demo"
    assert feature.defines[0].value == 16
    assert [e.name for e in feature.expected("6.12", "x86_64")] == ["demo_symbol", "outer.inner"]
    assert [e.name for e in feature.expected("6.12", "aarch64")] == ["demo_symbol"]
    assert [e.name for e in feature.expected("7.3", "x86_64")] == ["demo_symbol"]
    program = feature.programs[0]
    assert program.points() == (
        "stream.tcp4.payload",
        "stream.tcp4.fault",
        "stream.tcp6.payload",
        "stream.tcp6.fault",
    )
    assert program.fixtures[0].variants[0].fields == {"via": "x", "number": "3"}
    assert program.fixtures[0].cases[1].skip == {"tcp6": "not there"}
    assert feature.kconfig[0].value == "y"
    assert feature.published == {"gain": 1.4}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('name = "demo"\ntitle', "title", "key 'name' is missing"),
        ('title = "A title"', "title = 3", "'title' is not a string"),
        ('title = "A title"', 'title = " "', "'title' is empty"),
        ('[kernel."6.12"]\nstate', '[kernel."six"]\nstate', "kernel: key 'six'"),
        ('state = "series"', 'state = "serie"', "kernel.6.12: 'state' is 'serie', expected"),
        ('series = "20-demo"', "", "kernel.6.12: 'series' names the folder"),
        ("value = 0x10", "value = true", "define[1]: 'value' is not an integer"),
        ('kind = "symbol"', 'kind = "symbols"', "expect[1]: 'kind' is 'symbols', expected symbol"),
        ('why = "because"\nmarker', "marker", "expect[1]: key 'why' is missing"),
        ("marker = true", "marker = 1", "expect[1]: 'marker' is not true or false"),
        ("marker = true", "marker = true\nshared = true", "exclude each other"),
        ("marker = true", "maker = true", "expect[1]: unknown key 'maker', did you mean 'marker'?"),
        ('name = "outer.inner"', 'name = "outer"', "'outer'; a member's is struct.member"),
        ('">=6.12, <7.0"', '["6.12"]', "expect[2]: 'versions' is not a string"),
        ('">=6.12, <7.0"', '"6.12"', "'versions': '6.12' is no comparison such as '>=6.12'"),
        ('">=6.12, <7.0"', '">=6.12, <6.12"', "'versions': no version is >=6.12, <6.12"),
        ('arches = ["x86_64"]', "arches = [1]", "expect[2]: 'arches' is not a list of strings"),
        ('name = "CONFIG_DEMO"', 'name = "DEMO"', "kconfig[1]: 'name' is 'DEMO'"),
        ("timeout = 30", "timeout = 0", "program[1]: 'timeout' is not positive"),
        ("timeout = 60", "timeout = -1", "cases[2]: 'timeout' is negative"),
        ("tcp6 = {}", "tcp6 = 3", "program[1].fixture[1].variants: 'tcp6' is not a table"),
        ("tcp6 = {}", '"tcp[6]" = {}', "does not look like"),
        ('name = "payload"', 'name = "pay@load"', "fixture[1].cases[1]: 'name' is 'pay@load'"),
        ('name = "payload"', 'name = "fault"', "two cases are named 'fault'"),
        ("skip = { tcp6", "skip = { tcp7", "skip: there is no variant 'tcp7'"),
        ("[published]", "[publisht]", "unknown key 'publisht', did you mean 'published'?"),
        ("[[define]]", "[define]", "'define' is not a list"),
        ("[[program]]", "[[program", "Expected"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert GOOD.count(old) >= 1
    assert text in refusal(written(tmp_path, GOOD.replace(old, new, 1)))


def test_two_of_a_name(tmp_path: Path) -> None:
    again = '[[kconfig]]\nname = "CONFIG_DEMO"\nwhy = "again"\n[[program]]'
    text = refusal(written(tmp_path, GOOD.replace("[[program]]", again)))
    assert text == "two options are named 'CONFIG_DEMO'"


def test_unreadable(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "demo.toml")
    (tmp_path / "demo.toml").write_bytes(b'name = "\xff"')
    assert "utf-8" in refusal(tmp_path / "demo.toml")


def _paths(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Keys that lead to each value of nested tables and lists."""
    if isinstance(data, dict):
        pairs = list(data.items())
    else:
        pairs = list(enumerate(data)) if isinstance(data, list) else []
    return ([at] if at else []) + [p for k, v in pairs for p in _paths(v, (*at, k))]


@settings(max_examples=300)
@given(st.data())
def test_any_value_anywhere_is_taken_or_refused(data: st.DataObject) -> None:
    tree = tomllib.loads(GOOD)
    *way, last = data.draw(st.sampled_from(_paths(tree)))
    place: Any = tree
    for key in way:
        place = place[key]
    place[last] = data.draw(
        st.one_of(
            st.none(),
            st.integers(),
            st.booleans(),
            st.text(),
            st.just([]),
            st.just({}),
            st.just([{}]),
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tomllib.loads", lambda _: tree)
        with contextlib.suppress(ConfigError):
            load_feature(Path(__file__))


# What is shipped


def test_shipped_features_are_sound() -> None:
    features = load_features()
    assert "msg_ntcopy" in [f.name for f in features]
    assert len({f.name for f in features}) == len(features)
    for feature in features:
        assert feature.path.stem == feature.name
        assert any(e.marker for e in feature.expectations), "no way to tell if it is there"
        for program in feature.programs:
            assert (data_root() / "tools-testing-net" / program.template).is_file()
            assert len(set(program.points())) == len(program.points())
            assert not [p for p in program.points() if re.search(r"[\[\]@:\s]", p)]
        for support in feature.support.values():
            if support.series:
                folder = data_root() / "linux-patches" / support.version / support.series
                assert folder.is_dir(), folder


def test_every_option_is_stated_once_in_the_sum() -> None:
    names = [o.name for o in kconfig()]
    assert names == sorted(set(names))
    assert {o.name for o in guest_kconfig()} <= set(names)
    assert all(o.why and o.why != "WHY" for o in kconfig())


def test_a_debug_kernel_only_adds_options() -> None:
    names = [o.name for o in debug_kconfig()]
    assert names == sorted(set(names))
    # A fragment that comes later wins: what it repeats it could contradict.
    assert not set(names) & {o.name for o in kconfig()}
    assert all(o.why and not o.selftest for o in debug_kconfig())
