# SPDX-License-Identifier: GPL-2.0-only
"""The tests of page combining fail where they must: on kernels with one thing broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features

from .broken_kernel import Break, Image, Mutant, failures, points

FEATURE = next(f for f in load_features() if f.name == "zerocopy_combine")
PROGRAM = FEATURE.programs[0]

FILL = "zerocopy_fill_skb_from_iter"

#: Comparisons of the fragment before: its page, and where it ends; a jump follows.
SAME_PAGE, ADJACENT = "4c39ff0f84", "4939f70f85"


def _mutant(change: Break, *, fail: Iterable[str], stay: Iterable[str]) -> Mutant:
    broken = points(PROGRAM, *fail)
    return Mutant(change, broken | points(PROGRAM, *stay), broken)


def _code(*changes: tuple[str, str]) -> Break:
    """Other instructions, each of which the function has once."""

    def change(image: Image) -> None:
        for old, new in changes:
            image.replace(FILL, old, new, times=1)

    return change


def _jump(comparison: str, new: str) -> Break:
    """Other code for the long conditional jump behind a comparison."""

    def change(image: Image) -> None:
        body, code = image.body(FILL), bytes.fromhex(comparison)
        if body.count(code) != 1:
            pytest.skip(f"{FILL} was compiled to other instructions than expected")
        image.change(FILL, body.find(code) + len(code) - 2, bytes.fromhex(new))

    return change


NO_JUMP, JUMP_ALWAYS = "660f1f440000", "90e9"

MUTANTS: Mapping[str, Mutant] = {
    "never-joined": _mutant(
        _jump(SAME_PAGE, NO_JUMP),
        fail=[
            r"combine\.(hugetlb|thp)_.*\.(fragments|offsets|crossing|gaps|limit|references)",
            r"stream\.(hugetlb|thp)_.*\.references_appended",
            r"claim\..*",
        ],
        stay=[r"combine\.base_.*\.(fragments|offsets|crossing|fault)", r"uncopied\..*"],
    ),
    "joined-across-compound-pages": _mutant(
        _jump(SAME_PAGE, JUMP_ALWAYS),
        fail=[r"combine\..*\.gaps"],
        stay=[r"combine\..*\.(fragments|crossing|limit)", r"claim\..*"],
    ),
    "joined-over-gaps": _mutant(
        _jump(ADJACENT, NO_JUMP),
        fail=[r"combine\..*\.(gaps|references)", r"combine\.(hugetlb|thp)_.*\.limit"],
        stay=[r"combine\..*\.(fragments|offsets|crossing)", r"claim\..*"],
    ),
    "offset-doubled": _mutant(
        _code(("49c1e00c4c01c6", "49c1e00d4c01c6")),
        fail=[r"combine\.(hugetlb_tcp4|thp_udp6)\.(fragments|offsets|crossing)"],
        stay=[r"combine\.base_(tcp4|udp6)\.(fragments|offsets|crossing|gaps)"],
    ),
    "size-not-added": _mutant(
        _code(("4101d24c89642410", "9090904c89642410")),
        fail=[r"combine\.(hugetlb|thp)_.*\.(fragments|offsets|gaps)", r"claim\..*"],
        stay=[r"combine\.base_.*\.(fragments|offsets|crossing)", r"uncopied\..*"],
    ),
    "fewer-fragments": _mutant(
        _code(("83fb11", "83fb10"), ("bd11000000", "bd10000000")),
        fail=[r"combine\..*\.limit"],
        stay=[r"combine\..*\.(fragments|gaps|references)", r"claim\..*"],
    ),
    "references-kept-at-the-end": _mutant(
        _code(("f041296e344d85ff", "0f1f4400004d85ff")),
        fail=[
            r"combine\.(hugetlb_tcp4|thp_udp6)\.(fault|references|released)",
            r"combine\.base_tcp6\.references",
            r"stream\..*\.references_appended",
        ],
        stay=[r"combine\.(hugetlb_tcp4|base_tcp6)\.(fragments|gaps|limit)"],
    ),
    "references-kept-between-pages": _mutant(
        _code(("f041296e34488b742410", "0f1f440000488b742410")),
        fail=[r"combine\.(hugetlb_tcp4|thp_udp6|base_tcp6)\.(references|released)"],
        stay=[r"combine\.(hugetlb_tcp4|base_tcp6)\.(fragments|gaps|limit)"],
    ),
    "failed-call-is-not-taken-back": _mutant(
        lambda image: image.retarget("skb_zerocopy_iter_stream", "___pskb_trim", None),
        fail=[r"combine\..*_tcp.\.fault_appended"],
        stay=[r"combine\..*_udp.\.fault_appended", r"combine\..*\.(fragments|fault)"],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_fails_its_cases_and_no_others(
    name: str, selftests: Mapping[str, Path], broken: Callable[[Break], Path]
) -> None:
    mutant = MUTANTS[name]
    assert failures(broken(mutant.change), selftests, PROGRAM, mutant.run) == mutant.fail
