# SPDX-License-Identifier: GPL-2.0-only
"""What kmemleak prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.machine.base import Chunk
from ktest_ntcopy.results.leaks import read_leaks

REPORT = b"""\
unreferenced object 0xffff8880047e1900 (size 232):
  comm "msg_zerocopy_ua", pid 431, jiffies 4294692296
  hex dump (first 32 bytes):
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................
    40 a1 bc 04 80 88 ff ff 00 00 00 00 00 00 00 00  @...............
  backtrace (crc 7a2b9d21):
    kmem_cache_alloc_node_noprof+0x1d2/0x2f0
    __alloc_skb+0x1f1/0x2e0
    sock_omalloc+0xb1/0x170
    msg_zerocopy_realloc+0x1e2/0x890
unreferenced object 0xffff888004121000 (size 64):
  comm "a "b" c", pid 7, jiffies 4294692796 (age 12.300s)
  backtrace (crc 0):
    [<ffffffff81234567>] kmalloc_trace+0x25/0x90
    [<ffffffff81234568>] wmark.isra.0+0x25/0x90 [mod]
"""


def test_leaks() -> None:
    chunks = (Chunk(20.0, b"jiffies 4294692796\n"), Chunk(25.0, b"jiffies 4294694046\n" + REPORT))
    first, second = read_leaks(chunks)
    assert (first.size, first.comm, first.pid) == (232, "msg_zerocopy_ua", 431)
    assert first.site == "__alloc_skb()"
    assert first.time == pytest.approx(18.0)
    assert len(first.lines) == 10
    assert str(first) == '232 bytes from __alloc_skb() by "msg_zerocopy_ua" (pid 431)'
    assert (second.size, second.comm, second.pid) == (64, 'a "b" c', 7)
    assert second.time == pytest.approx(20.0)
    assert second.site == "wmark.isra.0()"


def test_report_in_pieces() -> None:
    at = len(REPORT) // 2
    pieces = [b"jiffies 100\n", b"jiffies 350\n", REPORT[:at], REPORT[at:]]
    leaks = read_leaks([Chunk(float(n), piece) for n, piece in enumerate(pieces)])
    assert [leak.size for leak in leaks] == [232, 64]


@pytest.mark.parametrize(
    "clock",
    [(), (b"jiffies 5\n",), (b"jiffies 5\n", b"jiffies 5\n"), (b"jiffies 9\n", b"jiffies 5\n")],
)
def test_without_a_clock(clock: tuple[bytes, ...]) -> None:
    chunks = [*(Chunk(float(n), c) for n, c in enumerate(clock)), Chunk(9.0, REPORT)]
    assert {leak.time for leak in read_leaks(chunks)} == {-1.0}


def test_nothing() -> None:
    assert read_leaks(()) == ()
    assert read_leaks([Chunk(0.0, b"jiffies 1\njiffies 2\n")]) == ()


def test_bare_object() -> None:
    (leak,) = read_leaks([Chunk(0.0, b"unreferenced object 0x1 (size 8):\n\xff\n")])
    assert str(leak) == '8 bytes from an unknown place by "?" (pid 0)'


@given(st.lists(st.sampled_from(REPORT.splitlines(keepends=True))))
def test_lines_in_any_order(lines: list[bytes]) -> None:
    leaks = read_leaks([Chunk(0.0, b"".join(lines))])
    assert len(leaks) == sum(line.startswith(b"unreferenced") for line in lines)


@given(st.lists(st.binary(max_size=60)))
def test_noise(pieces: list[bytes]) -> None:
    read_leaks([Chunk(0.0, piece) for piece in pieces])
