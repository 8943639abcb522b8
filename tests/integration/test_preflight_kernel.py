# SPDX-License-Identifier: GPL-2.0-only
"""What preflight says of a kernel without some options is what its tests say in the guest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.config import KernelConfig
from ktest_ntcopy.image.file.kernel_file import KernelFile, open_kernel
from ktest_ntcopy.machine.base import MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine
from ktest_ntcopy.preflight import Preflight, Room
from ktest_ntcopy.results.model import Status
from ktest_ntcopy.session import Session

#: Options, and what starts their code: without that the kernel is as one built without them.
LACKS = {
    "CONFIG_VSOCKETS_LOOPBACK": "vsock_loopback_init",
    "CONFIG_TLS": "tls_register",
    "CONFIG_PACKET": "packet_init",
}
FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")
PROGRAM = FEATURE.programs[0]
#: One case of every transport and protocol, and all of kernel TLS.
POINTS = [
    p
    for p in PROGRAM.points()
    if p.startswith(("tls.", "covered.", "uncovered."))
    and p.endswith((".sendto", ".refused", ".without_keys", ".payload"))
]


def without(kernel: KernelFile) -> KernelFile:
    assert kernel.config is not None, "the kernel must tell its configuration"
    values: Mapping[str, str] = {
        name: value for name, value in kernel.config.values.items() if name not in LACKS
    }
    return replace(kernel, config=KernelConfig(values, "a test"))


def test_preflight_skips_what_the_guest_would_skip(
    kernel: Path, selftests: Mapping[str, Path]
) -> None:
    found = open_kernel(kernel)
    spec = MachineSpec(
        kernel=found.path, append=f"initcall_blacklist={','.join(LACKS.values())}", timeout=180
    )
    check = Preflight(Image(without(found)), Room.of(spec))
    foretold = {
        point: obstacle.reason
        for point in POINTS
        if (obstacle := check.obstacle(FEATURE, PROGRAM.needed(point)))
    }
    assert {reason.split(" ")[0] for reason in foretold.values()} == set(LACKS)
    assert (
        Preflight(Image(found), Room.of(spec)).obstacle(FEATURE, PROGRAM.needed(POINTS[0])) is None
    )

    with Session(
        spec=spec,
        factory=lambda s: QemuMachine(s, accel="auto"),
        files=lambda: selftests,
        required=lambda: frozenset({FEATURE.name}),
        timeout_scale=4.0,
    ) as session:
        results = {point: session.run_case(PROGRAM, point) for point in POINTS}
    bad = {p: r.message for p, r in results.items() if r.status not in (Status.PASS, Status.SKIP)}
    assert not bad
    skipped = {p: r.message for p, r in results.items() if r.status is Status.SKIP}
    assert set(skipped) == set(foretold)
    for point, message in skipped.items():
        if not point.startswith("uncovered."):  # which says "this kernel has no such sockets"
            assert message.split(" ")[0] == foretold[point].split(" ")[0]


@pytest.mark.parametrize("option", sorted(LACKS))
def test_options_are_those_of_the_fragment(option: str) -> None:
    """A test of options that no test needs would prove nothing."""
    assert option in {k.name for k in FEATURE.kconfig}
