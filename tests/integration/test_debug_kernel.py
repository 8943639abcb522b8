# SPDX-License-Identifier: GPL-2.0-only
"""A kernel that watches itself, named by ``KTEST_KERNEL_DEBUG``: `make debug` builds it.

Its build takes as long as that of the ordinary one, so that `make test` does without.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ktest_ntcopy.session import AFTERMATH
from tests.unit.spawned import run_pytest

from .broken_kernel import Break, Image

MEMORY = 1024  # MiB; a kernel with KASAN takes half of what ordinary guests have
CASES = ("each.tcp4.ranges", "each.udp6.no_room")


@pytest.fixture(scope="session")
def debug_kernel() -> Path:
    named = os.environ.get("KTEST_KERNEL_DEBUG")
    if not named:
        pytest.skip("set KTEST_KERNEL_DEBUG to the vmlinux that `ktest-ntcopy build --debug` makes")
    return Path(named).absolute()


def broken(kernel: Path, change: Break, folder: Path) -> Path:
    """A copy of the kernel with that change, and its configuration beside it."""
    image = Image(kernel)
    image.need("zerocopy_uarg_report", "MSG_ZEROCOPY_UARG")
    change(image)
    data = bytearray(kernel.read_bytes())
    for at, new in image.patches:
        data[at : at + len(new)] = new
    path = folder / "vmlinux"
    path.write_bytes(data)
    return path


def run_cases(kernel: Path, folder: Path) -> tuple[int, dict[str, str]]:
    """Run the cases by the plugin: its exit status, and what JUnit says failed."""
    report = folder / "junit.xml"
    done = run_pytest(
        f"--kernel={kernel}",
        f"--ktest-memory={MEMORY}",
        f"--junitxml={report}",
        "-q",
        *(f"msg_zerocopy_uarg::{case}" for case in CASES),
        cwd=folder,
        timeout=900,
    )
    print(done.stdout)
    cases = ElementTree.parse(report).iter("testcase")
    failed = {c.attrib["name"]: c.find("failure") for c in cases}
    return done.returncode, {
        name: failure.attrib["message"] for name, failure in failed.items() if failure is not None
    }


def test_nothing_is_lost(debug_kernel: Path, tmp_path: Path) -> None:
    assert run_cases(debug_kernel, tmp_path) == (0, {})


def test_a_leak_is_its_cases(debug_kernel: Path, tmp_path: Path) -> None:
    """Completions that were told are not freed."""

    def keep(image: Image) -> None:
        image.retarget("zerocopy_uarg_report", "consume_skb", None)

    status, failed = run_cases(broken(debug_kernel, keep, tmp_path), tmp_path)
    assert status == 1
    assert set(failed) == set(CASES)
    for message in failed.values():
        assert re.match(rf"{AFTERMATH}: \d+ leaks?, \d+ bytes from \w+\(\) by ", message)
