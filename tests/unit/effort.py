# SPDX-License-Identifier: GPL-2.0-only
"""Bounds on work, in CPU time, that slow and busy machines keep as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What :func:`_loop` takes on the machine that the bounds were found on, in seconds of CPU.
USUAL = 0.009
#: How far a bound may be passed on a machine of that speed: caches and turbo clocks are shared.
MARGIN = 3.0


def _loop() -> None:
    table: dict[int, str] = {}
    for n in range(100_000):
        table[n % 1000] = str(n)


def cost(action: Callable[[], object]) -> float:
    """Seconds of CPU that the cheaper of two calls takes."""
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return best


@contextmanager
def cpu_below(seconds: float, what: object = "") -> Iterator[None]:
    """Hold what is done meanwhile to ``seconds`` of CPU, and more on a slower machine."""
    start = time.process_time()
    yield
    spent = time.process_time() - start
    if spent >= seconds:
        slowness = max(1.0, cost(_loop) / USUAL)
        assert spent < MARGIN * slowness * seconds, what


def is_linear(work: Callable[[str], object], unit: str, length: int) -> bool:
    """True unless ``work`` costs far more than in proportion to a text of many units.

    ``length`` is that of the short text, in characters.  For a text of 16 times that length,
    quadratic work would cost 256 times as much.
    """

    def spent(size: int) -> float:
        text = unit * (size // len(unit))
        return cost(lambda: work(text))

    return spent(16 * length) < 64 * max(spent(length), 0.002)
