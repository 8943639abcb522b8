# SPDX-License-Identifier: GPL-2.0-only
"""Kernels inside boot images and compressed files."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import struct
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.image.file import container
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.file.unpack import UnpackError, packer_of, pieces, unpack
from ktest_ntcopy.image.names.symbols import load_symbols
from tests.unit import fake_kernel as fake
from tests.unit.effort import cpu_below
from tests.unit.fake_kallsyms import Layout, symbols, tables
from tests.unit.hostile_files import put, refused
from tests.unit.packers import PACKERS, pack
from tests.unit.test_image_kallsyms import KIMAGE, arm64_image

NOISE = random.Random(5).randbytes(70_000)
#: "a kernel " forty times, packed by the tools that the kernel's build runs: lzop 1.04 -9,
#: lz4 1.9.4 -l -9, zstd 1.5.4 -22 --ultra, xz 5.4.1 --format=lzma -9.
BY_TOOLS = {
    "lzo": "iUxaTwANChoKEEAgoAlAAwkDAAANAAAAAGsNyMIAAAAAAC35A3gAAAFoAAAAEmbwfVEaYSBrZXJuZWwgIAA/"
    "IAARAAAAAAAA",
    "lz4": "AiFMGBQAAACfYSBrZXJuZWwgCQD/SFBybmVsIA==",
    "zstd": "KLUv/QSIhQAASGEga2VybmVsIAEAXFTLEUgPwuY=",
    "lzma": "XQAAAAT//////////wAwiAlmlFN0tnFWlrcHBKpxm///5AYAAA==",
}


def refusal(path: Path) -> str:
    return refused(Elf, path)


def kernel(*, names: int = 400) -> bytes:
    """A stripped kernel with its own symbols, a configuration, and what packs badly."""
    rodata = NOISE + tables(symbols(names), Layout())[0]
    return fake.elf(config=fake.BOOTABLE, rodata=rodata)


def zboot(payload: bytes, name: bytes, *, size: int | None = None) -> bytes:
    """The EFI program around a packed Image."""
    head = b"MZ\0\0zimg" + struct.pack("<IIII", 512, len(payload) if size is None else size, 0, 0)
    return (head + name + b"\0").ljust(512, b"\0") + payload + b"\0" * 64


@pytest.mark.parametrize("packer", PACKERS)
def test_every_packer_round_trip(packer: str) -> None:
    for data in (b"", b"a", kernel(), b"\0" * 3_000_000, NOISE):
        packed = pack(packer, data)
        assert packer_of(packed) == packer
        assert unpack(packer, packed, limit=len(data)) == data


@pytest.mark.parametrize(("packer", "packed"), BY_TOOLS.items())
def test_what_the_build_s_tools_pack(packer: str, packed: str) -> None:
    data = base64.b64decode(packed)
    assert packer_of(data) == packer
    for end in (b"", struct.pack("<I", 360)):
        assert unpack(packer, data + end, limit=360) == b"a kernel " * 40


@pytest.mark.parametrize("packer", PACKERS)
def test_more_than_the_limit(packer: str) -> None:
    with pytest.raises(UnpackError, match="more than 1000 bytes"):
        unpack(packer, pack(packer, b"\0" * 1001), limit=1000)


@pytest.mark.parametrize("packer", PACKERS)
def test_every_truncation_is_damage(packer: str) -> None:
    data = kernel()
    packed = PACKERS[packer](data)
    for end in range(0, len(packed) - 8, 997):
        with pytest.raises(UnpackError):
            unpack(packer, packed[:end], limit=len(data))


@pytest.mark.parametrize("packer", PACKERS)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damage_raises_nothing_else(packer: str, data: st.DataObject) -> None:
    raw = bytearray(pack(packer, b"Linux version " * 500 + NOISE[:3000]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    size = 0
    with contextlib.suppress(UnpackError):
        for piece in pieces(packer, lambda at, n: bytes(raw[at : at + n]), len(raw)):
            size += len(piece)
            if size > 1 << 24:
                break


@pytest.mark.parametrize("packer", PACKERS)
def test_bzimage(tmp_path: Path, packer: str) -> None:
    path = put(tmp_path, fake.bzimage(payload=pack(packer, kernel())))
    found = open_kernel(path)
    assert (found.kind, found.path, found.vmlinux) == ("bzImage", path, path)
    assert (found.image_problem, found.boot_problem) == ("", "")
    assert found.config is not None
    assert found.config.source == f"IKCONFIG in {path}"
    table = load_symbols(path)
    assert table is not None
    assert len(table) == 400
    with Elf(path) as elf:
        assert (elf.container.packer, elf.build_id) == (packer, "12" * 20)


@pytest.mark.parametrize("packer", PACKERS)
def test_compressed_image_and_zboot(tmp_path: Path, packer: str) -> None:
    image = arm64_image()
    packed = pack(packer, image)
    for kind, data in (
        ("Image", image),
        ("packed", packed),
        ("zboot", zboot(packed, packer.encode())),
    ):
        path = put(tmp_path, data, kind)
        found = open_kernel(path)
        assert (found.kind, found.vmlinux, found.release) == (kind, path, "6.12.117-arm")
        assert (found.arch, found.bits, found.order) == ("aarch64", 64, "<")
        assert "built for aarch64" in found.boot_problem
        table = load_symbols(path)
        assert table is not None
        assert table["_text"].address == KIMAGE + 0x10000


def test_riscv_image(tmp_path: Path) -> None:
    image = bytearray(arm64_image())
    image[0x38:0x3C] = b"RSC\x05"
    assert open_kernel(put(tmp_path, bytes(image))).arch == "riscv64"


def test_compressed_vmlinux_can_be_looked_at(tmp_path: Path) -> None:
    found = open_kernel(put(tmp_path, PACKERS["zstd"](kernel()), "vmlinux.zst"))
    assert (found.kind, found.release) == ("packed", "6.12.117-test")
    assert "unpack it" in found.boot_problem


def test_bzimage_in_a_compressed_file(tmp_path: Path) -> None:
    inner = fake.bzimage(payload=pack("xz", kernel()))
    found = open_kernel(put(tmp_path, PACKERS["gzip"](inner), "vmlinuz.gz"))
    assert found.release == "6.12.117-test"


def test_packed_too_often(tmp_path: Path) -> None:
    data = kernel()
    for _ in range(6):
        data = PACKERS["gzip"](data)
    assert "packed more than 4 times" in refusal(put(tmp_path, data))


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"!<arch>\ndebian-binary   ", "dpkg-deb -x"),
        (b"!<arch>\nvmlinux.o/", "archive"),
        (b"\xed\xab\xee\xdb", "rpm2cpio"),
        (b"\x27\x05\x19\x56", "U-Boot"),
        (b"\xd0\x0d\xfe\xed", "device tree"),
        (b"070701", "cpio"),
        (b"MZ\0\0", "unified kernel image"),
        (b"\0" * 0x24 + b"\x18\x28\x6f\x01", "32-bit ARM zImage"),
    ],
)
def test_what_is_no_kernel_says_what_to_do(tmp_path: Path, head: bytes, said: str) -> None:
    assert said in refusal(put(tmp_path, head.ljust(5000, b"\0")))


def test_packed_data_that_hold_no_kernel(tmp_path: Path) -> None:
    path = put(tmp_path, PACKERS["xz"](b"#!/bin/sh\n" * 99999))
    assert "unpacked, it is neither an ELF file" in refusal(path)


def test_unknown_payload(tmp_path: Path) -> None:
    found = open_kernel(put(tmp_path, fake.bzimage(payload=b"\x90" * 4096)))
    assert found.vmlinux is None
    assert "packed in a way that is not known here" in found.image_problem


def test_truncated_zboot(tmp_path: Path) -> None:
    packed = pack("gzip", arm64_image())
    path = put(tmp_path, zboot(packed, b"gzip", size=len(packed) + 999))
    assert "truncated" in refusal(path)


@pytest.mark.parametrize("packer", PACKERS)
def test_bombs_stop_at_their_first_bytes(tmp_path: Path, packer: str) -> None:
    """Zeroes are no kernel; a megabyte of them is enough to see that."""
    path = put(tmp_path, fake.bzimage(payload=pack(packer, bytes(40 << 20))))
    tracemalloc.start()
    with cpu_below(1.0):
        try:
            assert "unpacked, it is" in refusal(path)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 100 << 20


def test_bomb_that_looks_like_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "KERNEL_LIMIT", 1 << 20)
    head = bytearray(kernel()[:64])
    struct.pack_into("<Q", head, 40, 1 << 60)
    path = put(tmp_path, PACKERS["zstd"](bytes(head) + bytes(9 << 20)))
    assert "unpacks to more than 1 MiB" in refusal(path)


def test_what_follows_the_elf_file_is_not_unpacked(tmp_path: Path) -> None:
    data = kernel()
    path = put(tmp_path, fake.bzimage(payload=pack("lz4", data + bytes(64 << 20))))
    with Elf(path) as elf:
        assert elf.file_size < len(data) + (9 << 20)
        assert elf.build_id


@pytest.mark.parametrize("packer", ["gzip", "bzip2", "xz", "zstd"])
def test_the_checksum_behind_the_kernel_is_held_against_it(tmp_path: Path, packer: str) -> None:
    """x86 appends relocations to the ELF file, so its end comes before that of the data."""
    data = kernel() + bytes(1 << 20)
    if packer == "zstd":
        packed = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    else:
        packed = PACKERS[packer](data)
    with Elf(put(tmp_path, fake.bzimage(payload=packed))) as elf:
        assert elf.build_id
    at = {"gzip": -8, "bzip2": -3, "xz": -29, "zstd": -2}[packer]
    damaged = bytearray(packed)
    damaged[at] ^= 0x10
    said = refusal(put(tmp_path, fake.bzimage(payload=bytes(damaged)), "damaged"))
    assert f"the {packer}-compressed kernel cannot be unpacked: damaged {packer} data" in said


def test_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, fake.bzimage(payload=pack("xz", kernel())))
    open_kernel(path)
    monkeypatch.setattr(container, "_unpacked", lambda *_: pytest.fail("unpacked again"))
    load_symbols(path)


def test_changed_file_is_unpacked_again(tmp_path: Path) -> None:
    first = put(tmp_path, fake.bzimage(payload=pack("gzip", kernel(names=400))))
    assert len(load_symbols(first) or ()) == 400
    second = put(tmp_path, fake.bzimage(payload=pack("gzip", kernel(names=500))), "new")
    second.replace(first)
    assert len(load_symbols(first) or ()) == 500


def test_bzimage_of_another_build_than_the_vmlinux(tmp_path: Path) -> None:
    """make vmlinux after make bzImage leaves two builds of one release side by side."""
    build = fake.build_dir(tmp_path / "build", fake.elf(build_id=b"\x77" * 20))
    (build / "arch/x86/boot").mkdir(parents=True)
    image = put(build / "arch/x86/boot", fake.bzimage(payload=pack("gzip", kernel())), "bzImage")
    assert open_kernel(image).vmlinux == build / "vmlinux"  # made after it, so of it
    os.utime(image, (1, 1))
    assert open_kernel(image).vmlinux == image


def test_vmlinux_is_not_booted_by_a_bzimage_of_another_build(tmp_path: Path) -> None:
    build = fake.build_dir(tmp_path / "build", fake.elf(pvh=False, build_id=b"\x77" * 20))
    (build / "arch/x86/boot").mkdir(parents=True)
    image = put(build / "arch/x86/boot", fake.bzimage(payload=pack("gzip", kernel())), "bzImage")
    assert open_kernel(build).path == image
    os.utime(image, (1, 1))
    found = open_kernel(build)
    assert found.path == build / "vmlinux"
    assert "CONFIG_PVH=y" in found.boot_problem
