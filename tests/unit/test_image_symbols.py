# SPDX-License-Identifier: GPL-2.0-only
"""Symbol tables as linkers write them, and as they do not."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.image.names.symbols import SymbolTable, stem

Row = tuple[int, int, int]  # where the name begins, st_info, st_shndx
FUNC, FILE = 0x12, 0x04


def table(text: bytes, rows: Sequence[Row], *, bits: int = 64) -> SymbolTable:
    """A table whose addresses count from 1 by row."""
    raw = b""
    for n, (at, info, where) in enumerate(rows, 1):
        if bits == 64:
            raw += struct.pack("<IBBHQQ", at, info, 0, where, n, 4)
        else:
            raw += struct.pack("<IIIBBH", at, n, 4, info, 0, where)
    return SymbolTable(raw, text, bits=bits)


@pytest.mark.parametrize("bits", [64, 32])
def test_a_name_may_be_the_end_of_another(bits: int) -> None:
    text = b"\0__do_copy.cold\0plain\0"
    found = table(text, [(16, FUNC, 1), (1, FUNC, 1), (6, FUNC, 1)], bits=bits)
    assert found["copy.cold"].address == 3
    assert [s.name for s in found.find("copy")] == ["copy.cold"]
    assert [s.name for s in found.find("__do_copy")] == ["__do_copy.cold"]
    assert "do_copy.cold" not in found
    assert not found.find("do_copy")
    assert sorted(found) == ["__do_copy.cold", "copy.cold", "plain"]


def test_first_row_and_twins() -> None:
    text = b"\0twin\0other\0"
    found = table(text, [(1, FUNC, 1), (6, FUNC, 1), (1, FUNC, 2)])
    assert found["twin"].address == 1
    assert [s.address for s in found.twins("twin")] == [1, 3]
    assert [s.address for s in found.twins("other")] == [2]
    assert not found.twins("none")


def test_neither_files_nor_undefined_symbols() -> None:
    text = b"\0gone\0file\0"
    found = table(text, [(1, FUNC, 0), (6, FILE, 1)])
    assert not found
    assert "gone" not in found
    assert "file" not in found
    assert not found.find("gone")
    with pytest.raises(KeyError):
        found["file"]


def test_defined_after_undefined() -> None:
    found = table(b"\0late\0", [(1, FUNC, 0), (1, FUNC, 1)])
    assert found
    assert found["late"].address == 2
    assert [s.address for s in found.twins("late")] == [2]


@pytest.mark.parametrize(
    "text", [b"\0same\0same\0", b"\0same\0same", b"\0\0\0\0\0\0\0\0\0\0\0\0same\0same\0"]
)
def test_strings_that_no_linker_writes(text: bytes) -> None:
    second = text.rindex(b"same")
    found = table(text, [(second, FUNC, 1), (second - 5, FUNC, 1)])
    assert found["same"].address == 1
    assert list(found) == ["same"]


@given(
    parts=st.lists(
        st.sampled_from(["a", "b.c", "a.cold", "x.a.cold", "b", "__pfx_a", ""]), max_size=6
    ),
    rows=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([FUNC, FILE, 0x01]), st.integers(0, 300)),
        max_size=8,
    ),
    end=st.sampled_from([b"", b"\0"]),
)
def test_lookups_agree_with_the_list(parts: list[str], rows: list[Row], end: bytes) -> None:
    found = table("\0".join(["", *parts]).encode() + end, rows)
    listed = list(found)
    for name in {*listed, *map(stem, listed), "a", "b", "c", "cold", ""}:
        assert (name in found) == (name in listed)
        exact = [name] if name in listed else []
        copies = {n for n in listed if n != name and stem(n) == name}
        hits = [s.name for s in found.find(name)]
        assert hits[: len(exact)] == exact
        assert set(hits[len(exact) :]) == copies


@given(
    parts=st.lists(st.sampled_from(["a", "__pfx_a", "a.cold", "__pfx_b", "xb", ""]), max_size=6),
    rows=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([FUNC, FILE]), st.integers(0, 2)), max_size=8
    ),
    asked=st.lists(st.sampled_from(["a", "b", "fx_a", "xb", "none", ""]), max_size=6),
)
def test_preparing_changes_no_answer(parts: list[str], rows: list[Row], asked: list[str]) -> None:
    text = "\0".join(["", *parts]).encode() + b"\0"
    prepared, plain = table(text, rows), table(text, rows)
    prepared.prepare(asked[:3])
    prepared.prepare(asked[3:])
    for name in ("a", "b", "fx_a", "xb", "__pfx_a", "__pfx_b", "a.cold", "none", ""):
        assert prepared.get(name) == plain.get(name)
        assert prepared.find(name) == plain.find(name)
        assert prepared.twins(name) == plain.twins(name)
    assert list(prepared.names()) == list(plain.names())


@pytest.mark.parametrize("text", [b"\0__do_copy.cold\0plain\0", b"\0do_copy.cold\0x\0x\0plain\0"])
def test_names_that_look_alike(text: bytes) -> None:
    inner = text.index(b"copy.cold")
    found = table(text, [(text.index(b"plain"), FUNC, 1), (inner, FUNC, 1), (1, FUNC, 1)])
    begin = text[1 : text.index(b".")].decode()
    assert sorted(found.names()) == sorted(["plain", "copy", begin])
    assert found.alike("plane") == ("plain",)
    assert found.alike("plane") == ("plain",)
