# SPDX-License-Identifier: GPL-2.0-only
"""The selftests fail where they must: on copies of the kernel with one thing broken.

A few bytes of vmlinux are changed, the kernel is booted, and those cases, and
no others of the selection, have to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features

from .broken_kernel import Break, Image, Mutant, failures

FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
PROGRAM = FEATURE.programs[0]
POINTS = PROGRAM.points()

#: struct proto -> variants of "covered" that send through it.
PROTOCOLS = {
    "unix_stream_proto": ("unix_stream",),
    "unix_dgram_proto": ("unix_dgram", "unix_seqpacket"),
    "tcp_prot": ("tcp4",),
    "tcpv6_prot": ("tcp6", "tcp_mapped"),
    "udp_prot": ("udp4",),
    "udpv6_prot": ("udp6", "udp_mapped"),
    "udplite_prot": ("udplite4",),
    "udplitev6_prot": ("udplite6",),
    "mptcp_prot": ("mptcp4", "mptcp6"),
    "vsock_proto": ("vsock_stream", "vsock_seqpacket"),
}
#: struct proto -> variant of "uncovered" whose copies would go past the caches.
OTHERS = {
    "raw_prot": "raw4_header",
    "rawv6_prot": "raw6_header",
    "packet_proto": "packet",
    "netlink_proto": "netlink",
}


def _set_ntcopy(image: Image, proto: str, value: bool) -> None:
    """Make a protocol honour the flag, or not."""
    member = image.btf.member("proto.ntcopy")
    assert member is not None
    at = image.offset(image.symbols[proto].address) + member.offset
    image.patches.append((at, bytes([value])))


def _covered(case: str, *protos: str) -> set[str]:
    return {f"covered.{v}.{case}" for p in protos or PROTOCOLS for v in PROTOCOLS[p]}


def _without(protos: tuple[str, ...]) -> Mutant:
    def change(image: Image) -> None:
        for proto in protos:
            _set_ntcopy(image, proto, False)

    run = {*_covered("sendto"), *_covered("sizes")}
    return Mutant(change, frozenset(run), frozenset(_covered("sendto", *protos)))


def _with_others(image: Image) -> None:
    for proto in OTHERS:
        _set_ntcopy(image, proto, True)


def _call(function: str, *cases: str) -> Mutant:
    """One way to send loses the flag: it joins those that users may not pass."""

    def change(image: Image) -> None:
        image.replace(function, "ffffeef7", "ffffeee7", times=1)

    every = {
        f"covered.{v}.{c}"
        for v in ("unix_stream", "tcp6", "udp4")
        for c in ("sendto", "sendmsg", "sendmmsg", "uring_send", "uring_sendmsg")
    }
    fail = {point for point in every if point.split(".")[2] in cases}
    return Mutant(change, frozenset(every), frozenset(fail))


def _bytes(old: str, new: str, times: int) -> Mutant:
    """The copy loop forgets a part of a payload that is not a multiple of 8."""
    case = ("sizes", "alignments", "iovecs")
    run = {p for p in POINTS if p.startswith("covered.tcp4.") and p.split(".")[2] in case}
    run |= {"covered.tcp4.plain", "uncovered.netlink.payload"}
    return Mutant(
        lambda image: image.replace("copy_to_nontemporal", old, new, times=times),
        frozenset(run),
        frozenset(p for p in run if p.split(".")[2] in case),
    )


ODD, EVEN = tuple(PROTOCOLS)[::2], tuple(PROTOCOLS)[1::2]
MUTANTS: Mapping[str, Mutant] = {
    "half-of-the-protocols": _without(ODD),
    "other-half-of-the-protocols": _without(EVEN),
    "protocols-that-must-not": Mutant(
        _with_others,
        frozenset(p for p in POINTS if p.startswith("uncovered.")),
        frozenset(f"uncovered.{v}.dispatch" for v in OTHERS.values()),
    ),
    "every-copy": Mutant(
        lambda image: image.jump("_copy_from_iter", "copy_from_iter_nontemporal"),
        frozenset(
            {
                *_covered("plain"),
                *_covered("per_call"),
                *_covered("failed_call"),
                *_covered("threads_own_sockets"),
                *_covered("fault_page"),
            }
        ),
        frozenset(
            {
                *_covered("plain"),
                *_covered("per_call"),
                *_covered("failed_call"),
                *_covered("threads_own_sockets"),
            }
        ),
    ),
    "nothing-is-copied": Mutant(
        # xor %eax,%eax; ret: all was copied, says the loop.
        lambda image: image.replace(
            "copy_to_nontemporal", image.body("copy_to_nontemporal")[:3].hex(), "31c0c3", times=1
        ),
        frozenset({*_covered("sizes"), *_covered("iovecs"), *_covered("plain")}),
        frozenset({*_covered("sizes"), *_covered("iovecs")}),
    ),
    "single-bytes": _bytes("8a068807", "8a069090", 2),
    "byte-pairs": _bytes("668b06668907", "668b06909090", 2),
    "sendto": _call("__sys_sendto", "sendto"),
    "sendmsg": _call("____sys_sendmsg", "sendmsg", "sendmmsg", "uring_sendmsg"),
    "io_uring-send": _call("io_send", "uring_send"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_fails_its_cases_and_no_others(
    name: str, selftests: Mapping[str, Path], broken: Callable[[Break], Path]
) -> None:
    mutant = MUTANTS[name]

    def change(image: Image) -> None:
        image.need("copy_from_iter_nontemporal", "MSG_NTCOPY")
        mutant.change(image)

    assert failures(broken(change), selftests, PROGRAM, mutant.run) == mutant.fail
