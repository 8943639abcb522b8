# SPDX-License-Identifier: GPL-2.0-only
"""A page that somebody holds is told from one that the kernel has got back."""

from __future__ import annotations

import ctypes
import os

import pytest

from conformance import pages
from conformance.pages import Block, block, one_cpu, still_held
from conformance.protocols import Lacking
from conformance.sockets import IoVec


def first_frame(made: Block) -> int:
    try:
        return made.frame()
    except Lacking as err:
        pytest.skip(str(err))


def test_pages_that_nobody_holds_are_given_back() -> None:
    with one_cpu(), block("base") as made:
        frame = first_frame(made)
        made.unmap()
        assert still_held([frame]) == []


def test_page_that_a_pipe_holds_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_PATIENCE", 0.1)
    reader, writer = os.pipe()
    try:
        with one_cpu(), block("base") as made:
            frame = first_frame(made)
            vmsplice = ctypes.CDLL(None, use_errno=True).vmsplice
            assert vmsplice(writer, ctypes.byref(IoVec(made.start, 100)), 1, 0) == 100
            made.unmap()
            assert still_held([frame]) == [frame]
            assert os.read(reader, 1000) == bytes(100)
            assert still_held([frame]) == []
    finally:
        os.close(reader)
        os.close(writer)


def test_segments_stay_inside_their_block() -> None:
    with block("base") as made:
        made.write(b"abc", 5)
        assert made.segment(4, 5).read() == b"\0abc\0"
        for offset, length in ((-1, 1), (0, made.size + 1), (made.size, 1), (5, -1)):
            with pytest.raises(ValueError, match="not within"):
                made.segment(offset, length)


@pytest.mark.parametrize("kind", ["thp", "hugetlb"])
def test_huge_blocks_are_aligned_or_lacking(kind: str) -> None:
    try:
        with block(kind) as made:
            assert made.start % made.size == 0
            assert made.size > 65536
    except Lacking as err:
        pytest.skip(str(err))


def test_pool_is_left_as_it_was() -> None:
    try:
        before = pages._POOL.read_text()
        with block("hugetlb"):
            pass
    except (Lacking, OSError) as err:
        pytest.skip(str(err))
    assert pages._POOL.read_text() == before
