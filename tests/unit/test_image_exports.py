# SPDX-License-Identifier: GPL-2.0-only
"""What kernels export to modules."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.names.exports import Export, Exports, hint, read_exports
from ktest_ntcopy.image.names.symbols import Symbol
from tests.unit import fake_kernel as fake
from tests.unit.test_image_kallsyms import KIMAGE, arm64_image

#: Name and namespace; the first three for all modules, the others for GPL ones.
ROWS = [("alpha", ""), ("beta", "DMA_BUF"), ("sub_beta", ""), ("gamma", "CXL"), ("delta", "")]
VALUE = 0x40  # what each entry refers to
TEXT = b"alpha\0\0sub_beta\0DMA_BUF\0gamma\0CXL\0delta\0"  # "beta" is an end of "sub_beta"

Address = Callable[[str], int]


def exporting(
    folder: Path,
    *,
    order: str = "<",
    bits: int = 64,
    relative: bool = True,
    crcs: bool = True,
    flags: bytes = b"",
) -> Path:
    """A kernel that exports ROWS; in one table and with ``flags``, if there are any."""
    path = folder / "vmlinux"
    word = order + ("QQQ" if bits == 64 else "III")
    size = 12 if relative else bits // 8 * 3

    def build(address: Address) -> bytes:
        def entries(table: str, rows: list[tuple[str, str]]) -> bytes:
            out = b""
            for number, (name, space) in enumerate(rows):
                strings = [
                    address("__ksymtab_strings") + TEXT.index(t.encode() + b"\0")
                    for t in (name, space)
                ]
                place = address(table) + size * number
                out += (
                    struct.pack(
                        order + "iii",
                        VALUE - (place - address("__ksymtab")),
                        strings[0] - place - 4,
                        strings[1] - place - 8,
                    )
                    if relative
                    else struct.pack(word, VALUE, *strings)
                )
            return out

        more = [
            ("__ksymtab", 1, entries("__ksymtab", ROWS if flags else ROWS[:3])),
            ("__kflagstab" if flags else "__ksymtab_gpl", 1, flags),
            ("__ksymtab_strings", 1, TEXT),
        ]
        if not flags:
            more[1] = ("__ksymtab_gpl", 1, entries("__ksymtab_gpl", ROWS[3:]))
        if crcs:
            more.append(("__kcrctab", 1, struct.pack(order + "III", 1, 2, 0xFFFFFFFF)))
            more.append(("__kcrctab_gpl", 1, struct.pack(order + "II", 4, 5)))
        return fake.elf(bits=bits, order=order, machine=fake.S390, more=more)

    path.write_bytes(build(lambda _: 1 << 12))
    with Elf(path) as elf:
        places = {s.name: s.address for s in elf.sections}
    path.write_bytes(build(places.__getitem__))
    return path


def read(path: Path) -> Exports:
    with Elf(path) as elf:
        found = read_exports(elf)
    assert found is not None
    return found


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("crcs", [True, False])
def test_every_layout(tmp_path: Path, bits: int, order: str, relative: bool, crcs: bool) -> None:
    found = read(exporting(tmp_path, order=order, bits=bits, relative=relative, crcs=crcs))
    sums = [1, 2, 0xFFFFFFFF, 4, 5] if crcs else [None] * 5
    assert [(e.name, e.gpl, e.namespace, e.crc) for e in found.values()] == [
        (name, number >= 3, space, crc)
        for number, ((name, space), crc) in enumerate(zip(ROWS, sums, strict=True))
    ]
    assert len({e.address for e in found.values()}) == 1
    assert "epsilon" not in found


def test_licences_in_a_table_of_their_own(tmp_path: Path) -> None:
    found = read(exporting(tmp_path, crcs=False, flags=bytes((0, 1, 0, 3, 2))))
    assert [(e.name, e.gpl, e.namespace) for e in found.values()] == [
        (name, gpl, space)
        for (name, space), gpl in zip(ROWS, (False, True, False, True, False), strict=True)
    ]


@pytest.mark.parametrize("size", [4, 6])
def test_licences_of_another_number_of_symbols(tmp_path: Path, size: int) -> None:
    path = exporting(tmp_path, crcs=False, flags=bytes(size))
    with Elf(path) as elf, pytest.raises(ConfigError, match=f"speaks of {size} symbols"):
        read_exports(elf)


def test_kernel_without_modules(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(fake.elf())
    with Elf(tmp_path / "vmlinux") as elf:
        assert read_exports(elf) is None


def test_what_to_do_about_no_table(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(fake.elf())
    (tmp_path / "Image").write_bytes(arm64_image())
    assert hint(open_kernel(tmp_path / "vmlinux")) == "set CONFIG_MODULES=y"
    assert "give its vmlinux" in hint(open_kernel(tmp_path / "Image"))


def test_modules_but_nothing_exported(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(fake.elf(more=[("__ksymtab", 1, b"")]))
    with Elf(tmp_path / "vmlinux") as elf:
        found = read_exports(elf)
    assert found is not None
    assert len(found) == 0


@pytest.mark.parametrize(
    ("table", "said"),
    [(bytes(36), "unknown kind"), (b"\xff" * 24, "unknown kind"), (b"\1", "unknown kind")],
)
def test_damage_is_one_line(tmp_path: Path, table: bytes, said: str) -> None:
    more = [("__ksymtab", 1, table), ("__ksymtab_strings", 1, b"a\0")]
    (tmp_path / "vmlinux").write_bytes(fake.elf(more=more))
    with Elf(tmp_path / "vmlinux") as elf, pytest.raises(ConfigError, match=said):
        read_exports(elf)


def test_entry_without_a_name(tmp_path: Path) -> None:
    path = exporting(tmp_path)
    with Elf(path) as elf:
        section = elf.section("__ksymtab")
        assert section is not None
    data = bytearray(path.read_bytes())
    struct.pack_into("<i", data, section.offset + 16, 1 << 30)
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="entry 1 has no name"):
        read(path)


def test_raw_image_whose_symbols_say_where_the_table_is(tmp_path: Path) -> None:
    """As with CONFIG_KALLSYMS_ALL, by which data have names, too."""
    plain = arm64_image()
    (tmp_path / "Image").write_bytes(plain)
    text = plain + TEXT
    table = len(text) + -len(text) % 4
    rows = b""
    for number, (name, space) in enumerate(ROWS):
        place = table + 12 * number
        strings = [len(plain) + TEXT.index(t.encode() + b"\0") for t in (name, space)]
        rows += struct.pack("<iii", VALUE - place, strings[0] - place - 4, strings[1] - place - 8)
    (tmp_path / "Image").write_bytes(text.ljust(table, b"\0") + rows)

    ends = {
        "__start___ksymtab": KIMAGE + table,
        "__stop___ksymtab": KIMAGE + table + len(rows),
    }
    symbols = {n: Symbol(n, a, 0, "notype", "global") for n, a in ends.items()}
    with Elf(tmp_path / "Image") as elf:
        found = read_exports(elf, symbols)
    assert found is not None
    assert [(e.name, e.namespace) for e in found.values()] == ROWS
    assert {e.address for e in found.values()} == {KIMAGE + VALUE}


def test_export_is_plain_data() -> None:
    one = Export("a", True, "NS", None, 4)
    assert Exports(iter([one]))["a"] == one
