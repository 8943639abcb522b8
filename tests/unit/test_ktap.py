# SPDX-License-Identifier: GPL-2.0-only
"""KTAP as programs print it, as the runners wrap it, and as hostile guests fake it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.results.ktap import Directive, Document, Flaw, Point, parse, parse_all
from tests.unit.effort import is_linear

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> Document:
    return parse((GOLDEN / name).read_text())


def flaws(document: Document) -> list[Flaw]:
    return [p.flaw for p in document.problems]


def only(document: Document) -> Point:
    assert len(document.points) == 1
    return document.points[0]


def test_whole_harness_program() -> None:
    document = golden("harness_all.txt")
    assert (document.version, document.plan) == ("TAP 13", 17)
    assert [p.number for p in document.points] == list(range(1, 18))
    by_name = {p.name: p for p in document.points}
    assert by_name["global.plain"].ok
    assert not by_name["global.segv"].ok
    assert by_name["stream.tcp6.known"].directive is Directive.XFAIL
    assert by_name["stream.unix.known"].directive is Directive.XPASS
    assert by_name["global.allskip"].reason == "no tracefs"
    assert document.diagnostics[-1].startswith("Totals: pass:5 fail:8")


def test_stray_verdict_of_a_test_is_reported_and_not_believed() -> None:
    document = golden("harness_all.txt")
    assert not document.named("stray")
    assert flaws(document) == [Flaw.UNPLANNED]
    assert "'ok 99 stray'" in document.problems[0].message
    assert document.problems[0].line == 21


def test_assertion_text_belongs_to_its_verdict() -> None:
    point = only(golden("harness_fail.txt"))
    assert point.name == "stream.tcp6.fault"
    assert "toy.c:23:fault:Expected EFAULT (14) == errno (9)" in point.diagnostics


def test_skip_reason_keeps_its_own_hash() -> None:
    point = only(golden("harness_skip.txt"))
    assert (point.ok, point.directive) == (True, Directive.SKIP)
    assert point.reason == "kernel lacks MSG_NTCOPY # see docs"


def test_program_that_knows_no_such_case() -> None:
    document = golden("harness_unmatched.txt")
    assert (document.plan, document.points, document.plan_skip) == (0, (), None)


def test_program_killed_before_its_verdict() -> None:
    document = golden("harness_parent.txt")
    assert document.points == ()
    assert flaws(document) == [Flaw.MISSING]


@pytest.mark.parametrize("name", ["harness_list.txt", "harness_badopt.txt"])
def test_text_that_is_no_ktap(name: str) -> None:
    document = golden(name)
    assert (document.version, document.plan, document.points) == ("", None, ())


@pytest.mark.parametrize(
    ("rest", "name", "directive", "reason"),
    [
        ("a.b", "a.b", Directive.NONE, ""),
        ("- a.b", "a.b", Directive.NONE, ""),
        ("a # SKIP", "a", Directive.SKIP, ""),
        ("a # skip: why", "a", Directive.SKIP, "why"),
        ("a # Skipped why", "a", Directive.SKIP, "why"),
        ("a #SKIP why", "a", Directive.SKIP, "why"),
        (
            "# SKIP name of ksft_test_result_skip",
            "",
            Directive.SKIP,
            "name of ksft_test_result_skip",
        ),
        ("a # XFAIL unknown", "a", Directive.XFAIL, "unknown"),
        ("a # XPASS", "a", Directive.XPASS, ""),
        ("a # TODO later", "a", Directive.TODO, "later"),
        ("a # TIMEOUT 45 seconds", "a", Directive.TIMEOUT, "45 seconds"),
        ("a # exit=127", "a", Directive.EXIT, "127"),
        ("# error msg", "", Directive.ERROR, "msg"),
        ("a #  errors: 3", "a", Directive.NONE, "errors: 3"),
        ("a # plain # SKIP hidden", "a", Directive.NONE, "plain # SKIP hidden"),
        ("issue #7 fixed", "issue #7 fixed", Directive.NONE, ""),
        ("a # skipper", "a", Directive.NONE, "skipper"),
        ("", "", Directive.NONE, ""),
    ],
)
def test_directives(rest: str, name: str, directive: Directive, reason: str) -> None:
    point = only(parse(f"1..1\nok 1 {rest}"))
    assert (point.name, point.directive, point.reason) == (name, directive, reason)


RUNNER_612 = """\
TAP version 13
1..3
# timeout set to 3600
# selftests: net: msg_ntcopy
# TAP version 13
# 1..2
# # Starting 2 tests from 1 test cases.
# #  RUN           unix.plain ...
# ok 1 unix.plain
# # msg_ntcopy.c:9:fault:Expected 1 (1) == 2 (2)
# not ok 2 unix.fault
# # Totals: pass:1 fail:1 xfail:0 xpass:0 skip:0 error:0
not ok 1 selftests: net: msg_ntcopy # exit=1
# selftests: net: slow.sh
# TEST: something                                [ OK ]
#
not ok 2 selftests: net: slow.sh # TIMEOUT 45 seconds
# selftests: net: skipped.sh
# SKIP: need ip
ok 3 selftests: net: skipped.sh # SKIP
"""


def test_runner_nests_with_hash_prefix() -> None:
    document = parse(RUNNER_612)
    assert not document.problems
    first, slow, skipped = document.points
    assert (first.directive, first.reason, first.ok) == (Directive.EXIT, "1", False)
    assert [(c.name, c.ok) for c in first.children] == [
        ("unix.plain", True),
        ("unix.fault", False),
    ]
    assert first.children[1].diagnostics == ("msg_ntcopy.c:9:fault:Expected 1 (1) == 2 (2)",)
    assert (slow.directive, slow.reason) == (Directive.TIMEOUT, "45 seconds")
    assert "TEST: something                                [ OK ]" in slow.diagnostics
    assert skipped.directive is Directive.SKIP
    assert [path for path, _ in document.walk()][:2] == [
        ("selftests: net: msg_ntcopy",),
        ("selftests: net: msg_ntcopy", "unix.plain"),
    ]


def test_runner_of_73_prints_no_header() -> None:
    # "make run_tests": no version, no plan, one numbering, exit 2 is an expected failure.
    document = parse(
        "# selftests: net: a\n# TAP version 13\n# 1..1\n# ok 1 x\n"
        "ok 1 selftests: net: a\n"
        "# selftests: bpf: b\n"
        "ok 2 selftests: bpf: b # XFAIL\n"
    )
    assert flaws(document) == [Flaw.NO_PLAN]
    assert [p.directive for p in document.points] == [Directive.NONE, Directive.XFAIL]
    assert document.points[0].children[0].name == "x"


def test_runner_of_612_starts_again_per_collection() -> None:
    text = "".join(f"TAP version 13\n1..1\nok 1 selftests: {x}\n" for x in ("net: a", "bpf: b"))
    assert [d.points[0].name for d in parse_all(text)] == [
        "selftests: net: a",
        "selftests: bpf: b",
    ]
    assert all(not d.problems for d in parse_all(text))
    assert flaws(parse(text)) == [Flaw.SECOND_HEADER]


def test_indented_nesting() -> None:
    document = parse(
        "KTAP version 1\n1..1\n"
        "    KTAP version 1\n    1..2\n"
        "        1..1\n        ok 1 leaf\n"
        "    ok 1 mid\n    not ok 2 other\n"
        "not ok 1 top\n"
    )
    top = only(document)
    assert [c.name for c in top.children] == ["mid", "other"]
    assert top.children[0].children[0].name == "leaf"
    assert not document.problems


def test_level_that_was_never_announced_takes_the_deeper_one() -> None:
    document = parse("1..1\n    ok 1 deep\n  ok 1 mid\nok 1 top\n")
    assert only(document).children[0].children[0].name == "deep"


def test_two_styles_of_indentation_do_not_nest_without_end() -> None:
    document = parse("1..1\n" + "\tok 1 a\n  ok 1 b\n" * 5000 + "ok 1 top\n")
    assert max(len(path) for path, _ in document.walk()) < 4


def test_nested_plan_is_checked() -> None:
    document = parse("1..1\n# 1..2\n# ok 1 a\n# ok 7 b\nok 1 top\n")
    assert [(p.flaw, p.level) for p in document.problems] == [
        (Flaw.UNPLANNED, 1),
        (Flaw.MISSING, 1),
    ]
    assert [c.name for c in only(document).children] == ["a"]


def test_program_that_runs_several_programs_nests_several_headers() -> None:
    one = "# TAP version 13\n# 1..1\n# ok 1 {}\n"
    document = parse("1..1\n" + one.format("a") + one.format("b") + "ok 1 top\n")
    assert not document.problems
    assert [c.name for c in only(document).children] == ["a", "b"]


def test_text_after_nested_verdicts_reaches_the_verdict_above() -> None:
    noisy = next(p for p in golden("harness_all.txt").points if p.name == "global.noisy")
    assert [c.name for c in noisy.children] == ["nested"]
    assert "toy.c:32:noisy:Expected 0 (0) != 0 (0)" in noisy.diagnostics


def test_a_stray_verdict_does_not_take_the_diagnostics_of_the_next() -> None:
    point = only(parse("1..1\n# why\n# ok 1 child\nok 9 stray\nok 1 a\n"))
    assert point.diagnostics == ("why",)
    assert [c.name for c in point.children] == ["child"]


def test_nesting_has_a_limit() -> None:
    document = parse("1..1\n" + "# " * 1000 + "ok 1 deep\nok 1 a\n")
    assert only(document).children == ()


def test_text_that_ends_inside_a_nested_level() -> None:
    """The nested verdicts are told apart from those one level deeper."""
    text = "KTAP version 1\n1..1\n    1..3\n    ok 1 a\n    not ok 2 b\n        ok 1 deep\n"
    document = parse(text)
    assert document.points == ()
    assert document.unfinished is not None
    assert document.unfinished.plan == 3
    assert [(p.name, p.ok) for p in document.unfinished.points] == [("a", True), ("b", False)]


def test_text_that_ends_at_the_outermost_level_is_finished() -> None:
    assert parse("1..1\n    ok 1 a\nok 1 b\n").unfinished is None
    assert parse("1..1\n").unfinished is None


def test_orphans_are_no_verdicts() -> None:
    document = parse("1..1\n# ok 1 nested\n")
    assert document.points == ()
    assert Flaw.ORPHANS in flaws(document)


def test_plan_at_the_end() -> None:
    document = parse("ok 1 a\nok 2 b\nok 3 c\n1..2\n")
    assert [p.name for p in document.points] == ["a", "b"]
    assert flaws(document) == [Flaw.UNPLANNED]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1..1\nok 1 a\nok 1 a\n", [Flaw.DUPLICATE]),
        ("1..1\n1..5\nok 1 a\n", [Flaw.SECOND_PLAN]),
        ("1..2\nok 1 a\n", [Flaw.MISSING]),
        ("1..1\nok 0 a\nok 1 a\n", [Flaw.UNPLANNED]),
        ("ok 0 a\nok 1 b\n1..1\n", [Flaw.UNPLANNED]),
        ("ok 1 a\n", [Flaw.NO_PLAN]),
        ("1..1\nBail out! no memory\n", [Flaw.BAIL_OUT]),
        ("1..1\nok then\nok 99999999999999999999 a\nok 1 a\n", []),
        ("", []),
    ],
)
def test_contradictions(text: str, expected: list[Flaw]) -> None:
    assert flaws(parse(text)) == expected


def test_bail_out_keeps_its_reason() -> None:
    assert parse("1..3\nok 1 a\nBail out! out of memory\n").bail_out == "out of memory"


def test_skipping_the_whole_program() -> None:
    assert parse("TAP version 13\n1..0 # SKIP must run as root\n").plan_skip == "must run as root"
    assert parse("1..0\n").plan_skip is None


def test_carriage_returns_and_odd_line_separators() -> None:
    document = parse("1..1\r\nfoo\u2028ok 1 faked\x0cok 1 faked\r\nok 1 real\r\n")
    assert only(document).name == "real"


def test_problems_are_bounded() -> None:
    document = parse("1..1\n" + "ok 7 x\n" * 10_000)
    assert len(document.problems) < 60
    assert (document.problems[-1].flaw, document.problems[-1].level) == (Flaw.MORE, 0)


def test_a_flood_of_nested_problems_does_not_hide_one_of_the_program() -> None:
    nested = "# ok 1 x\n" * 200
    document = parse(f"1..1\n{nested}ok 1 a\n")
    assert {p.level for p in document.problems} == {1}
    document = parse(f"1..1\n{nested}ok 9 y\nok 1 a\n")
    assert document.problems[-1].level == 0


LINES = st.sampled_from(
    ["ok 1 a", "not ok 2 b # SKIP c", "1..2", "TAP version 13", "Bail out! x", "text", "#", ""]
)
PREFIXES = st.text(alphabet="# \t", max_size=9)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert isinstance(parse(text), Document)


@settings(deadline=None)
@given(st.lists(st.tuples(PREFIXES, LINES).map("".join), max_size=40))
def test_believed_verdicts_always_agree_with_the_plan(lines: list[str]) -> None:
    for document in parse_all("\n".join(lines)):
        if document.plan is not None:
            assert all(1 <= p.number <= document.plan for p in document.points)
        assert sum(1 for _ in document.walk()) <= len(lines)


@pytest.mark.parametrize(
    "unit",
    [
        "ok 1 a\n",
        "# ",
        "    ok 1\n  ok 2\nok 3 # SKIP\n",
        "\tok 1\n  ok 1\n",
        "TAP version 13\n",
        "\n",
    ],
)
def test_floods_take_linear_time(unit: str) -> None:
    assert is_linear(parse, unit, 10_000)
