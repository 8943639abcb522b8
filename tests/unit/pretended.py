# SPDX-License-Identifier: GPL-2.0-only
"""What machines that only tests know say of themselves."""

from __future__ import annotations

from ktest_ntcopy.machine.base import MachineInfo

INFO = MachineInfo(
    kind="pretended",
    accel="tcg",
    arch="x86_64",
    release="6.12",
    version="#1",
    boot_seconds=1.0,
    slowdown=1.0,
    command_line=(),
)
