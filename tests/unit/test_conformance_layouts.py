# SPDX-License-Identifier: GPL-2.0-only
"""Layouts that differ are told apart, each difference by its type, member and both values."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.headers import Headers, HeadersError
from conformance.layouts import SHAPES, Layout, Place, Shape, differences, kernels, ours
from conformance.sockets.layout import MsgHdr, SockExtendedErr
from ktest_ntcopy.compiler import find_compiler
from ktest_ntcopy.image.types.btf import Btf
from ktest_ntcopy.image.types.btf_data import Kind
from ktest_ntcopy.image.types.btf_write import BtfWriter

ERROR = next(s for s in SHAPES if s.ours is SockExtendedErr)


def told(expected: Layout, found: Layout, *, part: bool = False) -> list[str]:
    return list(differences(expected, found, "struct x", part=part))


def changed(layout: Layout, member: str, place: Place | None) -> Layout:
    members: Mapping[str, Place] = {
        name: it for name, it in layout.members.items() if name != member
    }
    return replace(
        layout, source="the kernel", members={**members, member: place} if place else members
    )


def test_equal_layouts_do_not_differ() -> None:
    for shape in SHAPES:
        assert told(ours(shape), ours(shape)) == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (Place(7, 1), "struct x.ee_code: offset 6 in ctypes (SockExtendedErr), 7 in the kernel"),
        (Place(6, 2), "struct x.ee_code: size 1 in ctypes (SockExtendedErr), 2 in the kernel"),
        (None, "struct x.ee_code: is in ctypes (SockExtendedErr), not in the kernel"),
    ],
)
def test_moved_grown_and_missing_members_are_named(place: Place | None, line: str) -> None:
    found = ours(ERROR)
    assert told(changed(found, "ee_code", place), found) == [line]


def test_size_and_members_that_ours_lacks_are_named() -> None:
    found = ours(ERROR)
    longer = replace(changed(found, "ee_more", Place(16, 4)), size=20)
    assert told(longer, found) == [
        "struct x: 16 bytes in ctypes (SockExtendedErr), 20 in the kernel",
        "struct x.ee_more: is in the kernel at offset 16, not in ctypes (SockExtendedErr)",
    ]
    assert told(longer, found, part=True) == []


def test_other_names_for_the_same_bytes_are_no_difference() -> None:
    found = ours(ERROR)
    assert told(changed(found, "ee_rfc4884", Place(12, 4)), found) == []
    # Half of it lies behind the end.
    assert told(changed(found, "ee_rfc4884", Place(14, 4)), found)


def test_every_structure_of_the_ctypes_layer_is_looked_at() -> None:
    from conformance.sockets import ethtool, layout

    known = {shape.ours for shape in SHAPES}
    for module in (layout, ethtool):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, ctypes.Structure):
                assert value in known, f"{name} is in no row of SHAPES"


def test_kernels_layout_is_in_our_names() -> None:
    make = BtfWriter()
    byte = make.integer("unsigned char", 1)
    number = make.integer("unsigned int", 4)
    members = [("sin_family", number, 0, 0), ("__pad", byte, 32, 0)]
    make.compound(Kind.STRUCT, "sockaddr_x", 5, members)
    types = Btf(make.build())
    shape = Shape(SockExtendedErr, "sockaddr_x", kernel_names={"sin_zero": "__pad"})
    found = kernels(types, shape, "sockaddr_x")
    assert found is not None
    assert found.source == "the kernel's BTF (struct sockaddr_x)"
    assert (found.size, found.members) == (5, {"sin_family": Place(0, 4), "sin_zero": Place(4, 1)})
    assert kernels(types, shape, "sockaddr_y") is None


def other_header(folder: Path, text: str) -> None:
    (folder / "linux").mkdir()
    (folder / "linux/errqueue.h").write_text(text)


@pytest.fixture
def headers(tmp_path: Path) -> Headers:
    return Headers(find_compiler(), tmp_path)


def test_installed_headers_agree_with_ctypes(tmp_path: Path) -> None:
    installed = Headers(find_compiler())
    found: Sequence[Shape] = [s for s in SHAPES if not s.absent]
    for shape in found:
        layout = installed.layout(shape, tmp_path)
        assert told(layout, ours(shape), part=shape.part) == [], shape.kernel


def test_header_with_another_layout_is_seen(headers: Headers, tmp_path: Path) -> None:
    other_header(
        tmp_path,
        "struct sock_extended_err { unsigned ee_errno; unsigned char ee_type, ee_origin,"
        " ee_code, ee_pad; unsigned ee_info, ee_data; };",
    )
    lines = told(headers.layout(ERROR, tmp_path), ours(ERROR))
    assert [line.partition(":")[0] for line in lines] == ["struct x.ee_origin", "struct x.ee_type"]


def test_header_without_the_type_is_told(headers: Headers, tmp_path: Path) -> None:
    other_header(tmp_path, "struct other { int x; };")
    with pytest.raises(HeadersError, match="sock_extended_err"):
        headers.layout(ERROR, tmp_path)


def test_header_that_cannot_be_read_is_told(headers: Headers, tmp_path: Path) -> None:
    with pytest.raises(HeadersError, match="nowhere"):
        headers.numbers("nowhere.h", ["1"], tmp_path)


def test_numbers_come_as_they_are(tmp_path: Path) -> None:
    installed = Headers(find_compiler())
    values = ["-1", "0", "0x7fffffffffffffff", "sizeof(void *)"]
    assert installed.numbers("stddef.h", values, tmp_path) == [
        -1,
        0,
        2**63 - 1,
        ctypes.sizeof(ctypes.c_void_p),
    ]


def test_a_program_s_msghdr_is_the_kernels_user_msghdr() -> None:
    (shape,) = (s for s in SHAPES if s.ours is MsgHdr)
    assert (shape.kernel, shape.c) == ("user_msghdr", "struct msghdr")
