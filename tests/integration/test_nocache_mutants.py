# SPDX-License-Identifier: GPL-2.0-only
"""The tests of tx-nocache-copy fail where they must: on kernels with one thing broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features

from .broken_kernel import Break, Image, Mutant, failures, points

FEATURE = next(f for f in load_features() if f.name == "tx_nocache_copy")
PROGRAM = FEATURE.programs[0]

USUAL, PAST = "_copy_from_iter", "_copy_from_iter_nocache"


def _calls(function: str, callee: str, target: str | None) -> Break:
    return lambda image: image.retarget(function, callee, target)


def _no_caps(*functions: str) -> Break:
    """A connection does not look at the device here: it keeps what it has."""

    def change(image: Image) -> None:
        for function in functions:
            image.retarget(function, "sk_setup_caps", None)

    return change


def _mutant(change: Break, *, fail: Iterable[str], stay: Iterable[str]) -> Mutant:
    broken = points(PROGRAM, *fail)
    return Mutant(change, broken | points(PROGRAM, *stay), broken)


def _always_on(image: Image) -> None:
    """A new dummy device has the feature from the start: bit 41 joins those that it has."""
    bit = image.btf.enumerators["NETIF_F_NOCACHE_COPY_BIT"]
    body = image.body("dummy_setup")
    loads = list(re.finditer(rb"[\x48\x49][\xb8-\xbf](.{8})", body, re.DOTALL))
    if len(loads) != 1:
        pytest.skip("dummy_setup was compiled to other instructions than expected")
    mask = int.from_bytes(loads[0][1], "little") | 1 << bit
    image.change("dummy_setup", loads[0].start(1), mask.to_bytes(8, "little"))


def _proto_ignores_flag(image: Image) -> None:
    image.need("copy_from_iter_nontemporal", "MSG_NTCOPY")
    member = image.btf.member("proto.ntcopy")
    assert member is not None
    for proto in ("tcp_prot", "tcpv6_prot"):
        at = image.offset(image.symbols[proto].address) + member.offset
        image.patches.append((at, b"\0"))


def _device_needs_flag(image: Image) -> None:
    image.need("copy_from_iter_nontemporal", "MSG_NTCOPY")
    image.retarget("tcp_sendmsg_locked", PAST, USUAL)


def _no_fault(image: Image) -> None:
    """The copy loop never tells that it left something out: xor %eax,%eax for mov %edx,%eax."""
    times = image.body("copy_to_nontemporal").count(bytes.fromhex("89d0c3"))
    image.replace("copy_to_nontemporal", "89d0c3", "31c0c3", times=times)


MUTANTS: Mapping[str, Mutant] = {
    "ignored": _mutant(
        _calls("tcp_sendmsg_locked", PAST, USUAL),
        fail=[r"covered\..*\.(sendto|uring_send|accepted)", r"dummy\..*", r"intact\.tcp4\.sizes"],
        stay=[r"covered\..*\.off_by_default", r"device\..*", r"loopback\..*", r"tls\..*"],
    ),
    "on-every-connection": _mutant(
        _calls("tcp_sendmsg_locked", USUAL, PAST),
        fail=[r"covered\..*\.(off_by_default|sendto|accepted|loopback|per_route)", r"dummy\..*"],
        stay=[r"intact\.tcp4\.sizes", r"device\..*", r"unaffected\.udp.*", r"tls\..*"],
    ),
    "every-copy": _mutant(
        lambda image: image.jump(USUAL, PAST),
        fail=[r"covered\..*\.off_by_default", r"unaffected\.(?!mptcp).*\.dispatch"],
        stay=[r"device\..*", r"unaffected\..*\.payload"],
    ),
    "on-by-default": _mutant(
        _always_on,
        fail=[r"device\.dummy\.(off_by_default|unprivileged)", r"device\.veth\.of_one_device"],
        stay=[r"device\.dummy\.(offered|switched|alone)", r"device\.veth\.off_by_default"],
    ),
    "offered-on-loopback": _mutant(
        # The jump past bts $41 that a loopback device takes is gone.
        lambda image: image.replace(
            "register_netdevice", "750c480fbae829", "9090480fbae829", times=1
        ),
        fail=[r"loopback\..*", r"covered\..*\.loopback"],
        stay=[r"device\..*", r"covered\..*\.sendto"],
    ),
    "not-offered": _mutant(
        lambda image: image.replace("register_netdevice", "480fbae829", "0f1f440000", times=1),
        fail=[r"device\..*\.(offered|switched|alone)", r"covered\.tcp4\.sendto"],
        stay=[r"device\..*\.off_by_default", r"loopback\..*", r"covered\..*\.off_by_default"],
    ),
    "not-for-accepted-v4": _mutant(
        _no_caps("tcp_v4_syn_recv_sock", "inet_sk_rebuild_header"),
        fail=[r"covered\.(tcp4|tcp_mapped)\.accepted"],
        stay=[r"covered\.tcp6\.accepted", r"covered\..*\.sendto"],
    ),
    "not-for-accepted-v6": _mutant(
        _no_caps("tcp_v6_syn_recv_sock", "inet6_sk_rebuild_header"),
        fail=[r"covered\.tcp6\.accepted"],
        stay=[r"covered\.(tcp4|tcp_mapped)\.accepted", r"covered\..*\.sendto"],
    ),
    "never-again-v4": _mutant(
        _no_caps("__ip_queue_xmit"),
        fail=[r"covered\.(tcp4|tcp_mapped)\.(rerouted|moved)"],
        stay=[r"covered\.tcp6\.(rerouted|moved)", r"covered\..*\.(sendto|live)"],
    ),
    "never-again-v6": _mutant(
        _no_caps("inet6_csk_route_socket"),
        fail=[r"covered\.tcp6\.(rerouted|moved)"],
        stay=[r"covered\.(tcp4|tcp_mapped)\.(rerouted|moved)", r"covered\..*\.(sendto|live)"],
    ),
    "udp-too": _mutant(
        _calls("ip_generic_getfrag", USUAL, PAST),
        fail=[r"unaffected\.udp(4|6|_mapped)\.dispatch"],
        stay=[r"unaffected\.(unix|mptcp).*\.dispatch", r"unaffected\..*\.payload"],
    ),
    "mptcp-too": _mutant(
        _calls("mptcp_sendmsg", USUAL, PAST),
        fail=[r"unaffected\.mptcp.*\.dispatch"],
        stay=[r"unaffected\.udp.*\.dispatch", r"unaffected\..*\.payload"],
    ),
    "not-for-kernel-tls": _mutant(
        _calls("sk_msg_memcopy_from_iter", PAST, USUAL),
        fail=[r"tls\..*"],
        stay=[r"covered\..*\.sendto"],
    ),
    "nothing-is-copied": _mutant(
        # xor %eax,%eax; ret: all was copied, says the loop.
        lambda image: image.change("copy_to_nontemporal", 0, bytes.fromhex("31c0c3")),
        fail=[r"intact\.tcp.\.(sizes|iovecs|blocking)", r"covered\..*\.sendto"],
        stay=[r"covered\..*\.off_by_default", r"unaffected\..*\.payload"],
    ),
    "single-bytes-are-lost": _mutant(
        lambda image: image.replace("copy_to_nontemporal", "8a068807", "8a069090", times=2),
        fail=[r"intact\.tcp.\.(sizes|alignments|iovecs|many_segments)"],
        stay=[r"covered\..*\.off_by_default", r"unaffected\..*\.payload"],
    ),
    "faults-go-unnoticed": _mutant(
        _no_fault,
        fail=[r"fault\.tcp.\.(page|first|iovec|uring)"],
        stay=[r"intact\.tcp.\.(sizes|iovecs)", r"covered\..*\.sendto"],
    ),
    "flag-counts-only-with-the-device": _mutant(
        _proto_ignores_flag,
        fail=[r"combined\.tcp.*\.either"],
        stay=[r"combined\.udp.*", r"combined\..*\.payload", r"covered\..*\.sendto"],
    ),
    "device-counts-only-with-the-flag": _mutant(
        _device_needs_flag,
        fail=[r"combined\.tcp.*\.either"],
        stay=[r"combined\.udp.*", r"combined\..*\.payload", r"covered\..*\.off_by_default"],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_fails_its_cases_and_no_others(
    name: str, selftests: Mapping[str, Path], broken: Callable[[Break], Path]
) -> None:
    mutant = MUTANTS[name]
    assert failures(broken(mutant.change), selftests, PROGRAM, mutant.run) == mutant.fail
