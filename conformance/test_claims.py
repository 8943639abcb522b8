# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's documentation still says what tests of this suite take from it.

A document that was rewritten is to be read again: its claims, and the tests with them,
may have changed.  Needs the source tree of the kernel under test, and no machine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.claims import CLAIMS, FOLDER, Claim, stale
from ktest_ntcopy.image.file.kernel_file import KernelFile

for module in sorted(Path(__file__).parent.glob("test_*.py")):
    if module.name != Path(__file__).name:
        importlib.import_module(f"conformance.{module.stem}")


@pytest.mark.vmlinux
@pytest.mark.parametrize("made", CLAIMS, ids=str)
def test_document_still_says_so(
    kernel_file: KernelFile | None, kernel_has: Callable[[str], bool], made: Claim
) -> None:
    """The words that a test goes by are where it found them."""
    if kernel_file is None or kernel_file.source_tree is None:
        pytest.skip("no source tree: give --kernel a build directory or the vmlinux in it")
    if made.feature and not kernel_has(made.feature):
        pytest.skip(f"the kernel is without {made.feature}")
    path = kernel_file.source_tree / FOLDER / made.document
    if not path.is_file():
        pytest.fail(f"{kernel_file.source_tree} has no {FOLDER}/{made.document}", pytrace=False)
    if why := stale(made, path.read_text(encoding="utf-8", errors="replace")):
        pytest.fail(why, pytrace=False)
