# SPDX-License-Identifier: GPL-2.0-only
"""Bad arguments, kernels and hosts: refused in one line before any test."""

from __future__ import annotations

import os

import pytest

from ktest_ntcopy.results.journal import Journal
from ktest_ntcopy.results.model import Status
from tests.unit import fake_kernel as fake
from tests.unit.plugin_lab import A, Lab, node
from tests.unit.plugin_lab import lab as lab  # a fixture
from tests.unit.plugin_lab import way as way  # a fixture

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--kernel=none",), "no such file"),
        (("--kernel=",), "--kernel"),
        (("--kernel=caf\udce9",), r"caf\udce9': is not UTF-8; rename it"),
        (("--kernel=no\nwhere",), r"no\nwhere: no such file"),
        (("--kernel=script",), "script"),
        (("--ktest-tree=none",), "is no kernel source tree"),
        (("--ktest-qemu=no-such-qemu",), "no such program"),
        (("--ktest-require=msg_ntcopi",), "did you mean msg_ntcopy?"),
        (("--ktest-memory=1",), "--ktest-memory: 1 is not between"),
        (("--ktest-cpus=0",), "--ktest-cpus: 0 is not between"),
        (("--ktest-timeout-scale=nan",), "--ktest-timeout-scale"),
        (("--ktest-accel=magic",), "--ktest-accel"),
        (("--ktest-journal=script/journal",), "cannot write the journal"),
        (("--ktest-journal=out",), "is no regular file"),
        (("--junitxml=out",), "is no regular file"),
        (("--junitxml=fifo",), "is no regular file"),
        (("--junitxml=out.ndjson",), "is the journal's file too"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_bad_input_is_a_usage_error(lab: Lab, args: tuple[str, ...], text: str) -> None:
    (lab.folder / "out").symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    os.mkfifo(lab.folder / "fifo")
    done = lab.run(*args)
    assert done.code == 4, done.out + done.err
    assert text in done.err
    assert "Traceback" not in done.out + done.err
    assert done.log() == []


def test_help_is_shown_whatever_else_is_given(lab: Lab) -> None:
    done = lab.run("--kernel=/nonexistent", "--help")
    assert done.code == 0
    assert "--ktest-accel" in done.out
    assert lab.run("--kernel=/nonexistent", "--version").code == 0


def test_a_second_run_with_the_same_journal_is_refused(lab: Lab, way: tuple[str, ...]) -> None:
    journal = Journal.create(lab.folder / "out.ndjson")
    (lab.folder / "out.xml").write_text("<the first run's report/>")
    done = lab.run(*way)
    assert done.code == 4
    assert "another run is writing this journal" in done.out + done.err
    assert "Traceback" not in done.out + done.err
    assert (lab.folder / "out.xml").exists()
    assert (lab.folder / "out.ndjson").stat().st_size == 0
    journal.close()
    assert lab.run("-m", "vmlinux", *way).code == 0


@pytest.mark.parametrize("key", ["build", "make"])
def test_what_is_missing_is_said_before_any_test(lab: Lab, way: tuple[str, ...], key: str) -> None:
    lab.script({}, **{key: "fail"})
    done = lab.run(*way)
    assert done.code == 4, done.out + done.err
    text = done.out + done.err
    assert ("it does not compile" if key == "build" else "no such program on this host") in text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert not (lab.folder / "out.xml").exists()
    # What needs no machine runs nevertheless.
    assert lab.run("-m", "vmlinux", *way).code == 0


def test_kernel_that_cannot_boot_here(lab: Lab, way: tuple[str, ...]) -> None:
    config = {**fake.BOOTABLE, "CONFIG_VIRTIO_CONSOLE": "m"}
    lab.kernel.write_bytes(fake.elf(config=config, symbols=[fake.MARKER]))
    done = lab.run(*way)
    assert done.code == 4
    assert "CONFIG_VIRTIO_CONSOLE is a module" in done.out + done.err
    assert done.log() == []


def test_damaged_symbols_are_said_before_any_test(lab: Lab) -> None:
    image = fake.elf(symbols=["one"], config=fake.BOOTABLE)
    entry = (24).to_bytes(8, "little")  # ends the symbol table's section header
    lab.kernel.write_bytes(image.replace(entry, (25).to_bytes(8, "little")))
    done = lab.run()
    assert done.code == 4
    assert "entries of 25 bytes" in done.err
    assert "Traceback" not in done.out + done.err


def test_feature_without_tests_for_this_version(lab: Lab) -> None:
    lab.kernel.write_bytes(fake.elf(release="5.4.1", symbols=[fake.MARKER], config=fake.BOOTABLE))
    done = lab.run(node(A), "-rs")
    assert done.code == 0
    assert "msg_ntcopy has no tests for Linux 5.4, only for 6.12" in done.out
    assert done.journal() == {A: Status.SKIP}
