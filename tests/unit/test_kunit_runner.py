# SPDX-License-Identifier: GPL-2.0-only
"""One process's KUnit suites: what is booted, and who answers for what happened there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ktest_ntcopy.errors import BootError, MachineError, MachineLost
from ktest_ntcopy.features.model import Support
from ktest_ntcopy.image.file.config import KernelConfig
from ktest_ntcopy.machine.base import End
from ktest_ntcopy.naming import WHOLE
from ktest_ntcopy.results.model import Cause, Status
from tests.unit import kunit_logs as log
from tests.unit.kunit_lab import FEATURE, HUNG, NAMES, PANICKED, START, SUITE, Boot, Lab, text
from tests.unit.kunit_lab import lab as lab  # a fixture
from tests.unit.pretended import INFO

PASS = (Status.PASS, Cause.NONE)
PANIC = (Status.ERROR, Cause.PANIC)
GOOD = Boot(
    text(
        *START,
        log.ok(1, "one"),
        log.ok(2, "two"),
        log.ok(3, "three"),
        log.end("demo"),
        log.AFTER,
    )
)
DIED_IN_TWO = Boot(
    text(*START, log.ok(1, "one"), ["    # two: about to break"], log.PANIC), PANICKED
)
ORDER = Boot(text(["KTAP version 1", "demo", "demo.one", "demo.two", "demo.three"]))


def alone(name: str) -> Boot:
    parts = (log.head(), log.begin("demo", 1), log.ok(1, name), log.end("demo"), log.AFTER)
    return Boot(text(*parts))


# What is booted


def test_one_boot_for_all_cases(lab: Lab) -> None:
    lab.boots = {"demo": GOOD}
    assert lab.runner.boots_next(SUITE)
    assert lab.results() == [PASS] * 4
    assert lab.log == ["demo"]
    assert not lab.runner.boots_next(SUITE)
    assert lab.infos == [INFO]
    assert all(m.closed for m in lab.machines)


def test_what_is_booted(lab: Lab) -> None:
    lab.boots = {"demo": GOOD}
    lab.result("one")
    spec = lab.machines[0].spec
    assert spec.append == "quiet=1 kunit.enable=1 kunit.filter_glob=demo"
    assert spec.files == {}
    assert spec.boot_silence == 14.0
    assert spec.timeout == 60.0 + 3 * 14.0


def test_what_goes_along(lab: Lab) -> None:
    lab.boots = {"demo": GOOD}
    result = lab.result("two")
    assert (result.target, result.program, result.case) == ("kunit", "demo", "two")
    assert result.classname == "kunit.demo"
    assert (result.reproducer, result.worker) == ("again node::two", "gw3")
    assert result.nodeid == "node::two"
    assert result.properties["kunit.filter_glob"] == "demo"
    assert result.duration == pytest.approx(0.1)
    assert result.detail == "ok 2 two\n"
    assert result.console.endswith("]     ok 2 two")


# Verdicts


def test_failure_with_its_diagnostics(lab: Lab) -> None:
    lab.boots = {
        "demo": Boot(
            text(
                *START,
                log.failed(1, "one"),
                log.skipped(2, "two", "no such device"),
                log.parameterised(3, "three", a=True, b=False),
                log.end("demo", well=False),
                log.AFTER,
            )
        )
    }
    one, two, three = (lab.result(n) for n in NAMES)
    assert (one.status, one.cause) == (Status.FAIL, Cause.ASSERTION)
    assert one.message.startswith("net/core/demo.c:12: Expected got == want, but")
    assert one.detail.splitlines()[0] == "# one: EXPECTATION FAILED at net/core/demo.c:12"
    assert (two.status, two.cause, two.message) == (Status.SKIP, Cause.SKIP, "no such device")
    assert three.message.endswith("(failed for b)")
    assert "    not ok 2 b" in three.detail.splitlines()
    assert lab.results(WHOLE) == [PASS]


def test_splat_is_the_cases_it_came_in(lab: Lab) -> None:
    lines = text(
        *START,
        log.ok(1, "one"),
        log.WARNING,
        log.ok(2, "two"),
        log.ok(3, "three"),
        log.end("demo"),
        log.AFTER,
    )
    lab.boots = {"demo": Boot(lines)}
    assert lab.results() == [PASS, (Status.FAIL, Cause.SPLAT), PASS, PASS]
    assert "net/core/demo.c:7" in lab.result("two").message


@pytest.mark.parametrize("before", [True, False])
def test_splat_outside_of_all_cases_is_the_suites(lab: Lab, before: bool) -> None:
    around = (log.WARNING, []) if before else ([], log.WARNING)
    lines = text(
        log.head(),
        around[0],
        log.begin("demo", 3),
        *(log.ok(n, name) for n, name in enumerate(NAMES, 1)),
        log.end("demo"),
        around[1],
        log.AFTER,
    )
    lab.boots = {"demo": Boot(lines)}
    assert lab.results() == [PASS, PASS, PASS, (Status.FAIL, Cause.SPLAT)]


def test_splat_before_kunit_is_nobodys(lab: Lab) -> None:
    lab.boots = {"demo": Boot([*log.WARNING, *GOOD.lines])}
    assert lab.results() == [PASS] * 4


def test_listed_case_that_the_kernel_does_not_have(lab: Lab) -> None:
    parts = (log.head(), log.begin("demo", 2), log.ok(1, "one"), log.ok(2, "three"))
    lab.boots = {"demo": Boot(text(*parts, log.end("demo"), log.AFTER))}
    result = lab.result("two")
    assert (result.status, result.cause) == (Status.FAIL, Cause.NO_VERDICT)
    assert result.message == "suite demo has no case two"
    assert lab.log == ["demo"]


def test_case_that_is_not_listed(lab: Lab) -> None:
    parts = (log.head(), log.begin("demo", 4))
    cases = [log.ok(n, name) for n, name in enumerate((*NAMES, "new"), 1)]
    lab.boots = {"demo": Boot(text(*parts, *cases, log.end("demo"), log.AFTER))}
    assert lab.results() == [PASS, PASS, PASS, (Status.FAIL, Cause.MALFORMED)]
    assert "new (pass)" in lab.result(WHOLE).message


def test_suite_that_failed_to_begin(lab: Lab) -> None:
    said = ["    # demo:     # failed to initialize (-12)", "not ok 1 demo"]
    lab.boots = {"demo": Boot(text(log.head(), said, log.AFTER))}
    assert lab.results() == [(Status.FAIL, Cause.ASSERTION)] * 4
    assert lab.result("one").message.endswith("failed to initialize (-12)")
    assert lab.log == ["demo"]


# Kernels that die


def test_panic_in_the_middle(lab: Lab) -> None:
    lab.boots = {"demo": DIED_IN_TWO, "demo list": ORDER, "demo.three": alone("three")}
    assert lab.results() == [PASS, PANIC, PASS, PANIC]
    assert lab.log == ["demo", "demo list", "demo.three"]
    two = lab.result("two")
    assert "Fatal exception" in two.message
    assert "NULL pointer" in two.console
    assert two.detail == "# two: about to break\n"
    assert lab.result("three").properties["kunit.filter_glob"] == "demo.three"
    assert lab.result(WHOLE).message.startswith("in two: ")


def test_hang_in_the_middle(lab: Lab) -> None:
    lab.boots = {
        "demo": Boot(text(*START, log.ok(1, "one")), HUNG),
        "demo list": ORDER,
        "demo.three": Boot(text(log.head(), log.begin("demo", 1)), HUNG),
    }
    hang = (Status.ERROR, Cause.HANG)
    assert lab.results() == [PASS, hang, hang, hang]
    assert lab.result("two").message == "the guest printed nothing for 14 s"


def test_reset_in_the_middle(lab: Lab) -> None:
    error = BootError("/vmlinux: the guest reset itself before it reported back", end=End.DOWN)
    lab.boots = {"demo": Boot(text(*START), error), "demo list": ORDER}
    assert lab.results("one") == [(Status.ERROR, Cause.DOWN)]


def test_order_of_the_kernel_names_the_victim(lab: Lab) -> None:
    """Not the order of the feature file, which may be another."""
    died = Boot(text(*START, log.ok(1, "three"), log.PANIC), PANICKED)
    order = Boot(text(["KTAP version 1", "demo.three", "demo.one", "demo.two"]))
    lab.boots = {"demo": died, "demo list": order, "demo.two": alone("two")}
    assert lab.results() == [PANIC, PASS, PASS, PANIC]


def test_victim_that_is_not_listed(lab: Lab) -> None:
    died = Boot(text(*START, log.ok(1, "one"), log.PANIC), PANICKED)
    order = Boot(text(["KTAP version 1", *(f"demo.{n}" for n in ("one", "new", "two", "three"))]))
    lab.boots = {
        "demo": died,
        "demo list": order,
        "demo.two": alone("two"),
        "demo.three": alone("three"),
    }
    assert lab.results() == [PASS, PASS, PASS, PANIC]
    assert "in new, which the feature file does not list" in lab.result(WHOLE).message


def test_kernel_that_does_not_list_its_cases(lab: Lab) -> None:
    lab.boots = {
        "demo": DIED_IN_TWO,
        "demo list": Boot(text(log.PANIC), PANICKED),
        "demo.three": alone("three"),
    }
    assert lab.results() == [PASS, PANIC, PASS, PANIC]


def test_panic_before_the_first_case(lab: Lab) -> None:
    lab.boots = {"demo": Boot(text(log.head(), log.PANIC), PANICKED)}
    assert lab.results() == [PANIC] * 4
    assert lab.log == ["demo"]
    assert lab.result("one").message.startswith("before demo began: ")


def test_panic_after_the_last_case(lab: Lab) -> None:
    cases = [log.ok(n, name) for n, name in enumerate(NAMES, 1)]
    lab.boots = {"demo": Boot(text(*START, *cases, log.PANIC), PANICKED), "demo list": ORDER}
    assert lab.results() == [PASS, PASS, PASS, PANIC]
    assert lab.result(WHOLE).message.startswith("after the last case: ")


def test_lines_lost_in_a_flood(lab: Lab) -> None:
    gap = ["[... 9000 lines of console output left out ...]"]
    parts = (log.ok(1, "one"), gap, log.ok(3, "three"), log.end("demo"), log.AFTER)
    lab.boots = {"demo": Boot(text(*START, *parts)), "demo.two": alone("two")}
    assert lab.results() == [PASS, PASS, PASS, (Status.ERROR, Cause.MALFORMED)]


# Machines that are not to be had


def test_kernel_that_does_not_boot(lab: Lab) -> None:
    lab.boots = {"demo": Boot(text(log.PANIC), PANICKED)}
    assert lab.results() == [(Status.ERROR, Cause.BOOT)] * 4
    assert lab.log == ["demo", "demo"]
    assert lab.result("one").console == "words"
    assert not lab.runner.boots_next(replace(SUITE, name="other"))


def test_second_boot_may_do(lab: Lab) -> None:
    lab.boots = {"demo": [Boot(text(), PANICKED), GOOD]}
    assert lab.results() == [PASS] * 4


def test_host_that_cannot_boot_is_not_asked_twice(lab: Lab) -> None:
    lab.boots = {"demo": Boot([], MachineError("no memory"))}
    assert lab.results() == [(Status.ERROR, Cause.OTHER)] * 4
    assert lab.log == ["demo"]
    assert lab.result("one").message == "no memory"


def test_machine_that_was_killed_is_booted_again(lab: Lab) -> None:
    killed = Boot(text(*START, log.ok(1, "one")), MachineLost("killed by SIGKILL"))
    lab.boots = {"demo": [killed, GOOD]}
    assert lab.results() == [PASS] * 4


def test_machine_that_is_killed_every_time(lab: Lab) -> None:
    killed = Boot(text(*START, log.ok(1, "one")), MachineLost("killed by SIGKILL"))
    lab.boots = {"demo": killed, "demo list": ORDER}
    assert lab.results("one", "two") == [PASS, (Status.ERROR, Cause.LOST)]
    assert lab.result("two").message == "killed by SIGKILL"


# Suites that are not there


def test_absent_suite_is_skipped(lab: Lab) -> None:
    lab.boots = {"demo": Boot(text(log.head(0), log.AFTER))}
    assert lab.results() == [(Status.SKIP, Cause.SKIP)] * 4
    message = "the kernel has no KUnit suite demo (series 20-demo adds it)"
    assert lab.result("one").message == message
    assert lab.log == ["demo"]


def test_absent_suite_of_another_series(lab: Lab) -> None:
    lab.boots = {"demo": Boot(text(log.head(0), log.AFTER))}
    suite = replace(SUITE, series="40-more")
    assert "(series 40-more adds it)" in lab.runner.run_case(FEATURE, suite, "one").message


def test_absent_suite_of_a_required_feature_fails(lab: Lab) -> None:
    lab.required = frozenset({"demo_feature"})
    lab.boots = {"demo": Boot(text(log.head(0), log.AFTER))}
    assert lab.results() == [(Status.FAIL, Cause.NO_VERDICT)] * 4
    assert lab.result("one").message.startswith("demo_feature is required, but the kernel has no")


def test_feature_that_came_without_the_suite_does_not_ask_for_it(lab: Lab) -> None:
    lab.required = frozenset({"demo_feature"})
    lab.boots = {"demo": Boot(text(log.head(0), log.AFTER))}
    suite = replace(SUITE, series="40-more")
    assert lab.runner.run_case(FEATURE, suite, "one").status is Status.SKIP
    upstream = replace(FEATURE, support={"6.12": Support(version="6.12", state="upstream")})
    found = lab.runner.run_case(upstream, SUITE, "one")
    assert (found.status, found.message) == (Status.SKIP, "the kernel has no KUnit suite demo")


def test_demand_asks_for_the_suite_wherever_it_comes_from(lab: Lab) -> None:
    lab.demanded = frozenset({"demo_feature"})
    lab.boots = {"demo": Boot(text(log.head(0), log.AFTER))}
    suite = replace(SUITE, series="40-more")
    assert lab.runner.run_case(FEATURE, suite, "one").status is Status.FAIL


@pytest.mark.parametrize("config", [None, KernelConfig({}, "x")])
def test_kernel_without_kunit(lab: Lab, config: KernelConfig | None) -> None:
    lab.config = config
    lab.boots = {"demo": Boot(text(log.AFTER))}
    assert lab.results() == [(Status.SKIP, Cause.SKIP)] * 4
    assert "without CONFIG_KUNIT=y" in lab.result("one").message


def test_kunit_that_says_nothing_is_no_skip(lab: Lab) -> None:
    lab.boots = {"demo": Boot(text(log.AFTER))}
    assert lab.results() == [(Status.ERROR, Cause.NO_VERDICT)] * 4
    assert lab.log == ["demo"]
