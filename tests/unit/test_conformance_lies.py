# SPDX-License-Identifier: GPL-2.0-only
"""The conformance tests notice a C library whose flagged sends differ from plain ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from conformance.test_msg_ntcopy import FLAG
from tests.unit.spawned import run_pytest

#: Lie -> a test that must notice it, and one that must not be disturbed by it.
LIES = {
    "refuse": ("test_socket_without_a_peer", "none: all of them send with the flag"),
    "change": ("test_payload_arrives", "test_unreadable_payload"),
    "drop": ("test_payload_arrives", "test_unreadable_payload"),
    "short": ("test_payload_arrives", "test_unreadable_payload"),
    "twice": ("test_payload_arrives", "test_unreadable_payload"),
    "sticky": ("test_flagged_and_plain_share_a_socket", "test_payload_arrives"),
    "no-control": ("test_file_descriptors_travel_along", "test_payload_arrives"),
    "fault-is-invalid": ("test_unreadable_payload", "test_payload_arrives"),
    "fault-is-success": ("test_payload_that_runs_into", "test_payload_arrives"),
    "full-is-nobufs": ("test_nonblocking_calls_stop", "test_payload_arrives"),
    "closed-is-reset": ("test_stream_that_is_shut_down", "test_payload_arrives"),
    "long-is-full": ("test_record_that_is_too_long", "test_payload_arrives"),
    "batch-skips": ("test_batch_stops_at_an_unreadable", "test_payload_arrives"),
}


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("liar") / "liar.so"
    source = Path(__file__).with_name("liar.c")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", f"-DFLAG={FLAG}"]
    subprocess.run([*command, "-o", str(out), str(source)], check=True)
    return out


#: Lie -> what to select, the test that must notice it, one that must not be disturbed.
#: The selected tests use loopback, or devices in namespaces of their own.
OTHER_LIES = {
    "no-stamp": ("udp4 and table", "test_report_is_as_the_table", "test_payload_arrives"),
    "stamp-of-1970": ("udp4 and table", "test_report_is_as_the_table", "test_payload_arrives"),
    "stamp-of-hardware": ("tcp4 and table", "test_report_is_as_the_table", "none"),
    "old-stamps-only": ("udp6 and table", "test_report_is_as_the_table", "none"),
    "takes-any-bit": ("refused", "test_refused_call_changes_nothing", "test_option_is_refused"),
    "completion-too-early": ("base-udp4", "test_payload_arrives_and_every", "test_nothing"),
    # Other tests wait for the one that was skipped until their patience ends.
    "completion-skips-one": ("base-tcp6 and memory_may", "test_memory_may", "test_nothing"),
    "completion-is-an-error": ("base-udp6", "test_segments_arrive", "test_nothing"),
    "never-copied": ("loopback", "test_loopback_copies_and_says_so", "test_loopback_neither"),
    "feature-is-stuck": ("nocache", "test_goes_on_and_off", "test_new_device_offers"),
    "features-are-on": ("nocache", "test_new_device_offers", "test_segments_arrive"),
    "features-are-fixed": ("nocache", "test_new_device_offers", "test_payload_arrives"),
    "loopback-offers-all": ("nocache", "test_loopback_neither", "test_goes_on_and_off"),
}


def run(liar: Path, lie: str, select: str = "unix") -> tuple[set[str], int]:
    """Tests that failed, and how many passed; AF_UNIX alone by default, for speed."""
    env = {"LD_PRELOAD": str(liar), "LIE": lie, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["-q", "-p", "no:cacheprovider", "-k", select, "--tb=no", "-rf", "conformance"]
    done = run_pytest(*words, env=env)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    failed = set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE))
    return failed, int(passed[1]) if passed else 0


def test_the_truth_passes(liar: Path) -> None:
    failed, passed = run(liar, "")
    assert not failed
    assert passed > 60


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_noticed(liar: Path, lie: str) -> None:
    noticed, undisturbed = LIES[lie]
    failed, _ = run(liar, lie)
    assert any(name.startswith(noticed) for name in failed)
    assert not any(name.startswith(undisturbed) for name in failed)


@pytest.mark.parametrize("lie", OTHER_LIES)
def test_a_lie_about_other_things_is_noticed(liar: Path, lie: str) -> None:
    select, noticed, undisturbed = OTHER_LIES[lie]
    failed, passed = run(liar, lie, select)
    if select == "nocache" and not failed and not passed:
        pytest.skip("this host lets nobody make network devices")
    assert any(name.startswith(noticed) for name in failed)
    assert not any(name.startswith(undisturbed) for name in failed)
