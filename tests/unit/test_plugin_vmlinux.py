# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel file shows and rules out, before any machine runs."""

from __future__ import annotations

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.results.model import Status
from tests.unit import fake_kernel as fake
from tests.unit.plugin_lab import FEATURE, POINTS, A, B, Lab, node
from tests.unit.plugin_lab import lab as lab  # a fixture
from tests.unit.plugin_lab import way as way  # a fixture
from tests.unit.whole_kernel import whole

pytest_plugins = ["pytester"]

HONOURS = "initial.tcp_prot.ntcopy"


# vmlinux


def test_traces_need_no_machine(lab: Lab) -> None:
    done = lab.run("-m", "vmlinux")
    assert done.code == 0
    assert done.log() == []


def test_kernel_without_the_feature_skips_its_traces(lab: Lab) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    done = lab.run("-m", "vmlinux", "-rs")
    assert done.code == 0, done.out
    assert "the kernel is without msg_ntcopy" in done.out
    missing = [c for c, s in done.journal().items() if s is Status.SKIP]
    assert f"symbol.{fake.MARKER}" in missing
    assert done.journal()["symbol.copy_to_nontemporal"] is Status.PASS


def test_half_a_feature_fails(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(without=[HONOURS]))
    done = lab.run("-m", "vmlinux", "msg_ntcopy", *way)
    assert done.code == 1
    verdicts = done.journal()
    assert verdicts[HONOURS] is Status.FAIL
    assert verdicts[f"symbol.{fake.MARKER}"] is Status.PASS
    assert Status.SKIP not in verdicts.values()


def test_a_failed_trace_says_all_that_is_known_of_it(lab: Lab) -> None:
    lab.kernel.write_bytes(whole(without=[HONOURS]))
    done = lab.run(f"msg_ntcopy::vmlinux.{HONOURS}")
    wanted = next(e for e in FEATURE.expectations if e.id == HONOURS)
    origin = f"[msg_ntcopy.toml:{wanted.line}: {wanted.why}]"
    assert f"expected {wanted}, found tcp_prot.ntcopy = 0 {origin}" in done.out


def test_required_feature_must_be_there(lab: Lab) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    done = lab.run("--ktest-require=msg_ntcopy", "msg_ntcopy")
    assert done.code == 1
    journal = done.journal()
    assert journal[f"symbol.{fake.MARKER}"] is Status.FAIL
    assert journal[A] is Status.FAIL
    assert f"expected symbol {fake.MARKER}, found nothing of that name" in done.out
    assert "msg_ntcopy is required, but the kernel is without msg_ntcopy" in done.out
    assert done.log() == []  # no machine can change that
    assert "--ktest-require=msg_ntcopy" in done.out


def test_features_can_be_required_by_the_environment(
    lab: Lab, way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    monkeypatch.setenv("KTEST_REQUIRE", "msg_ntcopy")
    done = lab.run("-m", "vmlinux", *way)
    assert done.code == 1
    assert Status.FAIL in done.journal().values()
    assert lab.run("-m", "vmlinux", "--ktest-require=", *way).code == 0
    monkeypatch.setenv("KTEST_REQUIRE", "msg_ntcopi")
    done = lab.run(*way)
    assert done.code == 4
    assert "KTEST_REQUIRE: no feature msg_ntcopi; did you mean msg_ntcopy?" in done.err


def test_tests_are_told_what_vmlinux_shows(lab: Lab) -> None:
    done = lab.run(node(A))
    shown = ",".join(sorted(f.name for f in load_features()))
    assert any(x.endswith(f"{A} {shown}") for x in done.log())
    # A kernel that cannot be looked into: the test finds out for itself.
    lab.kernel.write_bytes(fake.elf(symbols=[]))
    (lab.folder / "log").unlink()
    assert any(x.endswith(f"{A} -") for x in lab.run(node(A)).log())


def test_required_feature_that_cannot_be_looked_for_is_an_error(lab: Lab) -> None:
    lab.kernel.write_bytes(fake.elf(symbols=[fake.MARKER], config=fake.BOOTABLE))
    done = lab.run("-m", "vmlinux")
    assert done.code == 1
    journal = done.journal()
    assert journal["member.proto.ntcopy"] is Status.ERROR
    assert journal[f"symbol.{fake.MARKER}"] is Status.PASS
    assert "has no BTF (set CONFIG_DEBUG_INFO_BTF=y)" in done.out


# What the kernel file rules out

LOOPBACK = "CONFIG_VSOCKETS_LOOPBACK"


def test_what_the_file_rules_out_is_skipped_without_a_machine(
    lab: Lab, way: tuple[str, ...]
) -> None:
    lab.kernel.write_bytes(whole(unset=[LOOPBACK]))
    ruled_out = [p for p in POINTS if "vsock" in p]
    done = lab.run("-rs", *(node(p) for p in ruled_out[:3]), *way)
    assert done.code == 0, done.out
    assert done.journal() == dict.fromkeys(ruled_out[:3], Status.SKIP)
    assert f"{LOOPBACK} is not set in vmlinux" in done.out
    assert done.log() == []
    done = lab.run(node(A), node(ruled_out[0]), *way)
    assert done.journal() == {A: Status.PASS, ruled_out[0]: Status.SKIP}
    assert not any(ruled_out[0] in line for line in done.log())


def test_a_kernel_without_the_feature_boots_no_machine(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(without=["msg_ntcopy"]))
    done = lab.run(node(A), node(B), *way)
    assert done.code == 0
    assert done.journal() == {A: Status.SKIP, B: Status.SKIP}
    assert done.log() == []


def test_nothing_may_be_skipped(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(unset=[LOOPBACK]))
    lab.script({A: "skip"})
    (lab.folder / "test_own.py").write_text(
        "import pytest\ndef test_own(): pytest.skip('not today')\n"
        "@pytest.mark.xfail\ndef test_known(): assert False\n"
    )
    ruled_out = next(p for p in POINTS if "vsock" in p)
    tests = (node(A), node(B), node(ruled_out), "test_own.py")
    done = lab.run("--ktest-require-all", *tests, *way)
    assert done.code == 1
    journal = done.journal()
    assert journal.pop("test_own") is Status.FAIL
    assert journal.pop("test_known") is Status.XFAIL
    assert journal == {A: Status.FAIL, B: Status.PASS, ruled_out: Status.FAIL}
    forbids = "skipped, which --ktest-require-all forbids: "
    assert f"{forbids}{LOOPBACK} is not set in vmlinux" in done.out
    assert f"{forbids}no such protocol" in done.out
    assert f"{forbids}not today" in done.out
    assert f"--ktest-require-all '{node(A)}'" in done.out or f"require-all {node(A)}" in done.out
    assert lab.run(*tests, *way).code == 0


def test_what_does_not_apply_is_said(lab: Lab, way: tuple[str, ...]) -> None:
    lab.kernel.write_bytes(whole(unset=["CONFIG_MODULES"]))
    done = lab.run("-m", "vmlinux", "-q", "--ktest-require-all", *way)
    assert done.code == 0, done.out
    lost = [e.id for f in load_features() for e in f.expectations if "CONFIG_MODULES" in e.needs]
    assert lost
    said = f"{len(lost)} expectations do not apply to this kernel"
    assert f"{said}, `ktest-ntcopy check` says why: {', '.join(lost)}" in done.out
