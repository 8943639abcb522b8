# SPDX-License-Identifier: GPL-2.0-only
"""Chains of calls from one function to another, in a program assembled for the purpose."""

from __future__ import annotations

import pytest

from ktest_ntcopy.image.code.paths import CodeError, CodePaths
from tests.unit.assembled import assembled, function, leaves

CHAIN = (
    leaves("target", "unrelated", "callback_target")
    + function("last", "call unrelated", "jmp target")
    + function("middle", "call last", "ret")
    + function("callback", "call callback_target", "ret")
    + function("source", "call unrelated", "call middle", "lea callback(%rip), %rdi", "ret")
    + function("detour", "call target", "ret")
    + function("longer", "call detour", "call middle", "ret")
    + function("ping", "call pong", "ret")
    + function("pong", "call ping", "ret")
    + "\t.data\n\t.globl object\n\t.type object, @object\nobject:\n\t.quad 1\n\t.size object, 8\n"
)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> CodePaths:
    return assembled(tmp_path_factory.mktemp("chain"), CHAIN)


def test_shortest_chain(chain: CodePaths) -> None:
    path = chain.path("longer", "target")
    assert path.found
    assert [name for name, _ in path.steps] == ["longer", "detour"]
    assert path.steps[-1][1].name == "target"


def test_a_chain_says_where_each_call_is(chain: CodePaths) -> None:
    path = chain.path("source", "target")
    first, second, third = (call.at for _, call in path.steps)
    assert path.detail == (
        f"source -> middle (at {first:#x}) -> last (at {second:#x}) "
        f"-> target (jumps, at {third:#x})"
    )


def test_named_functions_must_lie_between(chain: CodePaths) -> None:
    assert chain.path("source", "target", through=["middle", "last"]).found
    path = chain.path("longer", "target", through=["middle", "last"])
    assert [name for name, _ in path.steps] == ["longer", "middle", "last"]
    missing = chain.path("source", "target", through=["middle"])
    assert missing.found is False
    assert missing.detail == (
        "middle calls last; not target; but there is middle -> last -> target"
    )
    reordered = chain.path("source", "target", through=["last", "middle"])
    assert reordered.found is False


def test_named_functions_may_be_inlined(chain: CodePaths) -> None:
    path = chain.path("source", "target", through=["nowhere", "middle", "detour", "last"])
    assert path.found
    assert path.detail.endswith("; inlined: nowhere; not through detour")


def test_callbacks_count_only_if_they_are_named(chain: CodePaths) -> None:
    path = chain.path("source", "callback_target", through=["callback"])
    assert path.found
    assert "callback (address taken, at " in path.detail
    missing = chain.path("source", "callback_target")
    assert missing.found is False
    taken = chain.path("source", "callback")
    assert taken.found is False
    assert taken.detail.endswith("not callback, but takes its address")


def test_cycles_end(chain: CodePaths) -> None:
    path = chain.path("ping", "target")
    assert path.found is False
    assert path.detail == "ping does not reach target; ping calls pong; not target"
    assert path.complete


def test_limit_of_a_search(chain: CodePaths) -> None:
    path = chain.path("source", "target", limit=2)
    assert path.found is False
    assert not path.complete
    assert path.detail.startswith("source does not reach target within 2 functions; source calls ")
    assert chain.path("source", "target", limit=4).found


def test_what_is_missing_is_named(chain: CodePaths) -> None:
    path = chain.path("sourze", "target")
    assert path.found is False
    assert path.detail == "no function sourze (not built, or inlined wherever it is called)"
    assert path.nearest[0] == "source"
    path = chain.path("source", "targets", through=["middle", "last"])
    assert path.found is False
    assert path.detail == (
        "last calls unrelated, target; "
        "no function targets (not built, or inlined wherever it is called)"
    )
    assert "target" in path.nearest
    assert "is no function but of type object" in chain.path("source", "object").detail
    with pytest.raises(CodeError, match="no function sourze"):
        chain.calls("sourze")
