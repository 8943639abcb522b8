# SPDX-License-Identifier: GPL-2.0-only
"""The MSG_ZEROCOPY_UARG table is measured in a booted kernel, and refuses one without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ktest_ntcopy import zerocopy_table
from ktest_ntcopy.errors import KtestError
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.kernel.process import silent


@pytest.fixture
def tree(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source tree; limits and links are reduced to what may differ."""
    monkeypatch.setattr(zerocopy_table, "LIMITS", (1, 8))
    monkeypatch.setattr(zerocopy_table, "LINKS", zerocopy_table.LINKS[::3])
    found = open_kernel(kernel).source_tree
    assert found is not None, f"{kernel} does not lie in a build folder of its source"
    return found


def test_completions_from_sendmsg_take_fewer_calls(kernel: Path, tree: Path) -> None:
    rounds, _ = zerocopy_table.measure(kernel, tree, seconds=1, repeat=1, notify=silent)
    for (limit, link), (runs,) in rounds.items():
        queue, ours = runs["-z"], runs["-n"]
        assert queue.reads / queue.completions > 0.9 / limit, (limit, link)
        # Only what completes after the last send is read from the error queue.
        assert ours.reads < queue.reads / 2, (limit, link)
        assert runs["copy"].completions == 0


def test_a_kernel_without_the_flag_is_refused(tree: Path) -> None:
    named = os.environ.get("KTEST_KERNEL_UNPATCHED")
    if not named:
        pytest.fail("set KTEST_KERNEL_UNPATCHED to a kernel without the series")
    with pytest.raises(KtestError, match=r"TCP v4, limit 1: .*Invalid argument"):
        zerocopy_table.measure(Path(named), tree, seconds=1, repeat=1, notify=silent)
