# SPDX-License-Identifier: GPL-2.0-only
"""Hooks that ktest_ntcopy calls; another plugin or a conftest.py may implement them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ktest_ntcopy.image.file.kernel_file import KernelFile
    from ktest_ntcopy.machine.base import Machine, MachineSpec


@pytest.hookspec(firstresult=True)
def pytest_ktest_make_machine(config: pytest.Config, spec: MachineSpec) -> Machine | None:
    """Make the machine, not yet booted, that runs what ``spec`` describes.

    Called in the process that runs the tests, whenever it needs a (new) machine.
    The first answer that is not None is taken; the last one to be asked makes a
    QEMU machine.
    """


@pytest.hookspec(firstresult=True)
def pytest_ktest_build_programs(
    config: pytest.Config, kernel: KernelFile
) -> Mapping[str, Path] | None:
    """Make the test programs and tell where each goes: path in the guest -> file here.

    Called once per run, before the first test, in the process that does not run
    tests where there is such a one.  May raise KtestError.  The first answer that
    is not None is taken; the last one to be asked generates and compiles them.
    """


@pytest.hookspec(firstresult=True)
def pytest_ktest_needs_programs(config: pytest.Config, nodeid: str) -> bool | None:
    """Whether a test in Python needs the test programs in its guest.

    Called in the process that makes them, for each selected test that was not
    collected from a feature file.  The first answer that is not None is taken; a test
    that nobody speaks for may take the ``guest`` fixture, so the programs are made.
    """
