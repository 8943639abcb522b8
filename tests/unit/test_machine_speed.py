# SPDX-License-Identifier: GPL-2.0-only
"""When a booting guest has been silent for too long."""

from __future__ import annotations

from ktest_ntcopy.machine.speed import Silence


def looks(silence: Silence, *, start: float, seconds: float, heard: float) -> list[float]:
    """Times of the looks, four a second, at which the silence was too long."""
    times = [start + n / 4 for n in range(int(seconds * 4) + 1)]
    return [t for t in times if silence.too_long(t, heard)]


def test_silence_is_counted_from_the_last_line() -> None:
    silence = Silence(5.0, 100.0)
    assert looks(silence, start=100.0, seconds=0.25, heard=100.0) == []
    assert looks(silence, start=100.5, seconds=5, heard=100.5) == []
    assert looks(silence, start=105.75, seconds=1, heard=100.5)[0] == 105.75
    assert silence.seconds > 5.0


def test_nothing_counts_before_the_first_line() -> None:
    assert looks(Silence(5.0, 100.0), start=100.0, seconds=60, heard=0.0) == []


def test_slow_guest_gets_more() -> None:
    silence = Silence(5.0, 100.0)
    looks(silence, start=100.0, seconds=4, heard=100.0)
    late = looks(silence, start=104.25, seconds=60, heard=104.25)
    assert 104.25 + 39 < late[0] < 104.25 + 42


def test_pause_of_this_process_is_not_the_guests() -> None:
    silence = Silence(5.0, 100.0)
    assert not silence.too_long(100.0, 100.0)
    assert not silence.too_long(4000.0, 100.0)
