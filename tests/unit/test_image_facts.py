# SPDX-License-Identifier: GPL-2.0-only
"""Symbols, types, configuration and expectations of a kernel file."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.features.model import Expectation, load_features
from ktest_ntcopy.image.btf import Btf, BtfError, Kind
from ktest_ntcopy.image.config import DamagedConfig, parse_config, unpack_ikconfig
from ktest_ntcopy.image.expectations import Found, check
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.kernel_file import open_kernel
from ktest_ntcopy.image.nearest import nearest
from ktest_ntcopy.image.presence import feature_present
from ktest_ntcopy.image.symbols import SymbolTable, load_symbols, stem
from tests.unit import fake_kernel as fake

HOST_BTF = Path("/sys/kernel/btf/vmlinux")
FEATURE = next(f for f in load_features() if f.name == "msg_ntcopy")


def image(tmp_path: Path, data: bytes) -> Image:
    path = tmp_path / "vmlinux"
    path.write_bytes(data)
    return Image(open_kernel(path))


def wanted(kind: str, name: str) -> Expectation:
    return Expectation(kind=kind, name=name, why="the reason")


# Symbols


@pytest.mark.parametrize(
    ("name", "author"),
    [
        ("tcp_sendmsg", "tcp_sendmsg"),
        ("foo.constprop.0", "foo"),
        ("foo.isra.0", "foo"),
        ("foo.part.12", "foo"),
        ("foo.cold", "foo"),
        ("foo.isra.0.cold", "foo"),
        ("foo.constprop.0.isra.0", "foo"),
        ("foo.llvm.123456789", "foo"),
        ("__func__.12", "__func__.12"),
        (".Ltmp", ".Ltmp"),
        ("foo.constprop", "foo"),
        ("foo.particular", "foo.particular"),
    ],
)
def test_stem(name: str, author: str) -> None:
    assert stem(name) == author


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("order", ["<", ">"])
def test_symbols_of_every_layout(tmp_path: Path, bits: int, order: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(
        fake.elf(machine=fake.S390, symbols=["one", "two.isra.0"], bits=bits, order=order)
    )
    table = load_symbols(path)
    assert table is not None
    assert list(table) == ["one", "two.isra.0"]
    one = table["one"]
    assert (one.size, one.type, one.binding) == (48, "func", "global")
    assert one.address == (fake.BASE + 64) & ((1 << bits) - 1)
    assert [s.name for s in table.find("two")] == ["two.isra.0"]
    assert table.find("three") == ()


def test_exact_symbol_comes_before_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(fake.elf(symbols=["foo.cold", "foo"]))
    table = load_symbols(path)
    assert table is not None
    assert [s.name for s in table.find("foo")] == ["foo", "foo.cold"]


def test_undefined_and_file_symbols_are_left_out() -> None:
    strings = b"\0a\0b\0c\0"
    rows = [(1, 0x12, 0, 0, 1, 1), (3, 0x04, 0, 1, 1, 1), (5, 0x11, 0, 1, 7, 8)]
    table = SymbolTable(b"".join(struct.pack("<IBBHQQ", *r) for r in rows), strings)
    assert list(table) == ["c"]
    assert table["c"].type == "object"


def test_name_offset_outside_the_strings_is_left_out() -> None:
    table = SymbolTable(struct.pack("<IBBHQQ", 999, 0x12, 0, 1, 1, 1), b"\0abc\0")
    assert len(table) == 0


def test_large_table_is_read_fast() -> None:
    names = [f"symbol_number_{n}" for n in range(100_000)]
    strings = b"\0" + b"".join(n.encode() + b"\0" for n in names)
    at, rows = 1, []
    for name in names:
        rows.append(struct.pack("<IBBHQQ", at, 0x12, 0, 1, at, 16))
        at += len(name) + 1
    raw = b"".join(rows)
    start = time.process_time()
    table = SymbolTable(raw, strings)
    assert len(table) == 100_000
    assert table["symbol_number_99999"].size == 16
    # A pass through pyelftools takes two seconds and more.
    assert time.process_time() - start < 0.5


# BTF


def test_btf_members_and_enumerators() -> None:
    for order in "<>":
        types = Btf(fake.btf({"outer": ["first", "second"]}, {"ONE": 1, "NEGATIVE": -5}, order))
        second = types.member("outer.second")
        assert second is not None
        assert (second.offset, second.size, second.type) == (4, 4, "unsigned int")
        assert types.struct_size("outer") == 8
        assert types.member("outer.third") is None
        assert types.member("none.first") is None
        assert types.member("outer.first.deeper") is None
        assert types.enumerators == {"ONE": 1, "NEGATIVE": -5}


class Maker:
    """Writes BTF type by type."""

    def __init__(self) -> None:
        self.text = fake.Strings()
        self.types = b""
        self.count = 0

    def add(
        self,
        kind: Kind,
        name: str = "",
        *,
        vlen: int = 0,
        flag: int = 0,
        last: int = 0,
        more: bytes = b"",
    ) -> int:
        info = flag << 31 | kind << 24 | vlen
        self.types += struct.pack("<III", self.text.add(name), info, last) + more
        self.count += 1
        return self.count

    def member(self, name: str, kind: int, offset: int) -> bytes:
        return struct.pack("<III", self.text.add(name), kind, offset)

    def btf(self) -> Btf:
        head = struct.pack(
            "<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.text.data)
        )
        return Btf(head + self.types + self.text.data)


def test_btf_walks_over_every_kind() -> None:
    make = Maker()
    integer = make.add(Kind.INT, "int", last=4, more=struct.pack("<I", 32))
    pointer = make.add(Kind.PTR, last=integer)
    array = make.add(Kind.ARRAY, more=struct.pack("<III", integer, integer, 3))
    inner = make.add(Kind.UNION, vlen=1, last=8, more=make.member("inside", pointer, 0))
    constant = make.add(Kind.CONST, last=array)
    typedef = make.add(Kind.TYPEDEF, "alias", last=constant)
    make.add(Kind.VOLATILE, last=integer)
    make.add(Kind.RESTRICT, last=pointer)
    make.add(Kind.FWD, "later")
    proto = make.add(Kind.FUNC_PROTO, vlen=2, last=integer, more=b"\0" * 16)
    make.add(Kind.FUNC, "call", last=proto)
    make.add(Kind.VAR, "variable", last=integer, more=b"\0" * 4)
    make.add(Kind.DATASEC, ".data", vlen=1, last=4, more=b"\0" * 12)
    make.add(Kind.FLOAT, "double", last=8)
    make.add(Kind.DECL_TAG, "tag", last=integer, more=b"\0" * 4)
    tagged = make.add(Kind.TYPE_TAG, "user", last=pointer)
    make.add(Kind.ENUM, vlen=1, last=4, more=struct.pack("<II", make.text.add("UNSIGNED"), 1 << 31))
    make.add(
        Kind.ENUM64,
        vlen=1,
        flag=1,
        last=8,
        more=struct.pack("<III", make.text.add("WIDE"), 0, 1 << 31),
    )
    members = b"".join(
        (
            make.member("", inner, 64),
            make.member("list", typedef, 128),
            make.member("bits", integer, 3 << 24 | 225),
            make.member("where", tagged, 256),
        )
    )
    make.add(Kind.STRUCT, "last", vlen=4, flag=1, last=40, more=members)
    types = make.btf()
    assert len(types) == make.count + 1
    found = {m.name: (m.type, m.bit_offset, m.bit_size) for m in types.members("last")}
    assert found == {
        "inside": ("int *", 64, 64),
        "list": ("alias", 128, 96),
        "bits": ("int", 225, 3),
        "where": ("int *", 256, 64),
    }
    assert types.enumerators == {"UNSIGNED": 1 << 31, "WIDE": -(1 << 63)}


def test_btf_that_refers_to_itself_ends() -> None:
    make = Maker()
    make.add(Kind.TYPEDEF, "loop", last=1)
    make.add(Kind.STRUCT, "outer", vlen=1, last=4, more=make.member("x", 1, 0))
    with pytest.raises(BtfError):
        make.btf().member("outer.x")


@given(st.binary(max_size=200))
def test_btf_of_noise(data: bytes) -> None:
    with pytest.raises(BtfError):
        Btf(data)


@given(st.data())
def test_btf_with_damage_raises_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(fake.btf({"outer": ["first", "second"]}, {"ONE": 1}))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        types = Btf(bytes(raw))
        types.member("outer.first")
        types.struct_size("outer")
        assert types.enumerators is not None
    except BtfError:
        pass


@pytest.mark.skipif(not HOST_BTF.exists(), reason="this host's kernel has no BTF")
@pytest.mark.skipif(shutil.which("pahole") is None, reason="pahole is not installed")
@pytest.mark.parametrize("name", ["iov_iter", "sock", "sk_buff", "msghdr", "proto"])
def test_btf_agrees_with_pahole(name: str) -> None:
    types = Btf(HOST_BTF.read_bytes())
    said = subprocess.run(
        ["pahole", "-F", "btf", "-C", name, str(HOST_BTF)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # Plain members of the struct itself: "<tab>type name;   /*  offset  size */".
    shown = re.findall(
        r"^\t[A-Za-z][\w ]*[ *](\w+)(?:\[\d+\])?;\s+/\*\s+(\d+)\s+(\d+) \*/$",
        said,
        re.MULTILINE,
    )
    assert shown
    mine = {m.name: m for m in types.members(name)}
    for member, offset, size in shown:
        assert (mine[member].offset, mine[member].size) == (int(offset), int(size)), member


# Configuration


def test_config_text() -> None:
    config = parse_config(
        'CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C="a \\"b\\""\nCONFIG_D=0x10\nnoise\n'
    )
    assert [config[f"CONFIG_{x}"] for x in "ABCDE"] == ["y", "n", 'a "b"', "0x10", "n"]


def test_config_hash_is_of_the_options_only() -> None:
    one = parse_config("CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=1\n", "here")
    two = parse_config("#\nCONFIG_C=1\nCONFIG_A=y\n", "there")
    assert one.sha256 == two.sha256
    assert one.sha256 != parse_config("CONFIG_A=m\nCONFIG_C=1\n").sha256


def test_ikconfig() -> None:
    assert unpack_ikconfig(b"x" * 99 + fake.ikconfig({"CONFIG_A": "y"})) == "CONFIG_A=y\n"
    assert unpack_ikconfig(b"nothing") is None
    with pytest.raises(DamagedConfig, match="incorrect header"):
        unpack_ikconfig(b"IKCFG_ST not gzip IKCFG_ED")
    with pytest.raises(DamagedConfig, match="ends early"):
        unpack_ikconfig(fake.ikconfig({"CONFIG_A": "y" * 999})[:30])


# Expectations


def test_everything_found(tmp_path: Path) -> None:
    facts = image(tmp_path, fake.with_feature())
    expected = FEATURE.expected("6.12", "x86_64")
    assert expected
    for expectation in expected:
        finding = check(facts, expectation)
        assert finding.found is Found.FOUND, finding.message
    assert feature_present(facts, FEATURE) is True


def test_missing_names_the_nearest(tmp_path: Path) -> None:
    finding = check(image(tmp_path, fake.with_feature()), wanted("symbol", "copy_to_nontemporl"))
    assert finding.found is Found.MISSING
    assert finding.nearest[0] == "copy_to_nontemporal"
    assert "the reason" in finding.message
    assert "copy_to_nontemporal" in finding.message


def test_missing_member_names_members_of_the_same_struct(tmp_path: Path) -> None:
    finding = check(image(tmp_path, fake.with_feature()), wanted("member", "iov_iter.nontempora"))
    assert finding.nearest[0] == "iov_iter.nontemporal"


def test_feature_absent(tmp_path: Path) -> None:
    assert feature_present(image(tmp_path, fake.without_feature()), FEATURE) is False


@pytest.mark.parametrize(
    ("symbols", "structs"),
    [
        ([fake.MARKER], {}),
        (["sock_sendmsg_ntcopy"], {}),
        (["_copy_from_iter"], {"iov_iter": ["count", "nontemporal"]}),
        ([], {"proto": ["close", "ntcopy"]}),
    ],
)
def test_half_a_feature_counts_as_present(
    tmp_path: Path, symbols: list[str], structs: dict[str, list[str]]
) -> None:
    facts = image(tmp_path, fake.elf(symbols=symbols, btf_data=fake.btf(structs)))
    assert feature_present(facts, FEATURE) is True


def test_unknown_without_symbols(tmp_path: Path) -> None:
    facts = image(tmp_path, fake.elf(symbols=[]))
    assert feature_present(facts, FEATURE) is None
    finding = check(facts, wanted("member", "iov_iter.nontemporal"))
    assert finding.found is Found.UNKNOWN
    assert "CONFIG_DEBUG_INFO_BTF" in finding.message


def test_unknown_for_a_bare_bzimage(tmp_path: Path) -> None:
    facts = image(tmp_path, fake.bzimage())
    finding = check(facts, wanted("symbol", fake.MARKER))
    assert finding.found is Found.UNKNOWN
    assert "no vmlinux" in finding.message


def test_config_expectation(tmp_path: Path) -> None:
    facts = image(tmp_path, fake.with_feature())
    assert check(facts, wanted("config", "CONFIG_VIRTIO_PCI")).found is Found.FOUND
    assert check(facts, wanted("config", "CONFIG_VIRTIO_PC")).found is Found.MISSING


def test_nearest_in_a_large_table_is_fast() -> None:
    names = [f"some_function_{n}" for n in range(100_000)]
    start = time.process_time()
    assert nearest("copy_from_iter_nontemporal", [*names, "copy_from_iter_nontempral"]) == (
        "copy_from_iter_nontempral",
    )
    assert time.process_time() - start < 1.0


def test_reading_an_image_does_not_import_pytest(tmp_path: Path) -> None:
    """The layers below the plugin work without it."""
    (tmp_path / "vmlinux").write_bytes(fake.with_feature())
    code = (
        "import json, sys; from pathlib import Path;"
        "from ktest_ntcopy.image.kernel_file import open_kernel;"
        "open_kernel(Path(sys.argv[1])); print(json.dumps('pytest' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "vmlinux")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) is False
