# SPDX-License-Identifier: GPL-2.0-only
"""Symbols, types, configuration and expectations of a kernel file."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import Expectation, load_features
from ktest_ntcopy.image.expectations import Found, check
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.config import DamagedConfig, parse_config, unpack_ikconfig
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.names.nearest import nearest
from ktest_ntcopy.image.names.symbols import SymbolTable, load_symbols, stem
from ktest_ntcopy.image.presence import feature_present
from tests.unit import fake_kernel as fake
from tests.unit.effort import cpu_below
from tests.unit.whole_kernel import Plan, build, whole

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
    # A pass through pyelftools takes two seconds and more.
    with cpu_below(0.5):
        table = SymbolTable(raw, strings)
        assert len(table) == 100_000
        assert table["symbol_number_99999"].size == 16


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
    facts = image(tmp_path, whole())
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


@pytest.mark.parametrize("number", range(len(FEATURE.expectations)))
def test_half_a_feature_counts_as_present(tmp_path: Path, number: int) -> None:
    """Any trace will do that kernels without the feature do not have."""
    one = FEATURE.expectations[number]
    plan = Plan()
    plan.expect(one)
    expected = not one.shared and not one.absent
    assert bool(feature_present(image(tmp_path, build(plan)), FEATURE)) is expected


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
    with cpu_below(1.0):
        assert nearest("copy_from_iter_nontemporal", [*names, "copy_from_iter_nontempral"]) == (
            "copy_from_iter_nontempral",
        )


def test_reading_an_image_does_not_import_pytest(tmp_path: Path) -> None:
    """The layers below the plugin work without it."""
    (tmp_path / "vmlinux").write_bytes(fake.with_feature())
    code = (
        "import json, sys; from pathlib import Path;"
        "from ktest_ntcopy.image.file.kernel_file import open_kernel;"
        "open_kernel(Path(sys.argv[1])); print(json.dumps('pytest' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "vmlinux")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) is False
