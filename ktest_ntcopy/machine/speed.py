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


#: A guest may be silent this many times as long as it has been before.
_PATIENCE = 10.0
#: Seconds between two looks that count; more means that this process itself stood still.
_LOOK_MAX = 1.0


class Silence:
    """Tells when a booting guest has printed nothing for too long.

    ``limit`` is in seconds; ``now`` is time.monotonic().  Silence counts from the first
    line on.  The limit grows with the longest pause so far: on a loaded host, all take long.
    """

    def __init__(self, limit: float, now: float) -> None:
        self.seconds = 0.0  #: of the silence that lasts
        self._limit = limit
        self._longest = 0.0
        self._looked = now
        self._heard = 0.0

    def too_long(self, now: float, heard: float) -> bool:
        """Look again; ``heard`` is the time of the last byte, 0 if there was none."""
        if heard != self._heard:
            self._longest = max(self._longest, self.seconds)
            self.seconds = 0.0
        elif heard:
            self.seconds += min(now - self._looked, _LOOK_MAX)
        self._heard, self._looked = heard, now
        return self.seconds > max(self._limit, _PATIENCE * self._longest)
