# SPDX-License-Identifier: GPL-2.0-only
"""What tests need, held against a kernel file and a machine before it boots."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import Feature, load_features
from ktest_ntcopy.features.needs import parse_need, transports
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.machine.base import MachineSpec
from ktest_ntcopy.paths import data_root
from ktest_ntcopy.preflight import Preflight, Room
from tests.unit import fake_kernel as fake
from tests.unit.whole_kernel import whole

FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")


def preflight(folder: Path, image: bytes, **room: int) -> Preflight:
    path = folder / "vmlinux"
    path.write_bytes(image)
    spec = replace(MachineSpec(kernel=path), **room)  # type: ignore[arg-type]
    return Preflight(Image(open_kernel(path)), Room.of(spec))


def reason(check: Preflight, *needs: str, feature: Feature = FEATURE) -> str:
    obstacle = check.obstacle(feature, [parse_need(n) for n in needs])
    return obstacle.reason if obstacle else ""


@pytest.mark.parametrize(
    ("need", "text"),
    [
        ("feature", ""),
        ("CONFIG_MPTCP", ""),
        ("CONFIG_ABSENT", "CONFIG_ABSENT is not set in vmlinux"),
        ("CONFIG_ABSENT=n", ""),
        ("CONFIG_MPTCP=n", "CONFIG_MPTCP is y, not n, in vmlinux"),
        ("CONFIG_SIZE=4096", ""),
        ("CONFIG_SIZE=64", "CONFIG_SIZE is 4096, not 64, in vmlinux"),
        ("CONFIG_MODULE", "CONFIG_MODULE is a module, which the machine does not load, in vmlinux"),
        ("symbol tcp_sendmsg", ""),
        ("symbol tcp_recvmsg_absent", "there is no symbol tcp_recvmsg_absent in vmlinux"),
        ("struct iov_iter", ""),
        ("struct absent", "there is no struct absent in vmlinux"),
        ("member iov_iter.nontemporal", ""),
        ("member iov_iter.absent", "there is no member iov_iter.absent in vmlinux"),
        ("cpus>=2", ""),
        ("cpus>=4", "needs 4 CPUs, the machine has 2 (see --ktest-cpus)"),
        ("memory>=512", ""),
        ("memory>=1024", "needs 1024 MiB, the machine has 512 (see --ktest-memory)"),
        ("device virtio-serial-pci", ""),
        ("device e1000", "the machine has no device e1000"),
    ],
)
def test_each_need(tmp_path: Path, need: str, text: str) -> None:
    image = whole(config={"CONFIG_SIZE": "4096", "CONFIG_MODULE": "m"})
    assert reason(preflight(tmp_path, image), need) == text


def test_the_machine_can_have_more(tmp_path: Path) -> None:
    check = preflight(tmp_path, whole(), cpus=4, memory_mib=2048)
    assert reason(check, "cpus>=4", "memory>=2048") == ""


def test_the_first_need_that_is_not_met_is_told(tmp_path: Path) -> None:
    check = preflight(tmp_path, whole())
    assert reason(check, "CONFIG_MPTCP", "CONFIG_B", "CONFIG_A").startswith("CONFIG_B")


def test_a_feature_that_is_missing(tmp_path: Path) -> None:
    check = preflight(tmp_path, whole(without=["msg_ntcopy"]))
    text = f"the kernel is without msg_ntcopy (no symbol {fake.MARKER} in vmlinux)"
    assert reason(check, "feature") == text
    other = next(f for f in load_features() if f.name == "tx_nocache_copy")
    assert reason(check, "feature", feature=other) == ""
    assert reason(check, "feature msg_ntcopy", feature=other) == text
    with pytest.raises(ConfigError, match="no feature nothing; known: msg_ntcopy"):
        reason(check, "feature nothing", feature=other)


def test_half_a_feature_is_not_missing(tmp_path: Path) -> None:
    check = preflight(tmp_path, fake.elf(symbols=["sock_sendmsg_ntcopy"], config=fake.BOOTABLE))
    assert reason(check, "feature") == ""


@pytest.mark.parametrize("image", [fake.elf(symbols=[]), fake.bzimage()])
def test_nothing_is_said_where_the_file_cannot_tell(tmp_path: Path, image: bytes) -> None:
    check = preflight(tmp_path, image)
    needs = ("feature", "CONFIG_ABSENT", "symbol absent", "struct absent", "member a.b")
    assert reason(check, *needs) == ""


def test_the_file_that_told_is_named(tmp_path: Path) -> None:
    fake.build_dir(tmp_path, fake.elf(symbols=["one"], release="6.12.117-test"))
    image = Image(open_kernel(tmp_path))
    check = Preflight(image, Room(cpus=2, memory_mib=512))
    said = reason(check, "CONFIG_ABSENT")
    assert said == f"CONFIG_ABSENT is not set in vmlinux ({tmp_path}/.config)"


@pytest.mark.parametrize(
    "text",
    [
        *("", "CONFIG", "config_x", "CONFIG_X=", "CONFIG_A CONFIG_B", "feature a b", "device"),
        *("symbol", "symbol a b", "struct struct a", "member a", "cpus>=0", "cpus>2", "memory>=1G"),
    ],
)
def test_a_need_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no need"):
        parse_need(text)


@pytest.mark.parametrize(
    "text",
    [
        *("feature", "feature other", "CONFIG_X", "CONFIG_X=n", "symbol a", "struct a"),
        *("member a.b.c", "cpus>=2", "memory>=1024", "device virtio-net-pci"),
    ],
)
def test_needs_are_shown_as_they_are_written(text: str) -> None:
    assert str(parse_need(text)) == text


# What is shipped


def test_shipped_transports_are_those_of_the_c_tests() -> None:
    """A transport that the file does not know would never be skipped before booting."""
    folder = data_root() / "tools-testing-net/net"
    found = set()
    for path in folder.glob("ksft_transport.h"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"^static const struct ksft_transport (\w+) = \{", text, re.M))
    assert found
    assert found <= set(transports())
    assert all(transports().values())
    tomllib.loads((folder / "transports.toml").read_text(encoding="utf-8"))


def test_shipped_variants_inherit_from_their_transport() -> None:
    program = FEATURE.programs[0]
    assert parse_need("CONFIG_VSOCKETS_LOOPBACK") in program.needed("covered.vsock_stream.sendto")
    assert parse_need("CONFIG_IO_URING") in program.needed("covered.tcp4.uring_send")
    assert parse_need("CONFIG_IO_URING") not in program.needed("covered.tcp4.sendto")
    assert parse_need("CONFIG_TLS") in program.needed("tls.v12.refused")
    assert parse_need("CONFIG_INET") in program.needed("tls.v12.refused")


def lost(check: Preflight, feature: Feature) -> dict[str, str]:
    """Points that cannot run, and why."""
    found = {}
    for program in feature.programs:
        for point in program.points():
            if obstacle := check.obstacle(feature, program.needed(point)):
                found[point] = obstacle.reason
    return found


@pytest.mark.parametrize(
    ("unset", "parts"),
    [
        (["CONFIG_VSOCKETS_LOOPBACK"], ["vsock"]),
        (["CONFIG_MPTCP_IPV6"], ["mptcp6"]),
        (["CONFIG_TLS"], ["tls."]),
        (["CONFIG_IO_URING"], ["uring"]),
        (["CONFIG_PACKET"], [".packet."]),
        (["CONFIG_VSOCKETS_LOOPBACK", "CONFIG_IO_URING"], ["vsock", "uring"]),
    ],
)
def test_an_option_that_is_not_set_costs_its_tests_and_no_others(
    tmp_path: Path, unset: Sequence[str], parts: Sequence[str]
) -> None:
    check = preflight(tmp_path, whole(unset=unset))
    found = lost(check, FEATURE)
    points = FEATURE.programs[0].points()
    assert set(found) == {p for p in points if any(part in p for part in parts)}
    assert {r.split(" ")[0] for r in found.values()} == set(unset)


def test_everything_shipped_can_run_on_a_whole_kernel(tmp_path: Path) -> None:
    check = preflight(tmp_path, whole(), cpus=8, memory_mib=4096)
    for feature in load_features():
        assert lost(check, feature) == {}
