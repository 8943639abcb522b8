# SPDX-License-Identifier: GPL-2.0-only
"""What is read from the console of a boot that ran a KUnit suite."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.machine.base import ConsoleLine, End
from ktest_ntcopy.results.kunit import (
    SuiteLog,
    claim_of_case,
    claim_of_suite,
    outcome,
    read_names,
    read_suite,
)
from ktest_ntcopy.results.model import Cause, Status
from ktest_ntcopy.results.verdict import Claim
from tests.unit import kunit_logs as log


def read(*parts: list[str] | tuple[str, ...]) -> SuiteLog:
    return read_suite(log.console([line for part in parts for line in part]), "demo")


def claim(read: SuiteLog, name: str) -> Claim:
    return claim_of_case(read.named(name))


WHOLE = (
    log.BEFORE,
    log.head(),
    log.begin("demo", 4),
    log.ok(1, "one"),
    log.failed(2, "two"),
    log.skipped(3, "three", "needs two CPUs"),
    log.parameterised(4, "four", a=True, b=True),
    log.end("demo", well=False),
    log.AFTER,
)


def test_whole_suite() -> None:
    suite = read(*WHOLE)
    assert (suite.started, suite.suites, suite.plan, suite.absent) == (True, 1, 4, False)
    assert [c.name for c in suite.cases] == ["one", "two", "three", "four"]
    assert suite.verdict is not None
    assert suite.verdict.ok is False
    assert suite.problems == ()
    assert claim(suite, "one") == Claim(Status.PASS)
    assert claim(suite, "two") == Claim(
        Status.FAIL,
        Cause.ASSERTION,
        "net/core/demo.c:12: Expected got == want, but got == 1 (0x1) want == 2 (0x2)",
    )
    assert claim(suite, "three") == Claim(Status.SKIP, Cause.SKIP, "needs two CPUs")
    assert claim(suite, "four") == Claim(Status.PASS)
    assert claim_of_suite(suite, {"one", "two", "three", "four"}) == Claim(Status.PASS)


def test_every_line_belongs_to_one_part() -> None:
    lines = log.console([line for part in WHOLE for line in part])
    suite = read_suite(lines, "demo")
    parts = [*suite.head, *(x for c in suite.cases for x in c.lines), *suite.tail]
    assert tuple(parts) == lines[len(log.BEFORE) :]
    assert [len(c.lines) for c in suite.cases] == [1, 5, 1, 6]


def test_parameters_that_failed_are_named() -> None:
    bad = read(
        log.head(), log.begin("demo", 1), log.parameterised(1, "p", a=True, b=False, c=False)
    )
    found = claim(bad, "p")
    assert found.status is Status.FAIL
    assert found.message.startswith("net/core/demo.c:12: Expected got == want, but got == 1")
    assert found.message.endswith("(failed for b, c)")


def test_many_parameters_are_counted() -> None:
    params = {f"p{n}": False for n in range(40)}
    bad = read(log.head(), log.begin("demo", 1), log.parameterised(1, "p", **params))
    assert claim(bad, "p").message.endswith("(failed for p0, p1, p2, p3, p4 and 35 more)")


def test_kernel_that_talks_in_between() -> None:
    noise = ["random: crng init done", "eth0: renamed", "1 ok", "# not KUnit's", "ok then"]
    lines = [line for part in WHOLE for line in part]
    mixed = [x for line in lines for x in (line, *noise)]
    quiet, loud = read(lines), read_suite(log.console(mixed), "demo")
    assert [c.name for c in loud.cases] == [c.name for c in quiet.cases]
    assert [claim(loud, c.name) for c in loud.cases] == [claim(quiet, c.name) for c in quiet.cases]
    assert loud.problems == ()


@pytest.mark.parametrize(
    "stamp", ["", "[    0.512345] ", "[    0.512345][    T1] ", "<6>[ 1.234] "]
)
def test_printk_prefixes(stamp: str) -> None:
    lines = [ConsoleLine(1.0, stamp + line) for part in WHOLE for line in part]
    assert [c.name for c in read_suite(lines, "demo").cases] == ["one", "two", "three", "four"]


def test_death_in_the_middle() -> None:
    suite = read(
        log.head(),
        log.begin("demo", 3),
        log.ok(1, "one"),
        ["        KTAP version 1", "        # Subtest: two", "        ok 1 a", "        ok 2 b"],
        log.PANIC,
    )
    assert [c.name for c in suite.cases] == ["one"]
    assert (suite.plan, suite.verdict, suite.absent) == (3, None, False)
    assert suite.tail[-1].text.endswith("Fatal exception")
    assert len(suite.tail) == 4 + len(log.PANIC)


@pytest.mark.parametrize("length", range(1, 30))
def test_text_that_ends_anywhere(length: int) -> None:
    lines = log.console([line for part in WHOLE for line in part])
    suite = read_suite(lines[:length], "demo")
    whole = read_suite(lines, "demo")
    assert [c.point.name for c in suite.cases] == [
        c.point.name for c in whole.cases if c.lines[-1] in lines[:length]
    ]


def test_death_before_the_first_case() -> None:
    suite = read(log.head(), log.PANIC)
    assert (suite.started, suite.plan, suite.cases, suite.absent) == (True, None, (), False)
    assert len(suite.head + suite.tail) == 2 + len(log.PANIC)


def test_no_such_suite() -> None:
    assert read(log.BEFORE, log.head(0), log.AFTER).absent


def test_no_kunit() -> None:
    assert read(log.BEFORE, log.AFTER) == SuiteLog()
    assert read() == SuiteLog()


def test_another_suite_is_not_ours() -> None:
    other = read(log.head(), log.begin("other", 1), log.ok(1, "one"), log.end("other"))
    assert other.cases == ()
    assert other.verdict is None


def complaint(*lines: str) -> Claim:
    suite = read(log.head(), log.begin("demo", 1), list(lines), ["    not ok 1 one"])
    return claim(suite, "one")


def test_first_of_several_expectations() -> None:
    found = complaint(*log.failed(1, "one", "a.c:1")[:-1], *log.failed(1, "one", "a.c:2")[:-1])
    assert found.message.startswith("a.c:1: Expected got == want")
    assert "a.c:2" not in found.message


def test_message_survives_a_line_from_elsewhere() -> None:
    lines = log.failed(1, "one")[:-1]
    lines.insert(2, "random: crng init done")
    assert complaint(*lines).message.endswith("got == 1 (0x1) want == 2 (0x2)")


def test_failures_without_an_expectation() -> None:
    assert complaint("    # one: failed to initialize: -12").message == "failed to initialize: -12"
    timed = complaint("    # one: test case timed out")
    assert (timed.cause, timed.message) == (Cause.TIMEOUT, "over KUnit's own time limit")
    assert complaint().message == "failed without a word"
    statistics = "    # one: pass:0 fail:1 skip:0 total:1"
    assert complaint("    # one: why", statistics).message == "why"


def test_contradictions_do_not_pass() -> None:
    lie = log.parameterised(1, "p", a=False)
    lie[-1] = "    ok 1 p"
    found = claim(read(log.head(), log.begin("demo", 1), lie), "p")
    assert (found.status, found.cause) == (Status.ERROR, Cause.MALFORMED)
    twice = read(log.head(), log.begin("demo", 2), log.ok(1, "one"), log.ok(2, "one"))
    assert claim(twice, "one").cause is Cause.MALFORMED


def suite_claim(*parts: list[str], known: str = "one two") -> Claim:
    return claim_of_suite(read(log.head(), *parts), set(known.split()))


def test_unlisted_case_is_not_lost() -> None:
    found = suite_claim(
        log.begin("demo", 2),
        log.ok(1, "one"),
        log.failed(2, "new"),
        log.end("demo", well=False),
    )
    assert (found.status, found.cause) == (Status.FAIL, Cause.MALFORMED)
    assert found.message.endswith("does not list: new (fail)")


@pytest.mark.parametrize(
    ("parts", "status", "text"),
    [
        ([log.begin("demo", 1), log.ok(1, "one"), log.end("demo")], Status.PASS, ""),
        ([log.begin("demo", 1), log.ok(1, "one")], Status.ERROR, "no verdict on the suite"),
        (
            [log.begin("demo", 1), log.ok(1, "one"), log.end("demo", well=False)],
            Status.FAIL,
            "the suite failed, but no case did",
        ),
        (
            [log.begin("demo", 1), log.failed(1, "one"), log.end("demo")],
            Status.ERROR,
            "reported as ok although a case failed",
        ),
        (
            [log.begin("demo", 2), log.ok(1, "one"), log.end("demo")],
            Status.ERROR,
            "the plan promises 2 verdicts, 1 never came",
        ),
        (
            [["    # demo:     # failed to initialize (-12)"], log.end("demo", well=False)[1:]],
            Status.FAIL,
            "the suite ran no case: demo: failed to initialize (-12)",
        ),
        (
            [log.begin("demo", 1), log.ok(1, "one"), log.end("demo"), log.head()],
            Status.ERROR,
            "started more than once",
        ),
    ],
)
def test_suite_as_a_whole(parts: list[list[str]], status: Status, text: str) -> None:
    found = suite_claim(*parts)
    assert found.status is status, found
    assert text in found.message


def test_names_in_the_order_they_run() -> None:
    lines = ["KTAP version 1", "demo", "demo.b", "demo.a", "demo.x y", "other.c"]
    assert read_names(log.console(lines), "demo") == ("b", "a")
    assert read_names(log.console(["demo.b"]), "demo") == ()


def test_outcome_keeps_kunits_words_apart() -> None:
    made = outcome(log.console(["noise", *log.failed(1, "one")]), end=End.PANIC, detail="why")
    assert made.text.splitlines()[0] == "# one: EXPECTATION FAILED at net/core/demo.c:12"
    assert made.text.splitlines()[2] == "    got == 1 (0x1)"
    assert "noise" not in made.text
    assert (len(made.console), made.end, made.detail) == (6, End.PANIC, "why")


_LINES = st.one_of(
    st.text(st.characters(exclude_characters="\n"), max_size=30),
    st.sampled_from([line for part in WHOLE for line in part]),
    st.from_regex(r"\A( {4}){0,3}(not )?ok [0-9]{1,3} [a-z]{1,3}( # SKIP)?\Z"),
    st.from_regex(r"\A( {4}){0,2}1\.\.[0-9]{1,3}\Z"),
    st.just("KTAP version 1"),
)


@given(st.lists(_LINES, max_size=40))
def test_anything_can_be_read(texts: list[str]) -> None:
    lines = [ConsoleLine(float(n), text) for n, text in enumerate(texts)]
    suite = read_suite(lines, "demo")
    for case in suite.cases:
        claim_of_case(suite.named(case.name))
    claim_of_suite(suite, {"one"})
    parts = [*suite.head, *(x for c in suite.cases for x in c.lines), *suite.tail]
    assert parts == lines[len(lines) - len(parts) :]
