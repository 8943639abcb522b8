# SPDX-License-Identifier: GPL-2.0-only
"""Mutants: their files, making and mending them, and what counts as caught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BuildError, ConfigError, PatchError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.kernel import build
from ktest_ntcopy.kernel.tree import Tree, recognise
from ktest_ntcopy.mutants import main, trial, workshop
from ktest_ntcopy.mutants.mutant import Mutant, parse, read, select
from ktest_ntcopy.mutants.trial import Outcome, Trial
from ktest_ntcopy.results.model import Cause, Result, Status
from tests.unit.kernel_trees import SOCKET, make_tree

DIFF = """\
diff --git a/net/socket.c b/net/socket.c
--- a/net/socket.c
+++ b/net/socket.c
@@ -1,3 +1,3 @@
 line 1
-line 2
+broken
 line 3
"""
HEAD = """\
SPDX-License-Identifier: GPL-2.0
Feature: msg_ntcopy
Breaks: the second line
Caught-by: covered.*.sendto
Caught-by: stream.*
"""
PATH = Path("mutants/6.12/msg_ntcopy/second-line.patch")


def test_a_file_says_feature_fault_and_tests() -> None:
    mutant = parse(PATH, f"{HEAD}\n{DIFF}")
    assert mutant.name == "msg_ntcopy/second-line"
    assert mutant.breaks == "the second line"
    assert mutant.caught_by == ("covered.*.sendto", "stream.*")
    assert mutant.names("covered.tcp4.sendto")
    assert not mutant.names("covered.tcp4.sendmsg")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DIFF, "header 'SPDX-License-Identifier:' is missing"),
        (HEAD.replace("Breaks", "Break") + "\n" + DIFF, "unknown header 'Break'"),
        (HEAD.replace("msg_ntcopy", "other") + "\n" + DIFF, "no feature 'other'"),
        (HEAD.split("Caught")[0] + "\n" + DIFF, "header 'Caught-by:' is missing"),
        (HEAD + "\nno diff\n", "has no patch"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"second-line\.patch: ") as caught:
        parse(PATH, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_feature_has_mutants_and_all_name_tests_that_exist() -> None:
    mutants = read("6.12")
    assert len(mutants) >= 20
    assert {m.feature for m in mutants} == {f.name for f in load_features()}
    for feature in load_features():
        cases = [p for program in feature.programs for p in program.points()]
        cases += [case.name for suite in feature.kunit for case in suite.cases]
        for mutant in (m for m in mutants if m.feature == feature.name):
            for pattern in mutant.caught_by:
                single = replace(mutant, caught_by=(pattern,))
                assert any(map(single.names, cases)), f"{mutant.name}: nothing matches {pattern}"
                assert not all(map(single.names, cases)), f"{mutant.name}: {pattern} names nothing"


def test_mutants_are_chosen_by_name_or_feature() -> None:
    one = parse(PATH, f"{HEAD}\n{DIFF}")
    assert select([one], []) == (one,)
    assert select([one], ["msg_ntcopy"]) == (one,)
    assert select([one], ["msg_ntcopy/second*"]) == (one,)
    with pytest.raises(ConfigError, match="no mutant 'third'; there are msg_ntcopy/second-line"):
        select([one], ["third"])


@pytest.fixture
def mutant(tmp_path: Path) -> Mutant:
    path = tmp_path / "second-line.patch"
    path.write_text(f"{HEAD}\n{DIFF}", encoding="utf-8")
    return parse(path, path.read_text(encoding="utf-8"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return recognise(make_tree(tmp_path / "tree"))


def _shop(tree: Tree, tmp_path: Path) -> workshop.Workshop:
    built = tmp_path / "build"
    built.mkdir(exist_ok=True)
    (built / ".socket.o.cmd").write_text(f"gcc -I{tree.path}/include\n", encoding="utf-8")
    (built / build.STAMP).write_text("{}", encoding="utf-8")
    return workshop.open_workshop(tree, built, lambda _: None)


def test_a_mutant_is_in_the_copy_while_it_is_tried_and_nowhere_else(
    tree: Tree, mutant: Mutant, tmp_path: Path
) -> None:
    shop = _shop(tree, tmp_path)
    with shop.broken(mutant):
        assert "broken" in (shop.tree.path / "net/socket.c").read_text(encoding="utf-8")
        assert (tree.path / "net/socket.c").read_text(encoding="utf-8") == SOCKET
        # Were this process killed now, the next one would know what to mend.
        assert (shop.out / workshop.BROKEN).read_text(encoding="utf-8") == "net/socket.c"
    assert (shop.tree.path / "net/socket.c").read_text(encoding="utf-8") == SOCKET


def test_a_copied_build_names_the_copied_tree(tree: Tree, tmp_path: Path) -> None:
    shop = _shop(tree, tmp_path)
    record = (shop.out / ".socket.o.cmd").read_text(encoding="utf-8")
    assert record == f"gcc -I{shop.tree.path}/include\n"


def test_what_a_killed_run_left_broken_is_mended(tree: Tree, tmp_path: Path) -> None:
    shop = _shop(tree, tmp_path)
    (shop.tree.path / "net/socket.c").write_text("broken\n", encoding="utf-8")
    (shop.out / workshop.BROKEN).write_text("net/socket.c", encoding="utf-8")
    again = _shop(tree, tmp_path)
    assert (again.tree.path / "net/socket.c").read_text(encoding="utf-8") == SOCKET
    assert not (again.out / workshop.BROKEN).exists()


def test_a_new_build_is_copied_anew(tree: Tree, tmp_path: Path) -> None:
    shop = _shop(tree, tmp_path)
    (shop.out / "old").touch()
    (tmp_path / "build" / build.STAMP).write_text('{"a": 1}', encoding="utf-8")
    again = workshop.open_workshop(tree, tmp_path / "build", lambda _: None)
    assert not (again.out / "old").exists()


def test_a_mutant_that_does_not_fit_says_so(tree: Tree, mutant: Mutant) -> None:
    (tree.path / "net/socket.c").write_text("other\n", encoding="utf-8")
    with pytest.raises(PatchError, match=r"second-line\.patch: does not apply"):
        workshop.apply(tree.path, mutant)


def test_misfits_are_named_and_counted(
    tree: Tree, mutant: Mutant, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.check([mutant], tree) == 0
    assert capsys.readouterr().out == "1 of 1 mutants apply to Linux 6.12.1\n"
    (tree.path / "net/socket.c").write_text("other\n", encoding="utf-8")
    assert main.check([mutant], tree) == 1
    assert "second-line.patch: does not apply" in capsys.readouterr().out


def _result(case: str, status: Status, cause: Cause = Cause.NONE) -> Result:
    return Result(target="kselftest.net", program="p", case=case, status=status, cause=cause)


FAIL = (Status.FAIL, Cause.ASSERTION)
BOOT = (Status.ERROR, Cause.BOOT)


@pytest.mark.parametrize(
    ("cases", "outcome", "first"),
    [
        ([_result("a", Status.PASS)], Outcome.SURVIVED, ""),
        ([_result("a", *FAIL), _result("named", *FAIL)], Outcome.CAUGHT, "named"),
        ([_result("a", *FAIL), _result("named", Status.PASS)], Outcome.MISSED, "a"),
        ([_result("named", *BOOT)], Outcome.UNTRIED, ""),
        ([_result("a", *FAIL), _result("named", *BOOT)], Outcome.MISSED, "a"),
        ([_result("named", Status.ERROR, Cause.PANIC)], Outcome.CAUGHT, "named"),
        ([_result("named", Status.FAIL, Cause.SPLAT)], Outcome.CAUGHT, "named"),
        ([], Outcome.UNTRIED, "the run broke off before a test failed"),
        (
            [_result("a", Status.PASS), _result("named", Status.ERROR, Cause.NOT_RUN)],
            Outcome.UNTRIED,
            "the run broke off before a test failed",
        ),
    ],
)
def test_only_a_test_that_names_the_property_catches_it(
    cases: list[Result], outcome: Outcome, first: str
) -> None:
    assert Trial(tuple(cases)).verdict(lambda name: name == "named") == (outcome, first)


def _run(
    monkeypatch: pytest.MonkeyPatch, tree: Tree, mutant: Mutant, tmp_path: Path, broken: object
) -> int:
    """`ktest-ntcopy mutants` with the compiler and the guest replaced."""
    shop = _shop(tree, tmp_path)

    def make(self: workshop.Workshop, title: str) -> Path:
        is_broken = "broken" in (self.tree.path / "net/socket.c").read_text(encoding="utf-8")
        if is_broken and isinstance(broken, Exception):
            raise broken
        (self.out / "vmlinux").write_text("broken" if is_broken else "", encoding="utf-8")
        return self.out / "vmlinux"

    def run(kernel: Path, *_: object) -> Trial:
        status = broken if kernel.read_text(encoding="utf-8") else Status.PASS
        assert isinstance(status, Status)
        return Trial((_result("covered.tcp4.sendto", status, Cause.ASSERTION),))

    monkeypatch.setattr(workshop.Workshop, "build", make)
    monkeypatch.setattr(trial, "run", run)
    assert shop.out.exists()
    return main.run([mutant], tree.path, tmp_path / "build/vmlinux", lambda _: None)


@pytest.mark.parametrize(
    ("broken", "status", "said"),
    [
        (Status.FAIL, 0, "| caught  | covered.tcp4.sendto"),
        (Status.PASS, 1, "| survived |"),
        (BuildError("does not build: x"), 1, "| untried | does not build: x"),
    ],
)
def test_the_exit_status_tells_whether_all_were_caught(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tree: Tree,
    mutant: Mutant,
    tmp_path: Path,
    broken: object,
    status: int,
    said: str,
) -> None:
    assert _run(monkeypatch, tree, mutant, tmp_path, broken) == status
    assert said in capsys.readouterr().out
