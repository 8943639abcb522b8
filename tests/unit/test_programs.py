# SPDX-License-Identifier: GPL-2.0-only
"""Where test programs come from: the tree that is chosen, and a cache that is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy.cli import parser
from ktest_ntcopy.errors import BuildError, ConfigError
from ktest_ntcopy.features.model import Program
from ktest_ntcopy.image.file.kernel_file import KernelFile, open_kernel
from ktest_ntcopy.kernel.guest_program import build_static
from ktest_ntcopy.programs import build_programs, checked
from tests.unit import fake_kernel as fake

HARNESS = """
#include <stdio.h>
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelFile:
    monkeypatch.setenv("KTEST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "vmlinux").write_bytes(fake.with_feature())
    return open_kernel(tmp_path / "vmlinux")


def test_no_tree_says_what_to_run(kernel: KernelFile) -> None:
    with pytest.raises(ConfigError, match="--ktest-tree=DIR, or run `ktest-ntcopy") as caught:
        build_programs(kernel, None)
    told = re.search("`ktest-ntcopy (.*)`", str(caught.value))
    assert told
    assert parser().parse_args(told[1].split()).version == "6.12"  # the command exists


def test_no_tree_of_an_unsupported_version_does_not_say_to_fetch_one(kernel: KernelFile) -> None:
    with pytest.raises(ConfigError, match=r"Linux 6\.13 is not supported; supported: 6\.12") as e:
        build_programs(replace(kernel, release="6.13.0"), None)
    assert "fetch" not in str(e.value)


def test_tree_without_selftests_is_named(kernel: KernelFile, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tree: is no kernel tree with selftests"):
        build_programs(kernel, tmp_path / "tree")


def test_the_kernels_own_tree_comes_before_the_cache(kernel: KernelFile, tmp_path: Path) -> None:
    cached = tmp_path / "cache/trees/linux-source-6.12_1/tools/testing/selftests"
    cached.mkdir(parents=True)
    (cached / "kselftest_harness.h").write_text(HARNESS)
    with pytest.raises(ConfigError, match=r"linux-source-6\.12_1: is no kernel tree"):
        build_programs(kernel, None)  # found, but without net/Makefile
    with pytest.raises(ConfigError, match="own: is no kernel tree"):
        build_programs(replace(kernel, source_tree=tmp_path / "own"), None)


def test_version_without_tests(kernel: KernelFile, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no feature has tests for Linux 5\.4"):
        build_programs(replace(kernel, release="5.4.0"), tmp_path)


def damage_home(cache: Path) -> None:
    cache.write_text("")


def damage_folder(cache: Path) -> None:
    (cache / "programs").mkdir(parents=True)
    (cache / "programs/6.12").write_text("")


def damage_link(cache: Path) -> None:
    cache.symlink_to("/proc/none")


@pytest.mark.parametrize("damage", [damage_home, damage_folder, damage_link])
def test_cache_that_cannot_be_written_is_one_line(
    kernel: KernelFile, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    tree = tmp_path / "tree/tools/testing/selftests"
    (tree / "net").mkdir(parents=True)
    (tree / "kselftest_harness.h").write_text(HARNESS)
    (tree / "net/Makefile").write_text("TEST_GEN_FILES =\n\ninclude ../lib.mk\n")
    damage(tmp_path / "cache")
    with pytest.raises(
        ConfigError, match=r"cannot make the test programs: .*; KTEST_CACHE"
    ) as caught:
        build_programs(kernel, tmp_path / "tree")
    assert str(tmp_path / "cache") in str(caught.value)
    assert "\n" not in str(caught.value)


class Builder:
    """Makes a file unless it is there, as the compiler's cache does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "prog-0123"
        self.times = 0

    def __call__(self) -> Path:
        if not self.path.exists():
            self.times += 1
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_bytes(b"the program")
        return self.path


def test_cache_is_used_while_it_is_sound(tmp_path: Path) -> None:
    build = Builder(tmp_path / "programs")
    for _ in range(3):
        assert checked(build, build.path.parent).read_bytes() == b"the program"
    assert build.times == 1


@pytest.mark.parametrize("damage", [b"", b"the prog", b"the Program"])
def test_damaged_cache_is_made_again(tmp_path: Path, damage: bytes) -> None:
    build = Builder(tmp_path / "programs")
    checked(build, build.path.parent)
    build.path.write_bytes(damage)
    assert checked(build, build.path.parent).read_bytes() == b"the program"
    assert build.times == 2


def test_folder_in_the_way_of_a_program_is_removed(tmp_path: Path) -> None:
    build = Builder(tmp_path / "programs")
    for name in (build.path.name, f"{build.path.name}.sha256"):
        (tmp_path / "programs" / name / "inner").mkdir(parents=True)
    assert checked(build, build.path.parent).read_bytes() == b"the program"
    assert build.times == 1
    checked(build, build.path.parent)
    assert build.times == 1


def test_full_disk_is_what_is_said_of_a_failed_link(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--version*) echo cc 1; exit 0;; esac\n'
        "echo '/usr/bin/ld: final link failed: No space left on device' >&2\n"
        "echo 'collect2: error: ld returned 1 exit status' >&2\n"
        "exit 1\n"
    )
    compiler.chmod(0o755)
    (tmp_path / "prog.c").write_text("int main(void) { return 0; }\n")
    program = Program(name="prog", target="net", template="t", timeout=1, fixtures=())
    with pytest.raises(BuildError) as caught:
        build_static(program, tmp_path, tmp_path / "out", cc=str(compiler))
    assert str(caught.value) == (
        "prog does not compile: /usr/bin/ld: final link failed: No space left on device"
    )


@pytest.mark.parametrize("record", [None, b"", b"\xff nonsense"])
def test_file_without_a_sound_record_is_not_trusted(tmp_path: Path, record: bytes | None) -> None:
    build = Builder(tmp_path / "programs")
    checked(build, build.path.parent)
    note = build.path.with_name("prog-0123.sha256")
    note.unlink()
    if record is not None:
        note.write_bytes(record)
    checked(build, build.path.parent)
    assert build.times == 2
    checked(build, build.path.parent)
    assert build.times == 2
