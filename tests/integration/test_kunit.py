# SPDX-License-Identifier: GPL-2.0-only
"""KUnit in a real kernel: its own suite of net/core, also with cases that fail, die and hang.

The suite and both of its cases are Linux 6.12's.  What fails does so because a few bytes of
a copy of the kernel were changed.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_feature, load_features
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.kunit import KunitRunner
from ktest_ntcopy.machine.base import MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.naming import WHOLE
from ktest_ntcopy.results.model import Cause, Result, Status

from .broken_kernel import Break
from .conftest import Guests
from .test_plugin_kernel import run

FIRST, SECOND = "gso_test_func", "ip_tunnel_flags_test_run"
DATA = f"""
name = "net_core"
title = "Tests of the kernel's own"
summary = "None of ours"
seed = "none"
[kernel."6.12"]
state = "upstream"
[[kconfig]]
name = "CONFIG_NET_TEST"
why = "the suite"
[[kunit]]
suite = "net_core"
why = "it is there"
option = "CONFIG_NET_TEST"
timeout = 3
[[kunit.cases]]
name = "{FIRST}"
about = "with parameters"
[[kunit.cases]]
name = "{SECOND}"
about = "with parameters"
"""
PASS = (Status.PASS, Cause.NONE)
UD2, SPIN, RETURN_EINVAL = "0f0b", "ebfe", "48c7c0eaffffffc3"

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")


@pytest.fixture(scope="module")
def with_suite(kernel: Path) -> Path:
    """The kernel, if it has the suite."""
    config = open_kernel(kernel).config
    if config is None or config["CONFIG_NET_TEST"] != "y":
        pytest.skip(f"{kernel} is without CONFIG_NET_TEST=y, or does not say")
    return kernel


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "net_core.toml"
    path.write_text(DATA)
    return path


def results(kernel: Path, folder: Path, *args: str) -> tuple[str, Mapping[str, Result]]:
    """What pytest prints, and the Result of every case."""
    done, journal = run(kernel, folder, "net_core.toml", *args)
    assert "Traceback" not in done.stdout, done.stdout
    assert {r.classname for r in journal.cases()} == {"kunit.net_core"}, done.stdout + done.stderr
    return done.stdout, {r.case: r for r in journal.cases()}


def verdicts(found: Mapping[str, Result]) -> dict[str, tuple[Status, Cause]]:
    return {case: (r.status, r.cause) for case, r in found.items()}


def changed(function: str, code: str) -> Break:
    return lambda image: image.change(function, 0, bytes.fromhex(code))


def test_suite_passes(with_suite: Path, tmp_path: Path, data: Path) -> None:
    _, found = results(with_suite, tmp_path)
    assert verdicts(found) == {FIRST: PASS, SECOND: PASS, WHOLE: PASS}
    (suite,) = ET.parse(tmp_path / "out.xml").getroot()
    assert suite.get("name") == "kunit"
    first = next(c for c in suite.iter("testcase") if c.get("name") == FIRST)
    assert first.get("classname") == "kunit.net_core"
    assert "    ok 1 no_gso" in (first.findtext("system-out") or "")


def test_one_boot_per_worker(with_suite: Path, tmp_path: Path, data: Path) -> None:
    _, found = results(with_suite, tmp_path, "-n2")
    assert verdicts(found) == {FIRST: PASS, SECOND: PASS, WHOLE: PASS}


def test_what_the_feature_file_gets_wrong(with_suite: Path, tmp_path: Path, data: Path) -> None:
    data.write_text(DATA.replace(f'"{SECOND}"', '"not_there"'))
    out, found = results(with_suite, tmp_path)
    assert verdicts(found) == {
        FIRST: PASS,
        "not_there": (Status.FAIL, Cause.NO_VERDICT),
        WHOLE: (Status.FAIL, Cause.MALFORMED),
    }
    assert "suite net_core has no case not_there" in out
    assert f"does not list: {SECOND} (pass)" in out


def test_suite_that_the_kernel_does_not_have(with_suite: Path, tmp_path: Path, data: Path) -> None:
    data.write_text(DATA.replace('suite = "net_core"', 'suite = "net_core_of_mars"'))
    done, journal = run(with_suite, tmp_path, "net_core.toml", "-rs")
    assert done.returncode == 0, done.stdout
    assert {r.status for r in journal.cases()} == {Status.SKIP}
    assert "the kernel has no KUnit suite net_core_of_mars" in done.stdout


def test_failed_expectation(
    with_suite: Path, broken: Callable[[Break], Path], tmp_path: Path, data: Path
) -> None:
    kernel = broken(changed("skb_segment", RETURN_EINVAL))
    out, found = results(kernel, tmp_path)
    assert verdicts(found) == {FIRST: (Status.FAIL, Cause.ASSERTION), SECOND: PASS, WHOLE: PASS}
    assert "net/core/net_test.c:" in out
    assert "(failed for " in out
    failure = ET.parse(tmp_path / "out.xml").getroot().find(".//failure")
    assert failure is not None
    assert "FAILED at net/core/net_test.c:" in (failure.text or "")
    assert "not ok 1 no_gso" in (failure.text or "")


def test_panic_in_the_first_case(
    with_suite: Path, broken: Callable[[Break], Path], tmp_path: Path, data: Path
) -> None:
    """The second one runs all the same."""
    out, found = results(broken(changed(FIRST, UD2)), tmp_path)
    panic = (Status.ERROR, Cause.PANIC)
    assert verdicts(found) == {FIRST: panic, SECOND: PASS, WHOLE: panic}
    assert "Kernel panic - not syncing" in out
    assert f"{FIRST}+0x0/" in found[FIRST].console


def test_panic_in_the_last_case(
    with_suite: Path, broken: Callable[[Break], Path], tmp_path: Path, data: Path
) -> None:
    _, found = results(broken(changed(SECOND, UD2)), tmp_path)
    panic = (Status.ERROR, Cause.PANIC)
    assert verdicts(found) == {FIRST: PASS, SECOND: panic, WHOLE: panic}


def test_hang_in_the_first_case(
    with_suite: Path, broken: Callable[[Break], Path], tmp_path: Path, data: Path
) -> None:
    out, found = results(broken(changed(FIRST, SPIN)), tmp_path)
    hang = (Status.ERROR, Cause.HANG)
    assert verdicts(found) == {FIRST: hang, SECOND: PASS, WHOLE: hang}
    assert "the guest printed nothing for " in out
    assert f"{FIRST}+0x0/" in found[FIRST].console


def test_kernel_that_dies_after_the_suite(with_suite: Path, data: Path) -> None:
    feature = load_feature(data)
    (suite,) = feature.kunit
    runner = KunitRunner(
        spec=MachineSpec(kernel=with_suite, append="rdinit=/not/there", memory_mib=256),
        factory=QemuMachine,
        config=None,
        version="6.12",
        required=frozenset,
    )
    found = {c: runner.run_case(feature, suite, c) for c in (FIRST, SECOND, WHOLE)}
    assert verdicts(found) == {
        FIRST: PASS,
        SECOND: PASS,
        WHOLE: (Status.ERROR, Cause.PANIC),
    }
    assert found[WHOLE].message.startswith("after the last case: ")


def test_shipped_suites(with_suite: Path, tmp_path: Path) -> None:
    """A kernel has a suite whole or not at all."""
    done, journal = run(with_suite, tmp_path, "-m", "kunit")
    assert done.returncode == 0, done.stdout
    statuses: dict[str, set[Status]] = {}
    for result in journal.cases():
        statuses.setdefault(result.classname, set()).add(result.status)
    assert set(statuses) == {f"kunit.{s.name}" for f in load_features() for s in f.kunit}
    assert all(s in ({Status.PASS}, {Status.SKIP}) for s in statuses.values()), statuses


def test_ordinary_machines_run_no_suite(with_suite: Path, guests: Guests) -> None:
    texts = [line.text for line in guests.machine.boot_console]
    assert any("kunit: disabled" in t for t in texts)
    assert not any("KTAP" in t for t in texts)
