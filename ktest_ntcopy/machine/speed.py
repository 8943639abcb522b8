# SPDX-License-Identifier: GPL-2.0-only
"""From measurements in a guest to the factor that its time limits are multiplied by."""

from __future__ import annotations

#: What the agent's fixed pieces of work take on a machine of reference speed, seconds.
REFERENCE_COMPUTE = 0.00017
REFERENCE_KERNEL = 0.00020
#: A boot that takes longer than this, in seconds, means a slow machine whatever they say.
REFERENCE_BOOT = 3.0
SLOWDOWN_MAX = 30.0


def measured_slowdown(compute: float, kernel: float, boot: float) -> float:
    """How many times slower than the reference a machine is; at least 1.

    ``compute`` and ``kernel`` are the agent's two measurements, ``boot`` the
    time until it answered, all in seconds.  The worst of them counts: emulation
    slows arithmetic, a debug kernel slows system calls.
    """
    ratio = max(compute / REFERENCE_COMPUTE, kernel / REFERENCE_KERNEL, boot / REFERENCE_BOOT)
    return min(max(1.0, ratio), SLOWDOWN_MAX)
