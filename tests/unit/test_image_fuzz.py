# SPDX-License-Identifier: GPL-2.0-only
"""Damaged kernels of every kind: one line or an answer, soon, and never anything else.

Small kernels that are right in every byte are damaged in the ways that hurt: numbers put
to their extremes, pieces cut out and doubled.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.file.unpack import MAGICS
from ktest_ntcopy.image.names.exports import read_exports
from ktest_ntcopy.image.names.symbols import read_symbols
from tests.unit import fake_kernel as fake
from tests.unit.effort import cpu_below
from tests.unit.fake_kallsyms import Layout, symbols, tables
from tests.unit.packers import pack
from tests.unit.test_image_container import zboot
from tests.unit.test_image_exports import exporting
from tests.unit.test_image_kallsyms import arm64_image

#: Seconds of this process's time that one damaged file may cost.
SECONDS = 1.0
EXTREMES = (0, 1, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1)


def _stripped(packer: str = "") -> bytes:
    data = fake.elf(config=fake.BOOTABLE, rodata=tables(symbols(320), Layout())[0])
    return fake.bzimage(payload=pack(packer, data)) if packer else data


def _compressed() -> bytes:
    head = struct.pack("<IIQQ", 1, 0, 5000, 1)
    return fake.elf(
        symbols=["tcp_sendmsg", "tcp_sendmsg.cold"],
        more=[(".debug_info", 0x801, head + zlib.compress(b"debug" * 1000))],
    )


SEEDS: dict[str, Callable[[], bytes]] = {
    "vmlinux": fake.with_feature,
    "32-bit": lambda: fake.elf(machine=fake.S390, symbols=["a", "b.cold"], bits=32, order=">"),
    "stripped": _stripped,
    "compressed debug": _compressed,
    "Image": arm64_image,
    "zboot": lambda: zboot(pack("gzip", arm64_image()), b"gzip"),
    "gzip": lambda: _stripped("gzip"),
    "xz": lambda: _stripped("xz"),
    "zstd": lambda: _stripped("zstd"),
    "lz4": lambda: _stripped("lz4"),
    "lzo": lambda: _stripped("lzo"),
}


@cache
def seed(name: str) -> bytes:
    return SEEDS[name]()


#: One damage: kind, two places as parts of a million of the file, a number.
Damage = tuple[str, int, int, int]


def damaged(data: bytes, damages: list[Damage]) -> bytes:
    out = bytearray(data)
    for kind, first, second, number in damages:
        a, b = (len(out) * place // 1_000_000 for place in (first, second))
        low, high = min(a, b), max(a, b)
        if kind == "number":
            size = (1, 2, 4, 8)[second % 4]
            a = a // size * size
            value = EXTREMES[number % len(EXTREMES)] & ((1 << 8 * size) - 1)
            out[a : a + size] = value.to_bytes(size, "little")
        elif kind == "head":
            at = first % 0x300
            out[at : at + 4] = struct.pack("<I", EXTREMES[number % len(EXTREMES)] & 0xFFFFFFFF)
        elif kind == "cut":
            del out[low : min(high, low + number * 64)]
        elif kind == "end":
            del out[high:]
        elif kind == "double":
            out[low:low] = out[low : min(high, low + number * 64)]
        elif kind == "flip" and out:
            out[min(a, len(out) - 1)] ^= 1 << number % 8
    return bytes(out)


DAMAGES = st.lists(
    st.tuples(
        st.sampled_from(["number", "number", "head", "cut", "end", "double", "flip", "flip"]),
        st.integers(0, 999_999),
        st.integers(0, 999_999),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=6,
)


def ask_everything(path: Path) -> None:
    """What a whole check reads of a file."""
    try:
        kernel = open_kernel(path)
        for text in (kernel.boot_problem, kernel.image_problem, kernel.config_problem):
            assert "\n" not in text
        if kernel.vmlinux is None:
            return
        with Elf(kernel.vmlinux) as elf:
            table = read_symbols(elf)
            if table is not None:
                table.find("absent")
                for name in list(table)[:50]:
                    elf.at(table[name].address, 16)
            read_exports(elf, table)
            for name in (".BTF", ".debug_info", ".rodata"):
                if section := elf.section(name):
                    elf.read(section)
    except ConfigError as err:
        text = str(err)
        assert "\n" not in text
        assert str(path) in text
        assert len(text) < 700


def run(folder: Path, name: str, data: bytes) -> None:
    path = folder / "kernel"
    path.write_bytes(data)
    with cpu_below(SECONDS, name):
        ask_everything(path)


@pytest.mark.parametrize("name", SEEDS)
def test_seed_is_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / "kernel"
    path.write_bytes(seed(name))
    kernel = open_kernel(path)
    assert kernel.vmlinux == path
    with Elf(path) as elf:
        assert read_symbols(elf)


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_kernel(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("fuzz")

    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(DAMAGES)
    @example([("end", 500_000, 999_999, 0)])
    @example([("head", 0x28, 0, 8)])
    def one(damages: list[Damage]) -> None:
        run(folder, name, damaged(seed(name), damages))

    one()


@settings(max_examples=100, deadline=None, database=None)
@example(b"MZ\0\0zimg", b"")  # once a traceback
@given(
    st.sampled_from(
        [*(magic for magic, _ in MAGICS), b"\x7fELF", b"MZ\0\0zimg", b"!<arch>\n", b""]
    ),
    st.binary(max_size=600),
)
def test_noise_after_a_magic_number(
    tmp_path_factory: pytest.TempPathFactory, magic: bytes, noise: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / "noise"
    folder.mkdir(exist_ok=True)
    run(folder, repr(magic), magic + noise)


def test_exports_with_every_byte_damaged(tmp_path: Path) -> None:
    path = exporting(tmp_path)
    whole = path.read_bytes()
    with Elf(path) as elf:
        places = [
            s.offset + i
            for s in elf.sections
            if s.name.startswith(("__ksymtab", "__kcrctab"))
            for i in range(s.size)
        ]
    for at in places:
        data = bytearray(whole)
        data[at] ^= 0x81
        run(tmp_path, f"byte {at}", bytes(data))
