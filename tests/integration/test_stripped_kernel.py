# SPDX-License-Identifier: GPL-2.0-only
"""A real kernel, stripped and packed: what is read of it must be what nm says of the whole."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest

from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.names.symbols import SymbolTable, read_symbols
from tests.unit.fake_kernel import bzimage
from tests.unit.packers import pack

_CODE = "tTwW"  # kinds of symbols, as nm prints them


@pytest.fixture(scope="module")
def vmlinux(kernel: Path) -> Path:
    found = open_kernel(kernel)
    if found.vmlinux is None or (found.kind != "vmlinux" and found.vmlinux == found.path):
        pytest.skip(f"{kernel} comes without a vmlinux")
    return found.vmlinux


@pytest.fixture(scope="module")
def nm(vmlinux: Path) -> dict[str, set[tuple[int, str]]]:
    """Name -> address and kind of each symbol of that name."""
    said = subprocess.run(["nm", vmlinux], capture_output=True, text=True, check=True).stdout
    found = defaultdict(set)
    for line in said.splitlines():
        address, kind, *name = line.split()
        if name:
            found[name[0]].add((int(address, 16), kind))
    return dict(found)


@pytest.fixture(scope="module")
def stripped(vmlinux: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stripped") / "vmlinux"
    subprocess.run(["objcopy", "-S", vmlinux, out], check=True)
    return out


def symbols(path: Path) -> SymbolTable:
    with Elf(path) as elf:
        found = read_symbols(elf)
    assert found is not None
    return found


def test_symbol_table_has_what_nm_has(vmlinux: Path, nm: dict[str, set[tuple[int, str]]]) -> None:
    table = symbols(vmlinux)
    assert table.source == ".symtab"
    assert set(table) == set(nm)
    for name, places in nm.items():
        assert table[name].address in {address for address, _ in places}, name


def test_kallsyms_has_all_code_of_the_symbol_table(
    stripped: Path, nm: dict[str, set[tuple[int, str]]]
) -> None:
    table = symbols(stripped)
    assert table.source == "kallsyms"
    code = {n: {a for a, kind in p if kind in _CODE} for n, p in nm.items()}
    for name, places in code.items():
        assert places <= {s.address for s in table.twins(name)}, name


def test_kallsyms_sizes_reach_over_the_whole_function(vmlinux: Path, stripped: Path) -> None:
    """But for symbols that lie within others, which assembler code has."""
    whole, table = symbols(vmlinux), symbols(stripped)
    known = [s for s in whole.values() if s.type == "func" and s.size]
    assert len(known) > 10_000
    short = [s.name for s in known if 0 < table[s.name].size < s.size]
    assert len(short) < len(known) / 100


@pytest.mark.parametrize("packer", ["gzip", "zstd", "lz4", "lzo"])
def test_packed_kernel_answers_as_the_stripped_one(
    tmp_path: Path, stripped: Path, packer: str
) -> None:
    inside = open_kernel(stripped)
    path = tmp_path / "bzImage"
    path.write_bytes(bzimage(inside.release, payload=pack(packer, stripped.read_bytes())))
    packed = open_kernel(path)
    assert packed.vmlinux == path
    assert dict(symbols(path)) == dict(symbols(stripped))
    with Elf(path) as elf:
        assert elf.build_id == inside.identity
    if inside.config is not None:
        assert packed.config is not None
        assert packed.config.values == inside.config.values


def test_opening_takes_a_blink(vmlinux: Path) -> None:
    open_kernel(vmlinux)
    start = time.process_time()
    open_kernel(vmlinux)
    symbols(vmlinux)
    assert time.process_time() - start < 0.3
