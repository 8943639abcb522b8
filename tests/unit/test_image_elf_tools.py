# SPDX-License-Identifier: GPL-2.0-only
"""ELF files as compilers, linkers and strip leave them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.names.symbols import load_symbols, stem

SOURCE = """
const char banner[] = "Linux version 6.12.117-cc (user@host) (gcc) #1 SMP";
static __attribute__((noinline)) int helper(int x) { return x * 3; }
int entry(int x) { return helper(x) + banner[x & 7]; }
"""


def compile_(folder: Path, *options: str, compiler: str = "gcc") -> Path:
    out = folder / "program"
    (folder / "a.c").write_text(SOURCE)
    command = [compiler, "-O2", "-nostdlib", "-static", "-e", "entry", *options]
    subprocess.run([*command, "-o", str(out), str(folder / "a.c")], check=True)
    return out


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-gdwarf-4"],
        ["-gdwarf-5"],
        ["-gdwarf-5", "-gz=zlib"],
        ["-gdwarf-4", "-gz=zlib-gnu"],
        ["-s"],
        ["-Wl,-pie", "-fPIE"],
        ["-ffunction-sections", "-Wl,--build-id=sha1"],
    ],
)
def test_what_gcc_makes(tmp_path: Path, options: list[str]) -> None:
    path = compile_(tmp_path, *options)
    kernel = open_kernel(path)
    assert kernel.release == "6.12.117-cc"
    table = load_symbols(path)
    assert (table is None) == (options == ["-s"])
    if table is not None:
        assert table["entry"].type == "func"
        assert table["entry"].size > 0
    with Elf(path) as elf:
        debug = elf.section(".debug_info")
        assert (debug is not None) == any(o.startswith("-gdwarf") for o in options)
        if debug:
            assert debug.compressed == any(o.startswith("-gz") for o in options)
            # A unit's length, then its version.
            length, version = struct.unpack_from("<IH", elf.read(debug))
            assert length == len(elf.read(debug)) - 4
            assert f"-gdwarf-{version}" in options


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
@pytest.mark.skipif(shutil.which("ld.lld") is None, reason="lld is not installed")
@pytest.mark.parametrize("options", [[], ["-g", "-gz=zlib"], ["-flto=thin"]])
def test_what_clang_makes(tmp_path: Path, options: list[str]) -> None:
    path = compile_(tmp_path, "-fuse-ld=lld", *options, compiler="clang")
    assert open_kernel(path).release == "6.12.117-cc"
    table = load_symbols(path)
    assert table is not None
    assert table.find("entry")


@pytest.mark.parametrize(
    ("name", "author"),
    [
        ("tcp_sendmsg.cfi_jt", "tcp_sendmsg"),
        ("tcp_sendmsg.cfi", "tcp_sendmsg"),
        ("foo.llvm.13579246801357924680", "foo"),
        ("foo.__uniq.1234567890", "foo"),
        ("foo.isra.0.llvm.1234", "foo"),
        ("foo.constprop.0.cold", "foo"),
        ("foo.part.0.lto_priv.0", "foo"),
        ("foo.specialized.1", "foo"),
        ("__cfi_tcp_sendmsg", "__cfi_tcp_sendmsg"),
        ("__pfx_tcp_sendmsg", "__pfx_tcp_sendmsg"),
        ("foo.llvm", "foo.llvm"),
    ],
)
def test_suffixes(name: str, author: str) -> None:
    assert stem(name) == author
