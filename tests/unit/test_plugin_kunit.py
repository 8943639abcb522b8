# SPDX-License-Identifier: GPL-2.0-only
"""KUnit cases as pytest items, from the command line to the reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ktest_ntcopy.naming import WHOLE
from ktest_ntcopy.results.journal import read_journal
from ktest_ntcopy.results.model import Status
from tests.unit import fake_kernel as fake
from tests.unit import kunit_logs as log
from tests.unit.demo_feature import with_kunit
from tests.unit.plugin_lab import Done, Lab
from tests.unit.plugin_lab import lab as lab  # a fixture
from tests.unit.plugin_lab import way as way  # a fixture

pytest_plugins = ["pytester"]

DEMO = with_kunit("demo", {"one": "a", "two": "b", "three": "c"})
# Not imported: pytest rewrites the assertions of that module when a run loads it as a plugin.
PANIC = "Kernel panic - not syncing: Attempted to be silly"
ITEMS = [f"demo.toml::kunit.demo.{n}" for n in ("one", "two", "three", WHOLE)]
ENABLED = fake.BOOTABLE | {"CONFIG_KUNIT": "y", "CONFIG_DEMO_TEST": "y"}
START = [*log.BEFORE, *log.head(), *log.begin("demo", 3), *log.ok(1, "one")]
GOOD = [*START, *log.ok(2, "two"), *log.ok(3, "three"), *log.end("demo"), *log.AFTER]


@pytest.fixture
def demo(lab: Lab) -> Lab:
    (lab.folder / "demo.toml").write_text(DEMO)
    configure(lab, ENABLED)
    return lab


def configure(lab: Lab, config: Mapping[str, str] | None) -> None:
    lab.kernel.write_bytes(fake.elf(symbols=["x"], btf_data=fake.btf({"s": ["m"]}), config=config))


def script(lab: Lab, kunit: Mapping[str, Sequence[str]], *, boot: str = "") -> None:
    said: dict[str, Any] = {"cases": {}, "boot": boot, "kunit": kunit}
    (lab.folder / "script").write_text(json.dumps(said))


def boots(done: Done) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in done.log()]


def test_collected_after_the_feature(demo: Lab) -> None:
    assert demo.ids("demo.toml") == ITEMS
    assert demo.ids("demo.toml", "-m", "kunit") == ITEMS
    assert demo.ids("demo.toml", "-m", "kunit and demo", "-k", "two") == ITEMS[1:2]
    assert demo.ids("demo.toml", "-m", "selftest or vmlinux") == []


def test_one_boot_and_no_test_programs(demo: Lab, way: tuple[str, ...]) -> None:
    script(demo, {"demo": GOOD})
    done = demo.run("demo.toml", *way)
    assert done.code == 0, done.out + done.err
    assert boots(done) == ["kunit demo", "close"]
    assert done.journal() == dict.fromkeys(["one", "two", "three", WHOLE], Status.PASS)
    run = read_journal(demo.folder / "out.ndjson")
    assert [tuple(p) for p in run.header.planned] == [
        ("kunit", "demo", n) for n in ("one", "two", "three", WHOLE)
    ]


def test_reports(demo: Lab, way: tuple[str, ...]) -> None:
    lines = [*log.failed(2, "two"), *log.skipped(3, "three", "no such device")]
    script(demo, {"demo": [*START, *lines, *log.end("demo", well=False), *log.AFTER]})
    done = demo.run("demo.toml", "-rs", *way)
    assert done.code == 1, done.out + done.err
    assert "net/core/demo.c:12: Expected got == want, but got == 1 (0x1)" in done.out
    assert "# two: EXPECTATION FAILED at net/core/demo.c:12" in done.out
    assert f"pytest --kernel={demo.kernel} {ITEMS[1]}" in done.out.splitlines()
    assert "no such device" in done.out
    (suite,) = done.junit()
    assert suite.get("name") == "kunit"
    cases = {c.get("name"): c for c in suite.iter("testcase")}
    assert list(cases) == ["one", "two", "three", WHOLE]
    assert {c.get("classname") for c in cases.values()} == {"kunit.demo"}
    failure = cases["two"].find("failure")
    assert failure is not None
    assert failure.get("type") == "assertion"
    assert "got == 1 (0x1)" in (cases["two"].findtext("system-out") or "")
    skipped = cases["three"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "no such device"


def test_panic_in_the_middle(demo: Lab, way: tuple[str, ...]) -> None:
    alone = [*log.head(), *log.begin("demo", 1), *log.ok(1, "three"), *log.end("demo")]
    order = ["KTAP version 1", "demo", "demo.one", "demo.two", "demo.three"]
    boots_of = {"demo": [*START, PANIC], "demo kunit.action=list": order, "demo.three": alone}
    script(demo, boots_of)
    done = demo.run("demo.toml", *way)
    assert done.code == 1, done.out + done.err
    assert boots(done) == [
        "kunit demo",
        "kunit demo kunit.action=list",
        "close",
        "kunit demo.three",
        "close",
    ]
    verdicts = done.journal()
    assert [verdicts[n] for n in ("one", "two", "three", WHOLE)] == [
        Status.PASS,
        Status.ERROR,
        Status.PASS,
        Status.ERROR,
    ]
    assert "Attempted to be silly" in done.out
    assert "Traceback" not in done.out


def test_each_worker_boots_a_suite_once(demo: Lab) -> None:
    script(demo, {"demo": GOOD})
    done = demo.run("demo.toml", "-n2")
    assert done.code == 0, done.out + done.err
    booted = [line for line in done.log() if " kunit " in line]
    assert len(booted) == len(set(booted)) <= 2


def test_kernel_that_does_not_boot_is_an_error_of_every_case(
    demo: Lab, way: tuple[str, ...]
) -> None:
    script(demo, {}, boot="fail")
    done = demo.run("demo.toml", *way)
    assert done.code == 1
    assert "4 errors" in done.out
    assert "it never came up" in done.out
    assert boots(done) == ["kunit demo"] * 2
    run = read_journal(demo.folder / "out.ndjson")
    assert {r.cause for r in run.cases()} == {"vm.boot"}


def test_option_that_is_not_set_skips_without_a_boot(demo: Lab, way: tuple[str, ...]) -> None:
    configure(demo, fake.BOOTABLE)
    done = demo.run("demo.toml", "-rs", *way)
    assert done.code == 0, done.out
    assert done.log() == []
    assert "no KUnit suite demo: CONFIG_DEMO_TEST is not set in vmlinux" in done.out
    assert set(done.journal().values()) == {Status.SKIP}


def test_option_that_is_not_set_fails_where_nothing_may_be_skipped(demo: Lab) -> None:
    configure(demo, fake.BOOTABLE)
    done = demo.run("demo.toml", "--ktest-require-all")
    assert done.code == 1
    assert set(done.journal().values()) == {Status.FAIL}


@pytest.mark.parametrize("config", [ENABLED, None])
def test_absent_suite_skips_with_the_series_that_adds_it(
    demo: Lab, config: Mapping[str, str] | None
) -> None:
    configure(demo, config)
    script(demo, {})
    done = demo.run("demo.toml", "-rs")
    assert done.code == 0, done.out
    assert "the kernel has no KUnit suite demo (series 20-demo adds it)" in done.out
    assert boots(done) == ["kunit demo", "close"]


def test_kernel_version_without_tests(demo: Lab) -> None:
    (demo.folder / "demo.toml").write_text(DEMO.replace('"6.12"', '"7.3"'))
    done = demo.run("demo.toml", "-rs")
    assert done.code == 0
    assert "demo has no tests for Linux 6.12, only for 7.3" in done.out
