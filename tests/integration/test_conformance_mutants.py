# SPDX-License-Identifier: GPL-2.0-only
"""The conformance suite fails where it must: on kernels with one thing broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.features import feature
from tests.unit.spawned import run_pytest

from .broken_kernel import Break, Image
from .test_combine_mutants import MUTANTS as COMBINE
from .test_nocache_mutants import MUTANTS as NOCACHE

#: The feature file names the function that tells the caller.
UARG_REPORT = next(e.name for e in feature("msg_zerocopy_uarg").expectations if e.marker)
RETURN = bytes.fromhex("c3")


@dataclass(frozen=True)
class Mutant:
    """What is broken, what is selected, and which of the selected tests must fail."""

    change: Break
    select: str
    fail: str  #: matches what must fail, and nothing else


def _returns_at_once(function: str, feature: str = "") -> Break:
    def change(image: Image) -> None:
        if feature:
            image.need(function, feature)
        image.change(function, 0, RETURN)

    return change


def _flag_is_never_set(image: Image) -> None:
    """Without ``bts $SOCK_TIMESTAMPING_ANY,(%rax)``."""
    name, place = "SOCK_TIMESTAMPING_ANY", "sock_set_timestamping"
    if name not in image.btf.enumerators:
        pytest.skip(f"{image.path} has no {name} to break")
    bit = image.btf.enumerators[name]
    image.replace(place, f"480fba28{bit:02x}", "0f1f440000", times=1)


MUTANTS: Mapping[str, Mutant] = {
    "flag-is-never-set": Mutant(
        _flag_is_never_set,
        "test_setting_of_one_socket or test_getsockopt_tells",
        r"test_setting_of_one_socket.*",
    ),
    "tcp-does-not-tell": Mutant(
        _returns_at_once("tcp_recv_timestamp"),
        "test_accepted_socket_inherits or test_setting_of_one_socket",
        r"test_accepted_socket_inherits\[.*-0x10-.*\]",
    ),
    "offered-on-loopback": Mutant(
        NOCACHE["offered-on-loopback"].change,
        "loopback_neither or new_device",
        r"test_loopback_neither.*",
    ),
    "pages-are-never-joined": Mutant(
        COMBINE["never-joined"].change,
        "(test_segment_of or test_segments_arrive) and not nocache",
        r"test_segment_of_a_huge_page_is_one_fragment\[.*\]",
    ),
    "failed-calls-are-counted": Mutant(
        # What takes a call back leaves the counter as it is, and the memory charged.
        _returns_at_once("msg_zerocopy_put_abort"),
        "test_failures_do_not_count or test_flag_is_ignored",
        r"test_failures_do_not_count\[.*\]",
    ),
    "nothing-is-told": Mutant(
        _returns_at_once("zerocopy_uarg_report", "MSG_ZEROCOPY_UARG"),
        "test_failed_call_tells_too or test_unsound_placeholders",
        r"test_failed_call_tells_too\[.*\]",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_fails_its_tests_and_no_others(
    name: str, broken: Callable[[Break], Path], tmp_path: Path
) -> None:
    mutant = MUTANTS[name]
    words = ["conformance", f"--kernel={broken(mutant.change)}", "-k", mutant.select]
    words += [f"--ktest-journal={tmp_path}/journal.ndjson", "--tb=no", "-v", "-p", "no:xdist"]
    done = run_pytest("-p", "no:cacheprovider", *words, timeout=600)
    print(done.stdout)  # for whoever wants to know why a test did not do what it should
    verdicts = re.findall(r"^conformance/\S+::(\S+) (PASSED|FAILED|ERROR)", done.stdout, re.M)
    failed = {test for test, verdict in verdicts if verdict != "PASSED"}
    passed = {test for test, verdict in verdicts if verdict == "PASSED"}
    assert failed
    assert passed
    assert all(re.fullmatch(mutant.fail, test) for test in failed), failed
    assert not any(re.fullmatch(mutant.fail, test) for test in passed), passed
