# SPDX-License-Identifier: GPL-2.0-only
"""Which accelerator is taken, with guests that are only pretended."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BootError, MachineError
from ktest_ntcopy.machine import accel
from ktest_ntcopy.machine.accel import (
    Verdict,
    Verdicts,
    boot_with_best,
    proven_accel,
    verdict_key,
)


class Host:
    """A host on which some accelerators boot."""

    def __init__(self, works: set[str], verdicts: Verdicts, problem: str = "") -> None:
        self.works = works
        self.verdicts = verdicts
        self.problem = problem
        self.tried: list[str] = []
        self.said: list[str] = []
        self.limits: list[float | None] = []

    def boot(self, kind: str, limit: float | None) -> str:
        self.tried.append(kind)
        self.limits.append(limit)
        if kind not in self.works:
            raise BootError(f"vmlinux: dead under {kind}\nconsole")
        return kind

    def best(self) -> str:
        return boot_with_best(
            self.boot,
            key="key",
            verdicts=self.verdicts,
            notify=self.said.append,
            problem=lambda: self.problem,
        )


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    accel._said.clear()


@pytest.fixture
def verdicts(tmp_path: Path) -> Verdicts:
    return Verdicts(tmp_path / "accel")


def test_kvm_that_works(verdicts: Verdicts) -> None:
    host = Host({"kvm", "tcg"}, verdicts)
    assert host.best() == "kvm"
    assert host.tried == ["kvm"]  # the probe is the machine: nothing is booted twice
    assert verdicts.load("key") == Verdict(True)
    assert host.best() == "kvm"
    assert host.limits == [accel.PROBE_LIMIT, None]  # later ones have all their time
    assert host.said == []


def test_kvm_whose_guests_die(verdicts: Verdicts) -> None:
    host = Host({"tcg"}, verdicts)
    assert host.best() == "tcg"
    assert host.tried == ["kvm", "tcg"]
    assert verdicts.load("key") == Verdict(False, "vmlinux: dead under kvm")
    assert host.best() == "tcg"
    assert host.tried == ["kvm", "tcg", "tcg"]
    assert len(host.said) == 2
    assert "dead under kvm" in host.said[0]
    assert str(verdicts.path("key")) in host.said[1]
    host.best()
    assert len(host.said) == 2  # once is enough


def test_kernel_that_never_boots_says_nothing_about_kvm(verdicts: Verdicts) -> None:
    host = Host(set(), verdicts)
    with pytest.raises(BootError, match="dead under tcg"):
        host.best()
    assert verdicts.load("key") is None
    assert host.said == []


def test_no_device(verdicts: Verdicts) -> None:
    host = Host({"kvm", "tcg"}, verdicts, problem="/dev/kvm: No such file or directory")
    assert host.best() == "tcg"
    assert host.tried == ["tcg"]
    assert "/dev/kvm: No such file" in host.said[0]
    # Nothing was learnt about guests: with a device the next run tries.
    assert verdicts.load("key") is None


def test_verdict_out_of_date(verdicts: Verdicts) -> None:
    verdicts.store("key", Verdict(True))
    host = Host({"tcg"}, verdicts)
    assert host.best() == "tcg"
    assert verdicts.load("key") is None


def test_verdict_stays_when_the_kernel_is_to_blame(verdicts: Verdicts) -> None:
    verdicts.store("key", Verdict(True))
    with pytest.raises(BootError):
        Host(set(), verdicts).best()
    assert verdicts.load("key") == Verdict(True)


def test_other_errors_pass(verdicts: Verdicts) -> None:
    def boot(kind: str, limit: float | None) -> str:
        raise OSError(kind)

    with pytest.raises(OSError, match="kvm"):
        boot_with_best(boot, key="key", verdicts=verdicts, notify=print, problem=lambda: "")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"usable": 1, "reason": ""}', '{"usable": true}', "\xff"],
)
def test_corrupt_verdict_is_none(verdicts: Verdicts, text: str) -> None:
    verdicts.store("key", Verdict(True))
    verdicts.path("key").write_text(text, encoding="latin-1")
    assert verdicts.load("key") is None
    host = Host({"tcg"}, verdicts)
    assert host.best() == "tcg"
    assert verdicts.load("key") == Verdict(False, "vmlinux: dead under kvm")


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    host = Host({"tcg"}, Verdicts(tmp_path / "file" / "accel"))
    assert host.best() == "tcg"
    assert host.best() == "tcg"
    assert host.tried == ["kvm", "tcg"] * 2


def _probe(folder: Path, log: Path) -> None:
    def boot(kind: str, limit: float | None) -> str:
        with log.open("a") as file:
            file.write(kind + "\n")
        time.sleep(0.05)
        if kind == "kvm":
            raise MachineError("no")
        return kind

    boot_with_best(
        boot, key="key", verdicts=Verdicts(folder), notify=lambda text: None, problem=lambda: ""
    )


def test_several_processes_probe_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = tmp_path / "log"
    workers = [context.Process(target=_probe, args=(tmp_path / "accel", log)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert sorted(log.read_text().split()) == ["kvm"] + ["tcg"] * 4


def test_key_follows_kernel_and_qemu(tmp_path: Path) -> None:
    kernel, qemu = tmp_path / "vmlinux", tmp_path / "qemu"
    kernel.write_bytes(b"a")
    qemu.write_bytes(b"b")
    keys = {verdict_key(kernel, qemu)}
    assert verdict_key(kernel, qemu) in keys
    kernel.write_bytes(b"other")
    keys.add(verdict_key(kernel, qemu))
    qemu.write_bytes(b"other")
    keys.add(verdict_key(kernel, qemu))
    assert len(keys) == 3


def test_device_problem(tmp_path: Path) -> None:
    assert "No such file" in accel.device_problem(tmp_path / "kvm")
    (tmp_path / "kvm").touch()
    assert accel.device_problem(tmp_path / "kvm") == ""


@pytest.mark.parametrize(
    ("verdict", "problem", "taken", "probes"),
    [
        (Verdict(True), "", "kvm", 0),
        (Verdict(False, "dead"), "", "tcg", 0),
        (None, "", "probed", 1),
        (None, "no /dev/kvm", "tcg", 0),
        (Verdict(True), "no /dev/kvm", "tcg", 0),
    ],
)
def test_accelerator_for_a_kernel_that_may_die_of_its_tests(
    verdicts: Verdicts, verdict: Verdict | None, problem: str, taken: str, probes: int
) -> None:
    """Its boot must not decide: no second boot under TCG, and no verdict on KVM."""
    probed: list[str] = []

    def plain() -> str:
        probed.append("plain")
        return "probed"

    if verdict:
        verdicts.store("key", verdict)
    assert proven_accel(plain, key="key", verdicts=verdicts, problem=lambda: problem) == taken
    assert len(probed) == probes
    assert verdicts.load("key") == verdict
