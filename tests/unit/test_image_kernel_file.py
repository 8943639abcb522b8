# SPDX-License-Identifier: GPL-2.0-only
"""What ``--kernel`` may be, and the one line that says what is wrong with it."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import Expectation
from ktest_ntcopy.image import expectations
from ktest_ntcopy.image.expectations import check
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.types.typeinfo import TypeInfoError
from tests.unit import fake_kernel as fake
from tests.unit.hostile_files import put, refused


def refusal(path: Path) -> str:
    return refused(open_kernel, path)


def test_vmlinux(tmp_path: Path) -> None:
    path = put(tmp_path, fake.with_feature())
    kernel = open_kernel(path)
    assert (kernel.path, kernel.vmlinux, kernel.kind) == (path, path, "vmlinux")
    assert (kernel.arch, kernel.release, kernel.version) == ("x86_64", "6.12.117-test", "6.12")
    assert kernel.identity == "12" * 20
    assert kernel.config is not None
    assert kernel.config["CONFIG_VIRTIO_PCI"] == "y"
    assert kernel.config.source == f"IKCONFIG in {path}"
    assert kernel.boot_problem == ""
    assert kernel.build_dir is None


def test_identity_without_build_id_follows_the_content(tmp_path: Path) -> None:
    first = open_kernel(put(tmp_path, fake.elf(build_id=b"", release="6.12.1"), "a"))
    second = open_kernel(put(tmp_path, fake.elf(build_id=b"", release="6.12.2"), "b"))
    assert first.identity
    assert first.identity != second.identity


def test_build_directory(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("Kbuild", "MAINTAINERS"):
        put(tree, b"", name)
    build = fake.build_dir(tmp_path / "build", fake.elf())
    (build / "source").symlink_to(tree)
    kernel = open_kernel(build)
    assert kernel.path == build / "vmlinux"
    assert kernel.build_dir == build
    assert kernel.source_tree == tree
    assert kernel.config is not None
    assert kernel.config.source == str(build / ".config")


def test_tree_built_in_place_is_its_own_source(tmp_path: Path) -> None:
    build = fake.build_dir(tmp_path / "linux", fake.elf())
    for name in ("Kbuild", "MAINTAINERS"):
        put(build, b"", name)
    assert open_kernel(build / "vmlinux").source_tree == build


def test_bzimage_alone(tmp_path: Path) -> None:
    path = put(tmp_path, fake.bzimage("6.1.0-9-amd64"), "vmlinuz-6.1.0-9-amd64")
    put(tmp_path, b"CONFIG_VIRTIO_PCI=m\n", "config-6.1.0-9-amd64")
    kernel = open_kernel(path)
    assert (kernel.kind, kernel.release, kernel.arch) == ("bzImage", "6.1.0-9-amd64", "x86_64")
    assert kernel.vmlinux is None
    assert kernel.config is not None
    assert kernel.config["CONFIG_VIRTIO_PCI"] == "m"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress])
def test_bzimage_alone_tells_its_configuration(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    inside = fake.elf(config={**fake.BOOTABLE, "CONFIG_VIRTIO_CONSOLE": "m"})
    kernel = open_kernel(put(tmp_path, fake.bzimage(payload=pack(inside)), "bzImage"))
    assert kernel.config is not None
    assert kernel.config["CONFIG_VIRTIO_PCI"] == "y"
    assert "CONFIG_VIRTIO_CONSOLE is a module" in kernel.boot_problem


@pytest.mark.parametrize("payload", [b"\x28\xb5\x2f\xfd zstd", b"\x1f\x8b damaged", b"BZh", b""])
def test_bzimage_that_cannot_be_unpacked_has_no_known_configuration(
    tmp_path: Path, payload: bytes
) -> None:
    kernel = open_kernel(put(tmp_path, fake.bzimage(payload=payload), "bzImage"))
    assert (kernel.config, kernel.vmlinux, kernel.boot_problem) == (None, None, "")
    assert "\n" not in kernel.image_problem
    assert "copy or build it again" in kernel.image_problem or "not known" in kernel.image_problem


def test_bzimage_in_a_build_directory_finds_its_vmlinux(tmp_path: Path) -> None:
    build = fake.build_dir(tmp_path / "build", fake.elf())
    image = put(build, fake.bzimage(), "arch/x86/boot/bzImage")
    kernel = open_kernel(image)
    assert kernel.path == image
    assert kernel.vmlinux == build / "vmlinux"
    assert kernel.build_dir == build


def test_bzimage_does_not_take_another_kernels_vmlinux(tmp_path: Path) -> None:
    build = fake.build_dir(tmp_path / "build", fake.elf(release="6.12.118"))
    image = put(build, fake.bzimage("6.12.117"), "arch/x86/boot/bzImage")
    assert open_kernel(image).vmlinux is None


def test_vmlinux_without_pvh_boots_by_its_bzimage(tmp_path: Path) -> None:
    build = fake.build_dir(tmp_path / "build", fake.elf(pvh=False))
    assert "CONFIG_PVH=y" in open_kernel(build).boot_problem
    image = put(build, fake.bzimage(), "arch/x86/boot/bzImage")
    kernel = open_kernel(build)
    assert (kernel.path, kernel.kind, kernel.boot_problem) == (image, "bzImage", "")
    assert kernel.vmlinux == build / "vmlinux"


@pytest.mark.parametrize("value", ["n", "m"])
@pytest.mark.parametrize("name", sorted(fake.BOOTABLE))
def test_config_that_cannot_boot(tmp_path: Path, name: str, value: str) -> None:
    config = {**fake.BOOTABLE, name: value}
    if value == "n":
        del config[name]
    problem = open_kernel(put(tmp_path, fake.elf(config=config))).boot_problem
    assert f"{name} is {'a module' if value == 'm' else 'not set'}" in problem
    assert f"{name}=y" in problem


def test_missing(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none")


def test_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "none")
    assert "dangling symbolic link" in refusal(tmp_path / "link")


def test_empty(tmp_path: Path) -> None:
    assert "is empty" in refusal(put(tmp_path, b""))


def test_not_elf(tmp_path: Path) -> None:
    assert "neither an ELF file" in refusal(put(tmp_path, b"#!/bin/sh\n" * 100))


def test_short_file(tmp_path: Path) -> None:
    assert "truncated or no kernel (10 bytes)" in refusal(put(tmp_path, b"#!/bin/sh\n"))


@pytest.mark.parametrize(
    ("head", "name"), [(b"\x1f\x8b\x08", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"BZh9", "bzip2")]
)
def test_compressed_and_damaged(tmp_path: Path, head: bytes, name: str) -> None:
    text = refusal(put(tmp_path, head + b"\0" * 4000))
    assert f"the {name}-compressed kernel cannot be unpacked" in text


def test_elf_of_another_architecture_can_be_looked_at(tmp_path: Path) -> None:
    kernel = open_kernel(put(tmp_path, fake.elf(machine=fake.AARCH64, config=fake.BOOTABLE)))
    assert (kernel.arch, kernel.bits, kernel.order) == ("aarch64", 64, "<")
    assert kernel.config is not None
    assert "built for aarch64" in kernel.boot_problem
    assert "x86_64" in kernel.boot_problem


def test_big_endian_elf(tmp_path: Path) -> None:
    kernel = open_kernel(put(tmp_path, fake.elf(machine=fake.S390, order=">")))
    assert (kernel.arch, kernel.bits, kernel.order) == ("s390x", 64, ">")
    assert "s390x" in kernel.boot_problem


def test_32_bit_elf(tmp_path: Path) -> None:
    kernel = open_kernel(put(tmp_path, fake.elf(machine=fake.I386, bits=32)))
    assert (kernel.arch, kernel.bits, kernel.order) == ("i686", 32, "<")
    assert "i686" in kernel.boot_problem


def test_32_bit_bzimage(tmp_path: Path) -> None:
    assert "i686" in open_kernel(put(tmp_path, fake.bzimage(flags=0))).boot_problem


def test_image_that_is_no_kernel(tmp_path: Path) -> None:
    raw = b"\0" * 0x38 + b"ARM\x64" + b"\0" * 4000
    assert "is an image, but no Linux kernel" in refusal(put(tmp_path, raw, "Image"))


def test_object_file(tmp_path: Path) -> None:
    assert "object file" in refusal(put(tmp_path, fake.elf(kind=fake.REL)))


def test_core_dump(tmp_path: Path) -> None:
    assert "core dump" in refusal(put(tmp_path, fake.elf(kind=fake.CORE)))


def test_program_that_is_no_kernel(tmp_path: Path) -> None:
    assert "no Linux kernel" in refusal(put(tmp_path, fake.elf(release="")))


def test_truncated_bzimage(tmp_path: Path) -> None:
    assert "truncated" in refusal(put(tmp_path, fake.bzimage()[:-100]))


def test_directory_without_vmlinux(tmp_path: Path) -> None:
    assert "without a vmlinux (no kernel build)" in refusal(tmp_path)


def test_directory_of_installed_kernels(tmp_path: Path) -> None:
    put(tmp_path, fake.bzimage(), "vmlinuz-6.12.117-test")
    assert "give one of the kernels in it: vmlinuz-6.12.117-test" in refusal(tmp_path)


def test_damage_that_only_the_search_for_like_names_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names() -> Iterable[str]:
        raise TypeInfoError("string 128 is not in the table")

    miss = expectations._Miss("gone", name="proto.absent", among=names)
    monkeypatch.setitem(expectations._ASK, "member", lambda *_: miss)
    facts = Image(open_kernel(put(tmp_path, fake.with_feature())))
    with pytest.raises(ConfigError, match="damaged type information: string 128"):
        check(facts, Expectation(kind="member", name="proto.absent", why="so"))


@pytest.mark.parametrize("gone", [".config", "include/config/kernel.release"])
def test_directory_that_is_no_build(tmp_path: Path, gone: str) -> None:
    build = fake.build_dir(tmp_path / "build", fake.elf())
    (build / gone).unlink()
    assert gone in refusal(build)


def test_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # opening it would wait for a writer for ever
    assert "is a FIFO" in refusal(tmp_path / "fifo")


def test_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("s")
        assert "is a socket" in refusal(tmp_path / "s")


def test_device() -> None:
    assert "is a character device" in refusal(Path("/dev/null"))


def test_unreadable(tmp_path: Path) -> None:
    path = put(tmp_path, fake.elf())
    path.chmod(0)
    if root := os.geteuid() == 0:
        os.seteuid(65534)  # root reads everything
    try:
        assert "Permission denied" in refusal(path)
    finally:
        if root:
            os.seteuid(0)


def test_every_truncation_is_one_line(tmp_path: Path) -> None:
    whole = fake.with_feature()
    path = tmp_path / "vmlinux"
    for size in range(1, len(whole), 7):
        path.write_bytes(whole[:size])
        assert re.search("truncated|damaged", refusal(path)), size


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_hostile_bytes_never_give_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    image = bytearray(fake.with_feature())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(image) - 8))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1]))
        image[at : at + 8] = struct.pack("<Q", value)
    path = tmp_path_factory.getbasetemp() / "hostile"
    path.write_bytes(image)
    with contextlib.suppress(ConfigError):
        facts = Image(open_kernel(path))
        for kind, name in (
            ("symbol", fake.MARKER),
            ("symbol", "absent_symbol"),
            ("member", "iov_iter.nontemporal"),
            ("member", "proto.absent"),
            ("enumerator", "ABSENT"),
            ("config", "CONFIG_NET"),
        ):
            check(facts, Expectation(kind=kind, name=name, why="so"))
