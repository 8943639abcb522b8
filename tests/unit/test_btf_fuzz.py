# SPDX-License-Identifier: GPL-2.0-only
"""Damaged BTF: every question ends soon, with an answer or a BtfError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ktest_ntcopy.image.types.btf import Btf, BtfError
from tests.unit.btf_samples import LAYOUT, everything
from tests.unit.effort import cpu_below

PLAIN = everything("<").build()
SWAPPED = everything(">").build()
WITH_LAYOUT = everything("<").build(layout=LAYOUT)
NAMES = ("all", "colour", "wide", "alias", "handler_t", "deliver", "counter", ".data", "RED")
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

QUESTIONS: tuple[Callable[[Btf, str], object], ...] = (
    Btf.struct_size,
    Btf.members,
    Btf.enumerator,
    Btf.prototype,
    Btf.declaration,
    lambda types, name: types.member(f"{name}.pair.high"),
    lambda types, _: types.enumerators,
    lambda types, _: [types.names(k) for k in ("compound", "function", "typedef", "enum")],
)


def ask_everything(data: bytes, base: Btf | None = None) -> None:
    with cpu_below(1.0), contextlib.suppress(BtfError):
        types = Btf(data, base=base)
        for name in NAMES:
            for question in QUESTIONS:
                with contextlib.suppress(BtfError):
                    question(types, name)


@given(st.binary(max_size=200))
@example(b"")
@example(PLAIN[:23])
def test_noise(data: bytes) -> None:
    with pytest.raises(BtfError):
        Btf(data)


@given(st.binary(max_size=400))
def test_noise_as_types(body: bytes) -> None:
    """A right header, and anything behind it."""
    head = PLAIN[:12] + (len(body) // 8 * 4).to_bytes(4, "little")
    head += (len(body) // 8 * 4).to_bytes(4, "little")
    head += (len(body) - len(body) // 8 * 4).to_bytes(4, "little")
    ask_everything(head + body)


@SLOW
@given(st.data())
def test_bytes_changed(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([PLAIN, SWAPPED, WITH_LAYOUT])))
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    ask_everything(bytes(raw))


@SLOW
@given(st.data())
def test_words_changed_to_what_may_fit(data: st.DataObject) -> None:
    """Small numbers are types and strings that exist, so this reaches further in."""
    raw = bytearray(PLAIN)
    types = int.from_bytes(raw[12:16], "little") // 4
    for _ in range(data.draw(st.integers(1, 8))):
        at = 24 + 4 * data.draw(st.integers(0, types - 1))
        value = data.draw(st.one_of(st.integers(0, 60), st.integers(0, 0xFFFFFFFF)))
        raw[at : at + 4] = value.to_bytes(4, "little")
    ask_everything(bytes(raw))


@SLOW
@given(st.data())
def test_damaged_module(data: st.DataObject) -> None:
    base = Btf(PLAIN)
    raw = bytearray(PLAIN)
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(24, len(raw) - 1))] = data.draw(st.integers(0, 255))
    ask_everything(bytes(raw), base)
