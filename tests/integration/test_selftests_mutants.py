# SPDX-License-Identifier: GPL-2.0-only
"""The selftests fail where they must: on copies of the kernel with one thing broken.

A few bytes of vmlinux are changed, the kernel is booted, and those cases, and
no others of the selection, have to fail.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.btf import load_btf
from ktest_ntcopy.image.elf import Elf
from ktest_ntcopy.image.kernel_file import open_kernel
from ktest_ntcopy.image.symbols import load_symbols
from ktest_ntcopy.machine.base import Command, End, MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.programs import build_programs
from ktest_ntcopy.results.ktap import Directive, parse

FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
POINTS = FEATURE.programs[0].points()

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


@dataclass
class Image:
    """A vmlinux, to find things in."""

    path: Path
    patches: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        symbols, btf = load_symbols(self.path), load_btf(self.path)
        if symbols is None or btf is None or "copy_from_iter_nontemporal" not in symbols:
            pytest.skip(f"{self.path} has no MSG_NTCOPY to break, or no symbols and BTF")
        self.symbols, self.btf = symbols, btf

    def offset(self, address: int) -> int:
        with Elf(self.path) as elf:
            for name in (".text", ".data", ".rodata"):
                section = elf.section(name)
                if section and section.address <= address < section.address + section.size:
                    return section.offset + address - section.address
        raise AssertionError(f"{address:#x} is in no section that is loaded from the file")

    def body(self, function: str) -> bytes:
        symbol = self.symbols[function]
        with Elf(self.path) as elf:
            return elf.at(symbol.address, symbol.size)

    def set_ntcopy(self, proto: str, value: bool) -> None:
        """Make a protocol honour the flag, or not."""
        member = self.btf.member("proto.ntcopy")
        assert member is not None
        at = self.offset(self.symbols[proto].address) + member.offset
        self.patches.append((at, bytes([value])))

    def replace(self, function: str, old: str, new: str, *, times: int) -> None:
        """Change every occurrence of some code, given in hex, in a function."""
        before, after = bytes.fromhex(old), bytes.fromhex(new)
        assert len(before) == len(after)
        body = self.body(function)
        if body.count(before) != times:
            pytest.skip(f"{function} was compiled to other instructions than expected")
        start, at = self.offset(self.symbols[function].address), body.find(before)
        while at >= 0:
            self.patches.append((start + at, after))
            at = body.find(before, at + 1)

    def jump(self, function: str, target: str) -> None:
        """Let one function be another one."""
        source = self.symbols[function].address
        distance = self.symbols[target].address - (source + 5)
        code = b"\xe9" + distance.to_bytes(4, "little", signed=True)
        self.patches.append((self.offset(source), code))


Break = Callable[[Image], None]


@dataclass(frozen=True)
class Mutant:
    """What is broken, what is run, and what of it must fail."""

    change: Break
    run: frozenset[str]
    fail: frozenset[str]


def _covered(case: str, *protos: str) -> set[str]:
    return {f"covered.{v}.{case}" for p in protos or PROTOCOLS for v in PROTOCOLS[p]}


def _without(protos: tuple[str, ...]) -> Mutant:
    def change(image: Image) -> None:
        for proto in protos:
            image.set_ntcopy(proto, False)

    run = {*_covered("sendto"), *_covered("sizes")}
    return Mutant(change, frozenset(run), frozenset(_covered("sendto", *protos)))


def _with_others(image: Image) -> None:
    for proto in OTHERS:
        image.set_ntcopy(proto, True)


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


@pytest.fixture(scope="module")
def programs(kernel: Path) -> Mapping[str, Path]:
    """The compiled selftests: path in the guest -> file here."""
    return build_programs(open_kernel(kernel), None)


@pytest.fixture
def broken(kernel: Path, tmp_path: Path) -> Iterator[Callable[[Break], Path]]:
    """Makes a copy of the kernel with something broken; it is large and goes again."""
    copy = tmp_path / "vmlinux"

    def make(change: Break) -> Path:
        vmlinux = open_kernel(kernel).vmlinux
        if vmlinux is None:
            pytest.skip(f"{kernel} comes without the vmlinux that could be changed")
        image = Image(vmlinux)
        change(image)
        assert image.patches
        shutil.copyfile(vmlinux, copy)
        with copy.open("r+b") as file:
            for at, data in image.patches:
                file.seek(at)
                file.write(data)
        return copy

    yield make
    copy.unlink(missing_ok=True)


def verdicts(kernel: Path, programs: Mapping[str, Path], points: frozenset[str]) -> set[str]:
    """Boot, run the cases, and return those that failed; none may be skipped or missing."""
    path = next(p for p in programs if p.endswith("/msg_ntcopy"))
    assert points <= set(POINTS)
    select = [word for point in sorted(points) for word in ("-r", point)]
    spec = MachineSpec(kernel=kernel, files=programs, cpus=1, append="rcupdate.rcu_expedited=1")
    with QemuMachine(spec) as machine:
        machine.boot()
        done = machine.run(Command(argv=(path, *select), timeout=120.0))
    assert done.end is End.EXITED, done.detail
    document = parse(done.text)
    seen = {p.name: p for p in document.points}
    assert set(seen) == points
    assert not [p.name for p in seen.values() if p.directive is not Directive.NONE]
    return {name for name, point in seen.items() if not point.ok}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_kernel_fails_its_cases_and_no_others(
    name: str, programs: Mapping[str, Path], broken: Callable[[Break], Path]
) -> None:
    mutant = MUTANTS[name]
    assert mutant.fail
    assert mutant.fail < mutant.run
    assert verdicts(broken(mutant.change), programs, mutant.run) == mutant.fail
