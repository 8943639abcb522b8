# SPDX-License-Identifier: GPL-2.0-only
"""ELF sections, compressed or not, and files as damage and malice leave them."""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from pathlib import Path

import pytest
import zstandard

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.file.reader import FileSource
from ktest_ntcopy.image.names.symbols import load_symbols, read_symbols
from ktest_ntcopy.image.types.btf import read_btf
from tests.unit import fake_kernel as fake
from tests.unit.effort import cpu_below
from tests.unit.hostile_files import put, refused

DEBUG = bytes(range(256)) * 999


def read_all(path: Path) -> None:
    with Elf(path) as elf:
        for section in elf.sections:
            elf.read(section)
        read_symbols(elf)


def refusal(path: Path) -> str:
    return refused(read_all, path)


# Symbols


def test_prefixes_do_not_answer_for_the_function(tmp_path: Path) -> None:
    """The padding before a function has its own symbol, at another address."""
    table = load_symbols(put(tmp_path, fake.elf(symbols=["__cfi_foo", "__pfx_foo"])))
    assert table is not None
    assert table.find("foo") == ()


# Compressed sections


def compressed(bits: int, order: str, kind: int, data: bytes, size: int | None = None) -> bytes:
    size = len(DEBUG) if size is None else size
    head = (
        struct.pack(order + "IIQQ", kind, 0, size, 1)
        if bits == 64
        else struct.pack(order + "III", kind, size, 1)
    )
    return fake.elf(
        bits=bits, order=order, machine=fake.S390, more=[(".debug_info", 0x801, head + data)]
    )


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [1, 2])
def test_compressed_section(tmp_path: Path, bits: int, order: str, kind: int) -> None:
    packed = zlib.compress(DEBUG) if kind == 1 else zstandard.compress(DEBUG)
    with Elf(put(tmp_path, compressed(bits, order, kind, packed))) as elf:
        section = elf.section(".debug_info")
        assert section is not None
        assert section.compressed
        assert elf.read(section) == DEBUG
        assert elf.read(section, start=256, size=3) == b"\0\1\2"


def test_old_compressed_section(tmp_path: Path) -> None:
    data = b"ZLIB" + struct.pack(">Q", len(DEBUG)) + zlib.compress(DEBUG)
    with Elf(put(tmp_path, fake.elf(more=[(".zdebug_info", 1, data)]))) as elf:
        section = elf.section(".debug_info")
        assert section is not None
        assert elf.read(section) == DEBUG


@pytest.mark.parametrize(
    ("kind", "data", "size", "said"),
    [
        (1, zlib.compress(DEBUG)[:-99], None, "damaged zlib data: it ends early"),
        (1, zlib.compress(DEBUG), 99, "claims to unpack to 99 bytes"),
        (1, zlib.compress(DEBUG), len(DEBUG) + 1, "claims to unpack to"),
        (2, b"\x28\xb5\x2f\xfd" + b"\xff" * 99, None, "damaged zstd data"),
        (2, b"", None, "damaged zstd data: it ends early"),
        (9, b"", None, "compressed in an unknown way"),
        (1, b"", 1 << 50, "larger than any kernel's"),
    ],
)
def test_damaged_compressed_section(
    tmp_path: Path, kind: int, data: bytes, size: int | None, said: str
) -> None:
    assert said in refusal(put(tmp_path, compressed(64, "<", kind, data, size)))


def test_section_too_short_for_its_compression_header(tmp_path: Path) -> None:
    refusal(put(tmp_path, fake.elf(more=[(".debug_info", 0x801, b"\1\0")])))


def test_bomb_in_a_section(tmp_path: Path) -> None:
    """It claims a hundred bytes and gives a gigabyte: the first piece too many ends it."""
    packed = zlib.compress(bytes(1 << 26))
    with cpu_below(1):
        assert "claims to unpack to 100 bytes" in refusal(
            put(tmp_path, compressed(64, "<", 1, packed, 100))
        )


# Absurd headers


@pytest.mark.parametrize(
    ("at", "layout", "value", "said"),
    [
        (4, "B", 7, "damaged ELF header"),
        (5, "B", 0, "damaged ELF header"),
        (40, "Q", 1 << 62, "truncated"),  # e_shoff
        (32, "Q", 1 << 62, "truncated"),  # e_phoff
        (58, "H", 1, "section headers of 1 bytes"),  # e_shentsize
        (54, "H", 9, "segment headers of 9 bytes"),  # e_phentsize
        (60, "H", 0xFFFE, "truncated"),  # e_shnum
        (56, "H", 0xFFFE, "truncated"),  # e_phnum
    ],
)
def test_absurd_header(tmp_path: Path, at: int, layout: str, value: int, said: str) -> None:
    data = bytearray(fake.with_feature())
    struct.pack_into("<" + layout, data, at, value)
    assert said in refusal(put(tmp_path, bytes(data)))


def header(data: bytes, name: str) -> int:
    """Where a section's header lies in the file."""
    at = int.from_bytes(data[40:48], "little")
    names = data.index(b"\0.rodata\0")
    wanted = data.index(b"\0" + name.encode() + b"\0", names) + 1 - names
    while struct.unpack_from("<I", data, at)[0] != wanted:
        at += 64
    return at


@pytest.mark.parametrize(
    ("section", "field", "value", "said"),
    [
        (".symtab", 56, 0, "entries of 0 bytes"),  # sh_entsize
        (".symtab", 40, 9999, "names no string table"),  # sh_link
        (".symtab", 40, 0, "damaged string table"),
        (".symtab", 32, 1 << 60, "truncated"),  # sh_size
        (".strtab", 32, 1 << 60, "truncated"),
        (".strtab", 24, 1 << 60, "truncated"),  # sh_offset
        (".strtab", 32, 10, "damaged string table"),
        (".rodata", 32, (1 << 64) - 1, "truncated"),
        (".shstrtab", 24, 1 << 60, "section names"),
    ],
)
def test_absurd_section(tmp_path: Path, section: str, field: int, value: int, said: str) -> None:
    data = bytearray(fake.with_feature())
    layout = "<I" if field == 40 else "<Q"
    struct.pack_into(layout, data, header(bytes(data), section) + field, value)
    assert said in refusal(put(tmp_path, bytes(data)))


@pytest.mark.parametrize("name", [".symtab", ".BTF"])
def test_sections_that_there_are_twice(tmp_path: Path, name: str) -> None:
    twice = [(name, 1, bytes(24)), (name, 1, bytes(24))]
    read = read_symbols if name == ".symtab" else read_btf
    with (
        Elf(put(tmp_path, fake.elf(more=twice))) as elf,
        pytest.raises(ConfigError, match=f"has 2 sections {name}"),
    ):
        read(elf)


def test_overlapping_sections_are_read_as_they_are(tmp_path: Path) -> None:
    data = bytearray(fake.with_feature())
    strings = header(bytes(data), ".strtab")
    table = header(bytes(data), ".symtab")
    data[strings + 24 : strings + 40] = data[table + 24 : table + 40]
    with Elf(put(tmp_path, bytes(data))) as elf:
        assert read_symbols(elf) is not None


def test_file_without_sections_is_read_by_its_segments(tmp_path: Path) -> None:
    data = bytearray(fake.elf(config=fake.BOOTABLE))
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HH", data, 60, 0, 0)
    kernel = open_kernel(put(tmp_path, bytes(data)))
    assert kernel.release == "6.12.117-test"
    assert kernel.config is not None


def test_more_sections_than_the_header_can_count(tmp_path: Path) -> None:
    """Then the count stands in the first section header, and so does the names' index."""
    data = bytearray(fake.with_feature())
    (at,) = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    struct.pack_into("<Q", data, at + 32, count)
    struct.pack_into("<I", data, at + 40, names)
    assert load_symbols(put(tmp_path, bytes(data))) is not None
    struct.pack_into("<Q", data, at + 32, 1 << 40)
    assert "no kernel has more" in refusal(put(tmp_path, bytes(data)))


def test_every_truncation_and_every_section_end(tmp_path: Path) -> None:
    whole = fake.with_feature()
    with Elf(put(tmp_path, whole)) as elf:
        ends = {s.offset for s in elf.sections} | {s.offset + s.size for s in elf.sections}
    for end in sorted(ends - {0, len(whole)}):
        for size in (end - 1, end, end + 1):
            if 0 < size < len(whole):
                refusal(put(tmp_path, whole[:size]))


# Hostile files


def sparse(folder: Path, data: bytes, size: int) -> Path:
    path = put(folder, data)
    os.truncate(path, size)
    return path


def test_four_gigabytes_with_a_section_over_all(tmp_path: Path) -> None:
    data = bytearray(fake.elf(release="", symbols=["a"]))
    at = header(bytes(data), ".rodata")
    struct.pack_into("<Q", data, at + 32, (4 << 30) - 4096)
    path = sparse(tmp_path, bytes(data), 4 << 30)
    with cpu_below(1.5):
        with pytest.raises(ConfigError):
            open_kernel(path)
        with Elf(path) as elf, pytest.raises(ConfigError, match="larger than any kernel's"):
            elf.read(elf.sections[1])


def test_four_gigabytes_of_nothing(tmp_path: Path) -> None:
    assert "neither an ELF file" in refusal(sparse(tmp_path, bytes(600), 4 << 30))


def test_file_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "is a FIFO" in refusal(tmp_path / "fifo")
    assert "symbolic links" in refusal(tmp_path / "a")
    assert "is a directory" in refusal(tmp_path)
    assert "is a character device" in refusal(Path("/dev/zero"))
    with pytest.raises(ConfigError, match="symbolic links"):
        open_kernel(tmp_path / "a")


def test_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, fake.with_feature())
    with Elf(path) as elf:
        section = elf.section(".strtab")
        assert section is not None
        os.truncate(path, 100)
        with pytest.raises(ConfigError, match="while it was read"):
            elf.read(section)


def test_file_that_shrinks_again_and_again(tmp_path: Path) -> None:
    """Never anything but one line, whenever it happens."""
    path = put(tmp_path, fake.with_feature())
    whole = path.read_bytes()
    stop = threading.Event()

    def damage() -> None:
        while not stop.is_set():
            path.write_bytes(whole[: len(whole) // 2])
            path.write_bytes(whole)

    thread = threading.Thread(target=damage)
    thread.start()
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            try:
                open_kernel(path)
                load_symbols(path)
            except ConfigError as err:
                assert "\n" not in str(err)  # noqa: PT017
    finally:
        stop.set()
        thread.join()


def test_source_reads_nothing_beyond_its_end(tmp_path: Path) -> None:
    source = FileSource(put(tmp_path, b"abc"))
    try:
        assert source.read(1, 2) == b"bc"
        assert source.read(3, 0) == b""
        with pytest.raises(ConfigError):
            source.read(1, 3)
    finally:
        source.close()


def test_names_without_end(tmp_path: Path) -> None:
    """Every symbol's name begins in a megabyte of one name."""
    rows = b"".join(struct.pack("<IBBHQQ", 1 + n, 0x12, 0, 1, n, 1) for n in range(20_000))
    data = bytearray(fake.elf(symbols=["a"]))
    base = len(data)
    data += rows + b"\0" + b"A" * (1 << 20) + b"\0"
    table, strings = header(bytes(data), ".symtab"), header(bytes(data), ".strtab")
    struct.pack_into("<QQ", data, table + 24, base, len(rows))
    struct.pack_into("<QQ", data, strings + 24, base + len(rows), 2 + (1 << 20))
    with cpu_below(1):
        assert len(load_symbols(put(tmp_path, bytes(data))) or ()) == 0
