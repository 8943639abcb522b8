# SPDX-License-Identifier: GPL-2.0-only
"""Structures and numbers that programs share with the kernel: three witnesses agree.

They are the kernel's own type information, the ctypes layer of these tests, and the
headers that C programs are compiled with.  No machine is booted.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from conformance import headers as asked
from conformance.features import constant
from conformance.headers import Headers, HeadersError
from conformance.layouts import SHAPES, Layout, Shape, differences, kernels, ours
from conformance.sockets import ethtool, uapi
from conformance.sockets.layout import MsgHdr
from conformance.sockets.uapi import MemInfo, So, Sof
from ktest_ntcopy.compiler import find_compiler
from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.types.typeinfo import TypeInfo

pytestmark = pytest.mark.vmlinux

#: C name -> (header, number in this suite).
NUMBERS: dict[str, tuple[str, int]] = {
    **{f"SO_{one.name}": ("asm/socket.h", int(one)) for one in So},
    **{f"SOF_TIMESTAMPING_{one.name}": ("linux/net_tstamp.h", int(one)) for one in Sof},
    **{f"SK_MEMINFO_{one.name}": ("linux/sock_diag.h", int(one)) for one in MemInfo},
    "MSG_ERRQUEUE": ("sys/socket.h", uapi.MSG_ERRQUEUE),
    "MSG_ZEROCOPY": ("sys/socket.h", uapi.MSG_ZEROCOPY),
    "IP_RECVERR": ("netinet/in.h", uapi.IP_RECVERR),
    "IP_RECVTTL": ("netinet/in.h", uapi.IP_RECVTTL),
    "IPV6_RECVERR": ("netinet/in.h", uapi.IPV6_RECVERR),
    "SO_EE_ORIGIN_TIMESTAMPING": ("linux/errqueue.h", uapi.SO_EE_ORIGIN_TIMESTAMPING),
    "SO_EE_ORIGIN_ZEROCOPY": ("linux/errqueue.h", uapi.SO_EE_ORIGIN_ZEROCOPY),
    "SO_EE_CODE_ZEROCOPY_COPIED": ("linux/errqueue.h", uapi.SO_EE_CODE_ZEROCOPY_COPIED),
    "SIOCETHTOOL": ("linux/sockios.h", ethtool.SIOCETHTOOL),
    **{
        name: ("linux/ethtool.h", getattr(ethtool, name))
        for name in (
            "ETHTOOL_GSTRINGS",
            "ETHTOOL_GSSET_INFO",
            "ETHTOOL_GFEATURES",
            "ETHTOOL_SFEATURES",
            "ETHTOOL_F_UNSUPPORTED",
            "ETH_SS_FEATURES",
            "ETH_GSTRING_LEN",
        )
    },
    # What the features define, where the headers are new enough to have it.
    **{
        define.name: ("linux/errqueue.h", define.value)
        for feature in load_features()
        for define in feature.defines
    },
}
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.kernel)


@pytest.fixture(scope="module")
def headers(kernel_build: Path | None) -> Headers:
    """The headers of the kernel's build directory, if it has any, else the installed ones."""
    try:
        compiler = find_compiler()
    except ConfigError as err:
        pytest.skip(str(err))
    folder = kernel_build / "usr/include" if kernel_build else None
    found = folder and (folder / "linux/socket.h").is_file()
    return Headers(compiler, folder if found else None)


def type_name(shape: Shape, bits: int) -> str:
    """The kernel's type for programs such as this one."""
    if ctypes.sizeof(ctypes.c_void_p) * 8 > bits:
        pytest.skip("the kernel has 32 bits, and this Python 64")
    if ctypes.sizeof(ctypes.c_void_p) * 8 == bits:
        return shape.kernel
    return shape.compat or shape.kernel


def of_the_kernel(types: TypeInfo, bits: int, shape: Shape) -> Layout:
    """The kernel's layout; skips if there may be none, fails if there must be one."""
    name = type_name(shape, bits)
    found = kernels(types, shape, name)
    if found is None and shape.absent:
        pytest.skip(f"no struct {name}: {shape.absent}")
    if found is None:
        pytest.fail(f"the kernel's {types.source} has no struct {name}", pytrace=False)
    return found


def must_agree(expected: Layout, found: Layout, name: str, *, part: bool) -> None:
    """Fail with a line for each difference."""
    if lines := list(differences(expected, found, name, part=part)):
        pytest.fail("\n".join(lines), pytrace=False)


@each_shape
def test_ctypes_has_the_kernels_layout(types: TypeInfo, kernel_bits: int, shape: Shape) -> None:
    theirs = of_the_kernel(types, kernel_bits, shape)
    must_agree(theirs, ours(shape), f"struct {shape.kernel}", part=shape.part)


@each_shape
def test_headers_have_the_kernels_layout(
    types: TypeInfo, kernel_bits: int, headers: Headers, shape: Shape, tmp_path: Path
) -> None:
    if not asked.native(headers.pointer_size(tmp_path)):
        pytest.skip("the compiler's pointers are not of the size of this Python's")
    theirs = of_the_kernel(types, kernel_bits, shape)
    try:
        found = headers.layout(shape, tmp_path)
    except HeadersError as err:
        pytest.skip(f"{headers.source}: no such {shape.c} in <{shape.header}>: {err}")
    must_agree(theirs, found, shape.c, part=shape.part)


@pytest.mark.parametrize("name", NUMBERS)
def test_headers_have_our_number(headers: Headers, name: str, tmp_path: Path) -> None:
    header, number = NUMBERS[name]
    try:
        (found,) = headers.numbers(header, [name], tmp_path)
    except HeadersError as err:
        pytest.skip(f"{headers.source}: <{header}> is without {name}: {err}")
    assert found == number


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *((f"SOF_TIMESTAMPING_{one.name}", int(one)) for one in Sof),
        *((f"SK_MEMINFO_{one.name}", int(one)) for one in MemInfo),
        ("ETH_SS_FEATURES", ethtool.ETH_SS_FEATURES),
    ],
)
def test_kernel_has_our_number(types: TypeInfo, name: str, number: int) -> None:
    found = types.enumerator(name)
    if found is None:
        pytest.skip(f"the kernel's {types.source} has no enumerator {name}")
    assert found.value == number


def test_feature_files_have_our_numbers() -> None:
    assert constant("SOF_TIMESTAMPING_SOFTWARE") == Sof.SOFTWARE
    assert constant("SOF_TIMESTAMPING_RAW_HARDWARE") == Sof.RAW_HARDWARE


def test_the_kernels_own_msghdr_is_another_structure(types: TypeInfo) -> None:
    """Whoever holds a program's ``msghdr`` against it, by its name, is told what differs."""
    by_name = Shape(MsgHdr, "msghdr")
    internal = kernels(types, by_name, "msghdr")
    assert internal is not None
    lines = list(differences(internal, ours(by_name), "struct msghdr", part=False))
    assert any(line.startswith("struct msghdr.msg_iov: is in ctypes") for line in lines), lines
