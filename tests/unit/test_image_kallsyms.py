# SPDX-License-Identifier: GPL-2.0-only
"""The symbols of kernels without a symbol table."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.names.kallsyms import find_tables, read_names, relocated_base
from ktest_ntcopy.image.names.symbols import load_symbols, read_symbols
from tests.unit import fake_kernel as fake
from tests.unit.effort import cpu_below
from tests.unit.fake_kallsyms import Layout, symbols, tables

KIMAGE = 0xFFFF800080000000  # where an arm64 kernel is linked


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("form", "last", "between"),
    [
        ("relative", True, False),
        ("percpu", True, False),
        ("relative", False, False),
        ("percpu", False, False),
        ("percpu", False, True),
        ("absolute", False, False),
    ],
)
def test_every_layout(bits: int, order: str, form: str, last: bool, between: bool) -> None:
    layout = Layout(
        bits=bits, order=order, form=form, addresses_last=last, numbers_of_names=between
    )
    base = 0xFFFFFFFF81000000 if bits == 64 else 0xC0000000
    wanted = symbols(700, base, percpu=20 if form == "percpu" else 0)
    data, base_at = tables(wanted, layout)
    found = find_tables(data, bits=bits)
    assert found is not None
    assert (found.order, found.form, found.count) == (order, form, 700)
    assert (found.base_at, found.base) == ((base_at, base) if base_at else (0, 0))
    assert [(n.letter, n.name, n.address) for n in read_names(data, found)] == list(wanted)


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("more", range(4))
def test_addresses_that_count_from_their_own_places(bits: int, order: str, more: int) -> None:
    base = 0xFFFFFFFF81000000 if bits == 64 else 0xC0000000
    wanted = symbols(700 + more, base)
    layout = Layout(bits=bits, order=order, form="place", step=4)
    data, _ = tables(wanted, layout, lead=bytes(64 + 4 * more), start=base + 0x8000)
    found = find_tables(data, bits=bits)
    assert found is not None
    assert (found.order, found.form, found.count) == (order, "place", 700 + more)
    names = read_names(data, found, base=base + 0x8000)
    assert [(n.letter, n.name, n.address) for n in names] == list(wanted)


def test_tables_are_found_among_noise() -> None:
    noise = random.Random(6).randbytes(300_000)
    decoy = b"".join(bytes([c, 0]) for c in b"0123456789")
    data, _ = tables(symbols(600), Layout(), lead=noise + decoy + bytes(3))
    found = find_tables(data, bits=64)
    assert found is not None
    assert read_names(data, found)[0].name == "_text"


def test_names_of_more_than_127_tokens() -> None:
    long = "Aq" * 300
    wanted = [*symbols(300), ("T", long, 0xFFFFFFFF82000000)]
    data, _ = tables(wanted, Layout())
    found = find_tables(data, bits=64)
    assert found is not None
    assert read_names(data, found)[-1].name == long


def test_no_tables() -> None:
    assert find_tables(b"", bits=64) is None
    assert find_tables(bytes(100_000), bits=64) is None
    assert find_tables(b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00" * 999, bits=64) is None


def test_data_made_to_take_long_do_not() -> None:
    """Digits again and again; whole token tables, too; numbers that all could be the count."""
    digits = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00"
    whole, _ = tables(symbols(400), Layout())
    with cpu_below(3.0):
        assert find_tables(digits * 400_000, bits=64) is None
        found = find_tables(whole, bits=64)
        assert found is not None
        tokens = whole[whole.index(digits) - 400 :][:2400]
        find_tables(struct.pack("<II", 400, 0) * 100_000 + tokens * 2000, bits=64)
        counts = struct.pack("<II", 4_000_000, 0) * 100_000
        names = (b"\1" + bytes([ord("T")])) * 3_000_000
        find_tables(counts + names + whole[found.names_at + 4000 :], bits=64)


def test_truncated_tables_are_not_found_or_read_whole() -> None:
    data, _ = tables(symbols(400), Layout())
    for end in range(0, len(data), 97):
        if found := find_tables(data[:end], bits=64):
            assert len(read_names(data[:end], found)) == 400


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_raises_nothing_else(data: st.DataObject) -> None:
    layout = data.draw(st.sampled_from([Layout(form="percpu"), Layout(form="place", step=4)]))
    raw = bytearray(tables(symbols(400), layout, start=0xFFFFFFFF81800000)[0])
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if found := find_tables(bytes(raw), bits=64):
        assert len(read_names(bytes(raw), found)) == 400


def test_stripped_vmlinux(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(
        fake.elf(rodata=tables(symbols(500, percpu=9), Layout(form="percpu"))[0])
    )
    table = load_symbols(tmp_path / "vmlinux")
    assert table is not None
    assert table.source == "kallsyms"
    assert len(table) == 500
    first, second = table["_text"], table["do_something_1.isra.1"]
    assert (first.type, first.binding, first.address) == ("func", "global", 0xFFFFFFFF81000000)
    assert (second.type, second.binding, second.address) == ("func", "local", first.address + 16)
    assert first.size == 16  # up to the next symbol
    assert table["do_something_2.isra.2"].type == "object"
    assert [s.name for s in table.find("do_something_5")] == ["do_something_5.isra.5"]


def test_names_that_occur_twice(tmp_path: Path) -> None:
    wanted = [*symbols(400), ("t", "_text", 0xFFFFFFFF82000000), ("t", "z", 0xFFFFFFFF82000040)]
    (tmp_path / "vmlinux").write_bytes(fake.elf(rodata=tables(wanted, Layout())[0]))
    table = load_symbols(tmp_path / "vmlinux")
    assert table is not None
    assert [(s.address & 0xFFFFFFFF, s.size) for s in table.twins("_text")] == [
        (0x81000000, 16),
        (0x82000000, 0x40),
    ]
    assert table["z"].size == 0  # nothing follows


def test_symbol_table_comes_before_kallsyms(tmp_path: Path) -> None:
    data = fake.elf(symbols=["tcp_sendmsg"], rodata=tables(symbols(500), Layout())[0])
    (tmp_path / "vmlinux").write_bytes(data)
    table = load_symbols(tmp_path / "vmlinux")
    assert table is not None
    assert (table.source, list(table)) == (".symtab", ["tcp_sendmsg"])


def test_neither(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(fake.elf())
    assert load_symbols(tmp_path / "vmlinux") is None


def test_stripped_vmlinux_whose_addresses_count_from_their_own_places(tmp_path: Path) -> None:
    layout = Layout(form="place", step=4)
    size = len(tables(symbols(500), layout, start=0xFFFFFFFF81000000)[0])
    (tmp_path / "vmlinux").write_bytes(fake.elf(rodata=bytes(size)))
    with Elf(tmp_path / "vmlinux") as elf:
        rodata = elf.section(".rodata")
        assert rodata is not None
    data, _ = tables(symbols(500), layout, start=rodata.address)
    (tmp_path / "vmlinux").write_bytes(fake.elf(rodata=data))
    table = load_symbols(tmp_path / "vmlinux")
    assert table is not None
    assert table["_text"].address == 0xFFFFFFFF81000000
    assert table["do_something_499.isra.2"].address == 0xFFFFFFFF81000000 + 499 * 16


def test_numbers_that_are_all_zero_are_no_addresses() -> None:
    data, _ = tables(symbols(500), Layout(form="place", step=4), start=0xFFFFFFFF82000000)
    found = find_tables(data, bits=64)
    assert found is not None
    assert find_tables(data[: found.addresses_at] + bytes(9000), bits=64) is None


def arm64_image(base: int = KIMAGE, form: str = "relative") -> bytes:
    """A raw Image whose base address only a relocation knows, and that has BTF."""
    head = bytearray(0x10000)
    head[0x38:0x3C] = b"ARM\x64"
    head += b"Linux version 6.12.117-arm (user@host) (gcc) #1 SMP\n\0"
    layout = Layout(base_in_place=False, form=form, step=0 if form == "relative" else 4)
    data, base_at = tables(symbols(500, base + 0x10000), layout, lead=bytes(head), start=base)
    decoy = struct.pack("<QQQ", base + 0x8000 + (base_at & 0xFFFF), 0x403, base + 64)
    relocation = struct.pack("<QQQ", base + base_at, 0x403, base + 0x10000)
    types = fake.btf({"iov_iter": ["count", "nontemporal"]})
    return data + b"\0" * (-len(data) % 8) + decoy + relocation + bytes(64) + types + bytes(64)


@pytest.mark.parametrize("form", ["relative", "place"])
def test_arm64_image(tmp_path: Path, form: str) -> None:
    (tmp_path / "Image").write_bytes(arm64_image(form=form))
    with Elf(tmp_path / "Image") as image:
        table = read_symbols(image)
        assert table is not None
        assert table["_text"].address == KIMAGE + 0x10000
        assert (image.arch, image.bits, image.order) == ("aarch64", 64, "<")
        assert image.at(KIMAGE + 0x38, 4) == b"ARM\x64"
        section = image.section(".BTF")
        assert section is not None
        assert image.read(section) == fake.btf({"iov_iter": ["count", "nontemporal"]})


def test_relocation_of_another_place_is_not_taken() -> None:
    data = arm64_image()
    found = find_tables(data, bits=64)
    assert found is not None
    assert relocated_base(data, found.base_at) == (KIMAGE, KIMAGE + 0x10000)
    assert relocated_base(data, found.base_at + 8) is None


def test_stripped_arm64_vmlinux_takes_the_base_from_its_relocations(tmp_path: Path) -> None:
    data, base_at = tables(symbols(500, KIMAGE), Layout(base_in_place=False))
    plain = fake.elf(machine=fake.AARCH64, rodata=data)
    (tmp_path / "vmlinux").write_bytes(plain)
    with Elf(tmp_path / "vmlinux") as elf:
        rodata = elf.section(".rodata")
        assert rodata is not None
        place = rodata.address + elf.read(rodata).index(data) + base_at
    rows = struct.pack("<QQQ", place + 8, 0x403, 1) + struct.pack("<QQQ", place, 0x403, KIMAGE)
    more = [(".rela.dyn", 4, rows)]
    (tmp_path / "vmlinux").write_bytes(fake.elf(machine=fake.AARCH64, rodata=data, more=more))
    table = load_symbols(tmp_path / "vmlinux")
    assert table is not None
    assert table["_text"].address == KIMAGE
