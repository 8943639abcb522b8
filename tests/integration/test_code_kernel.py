# SPDX-License-Identifier: GPL-2.0-only
"""Machine code of a real kernel: our decoders against objdump, and chains that must hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ktest_ntcopy.image.code import arm64, x86
from ktest_ntcopy.image.code.alternatives import read_alternatives
from ktest_ntcopy.image.code.paths import CodePaths
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.names.symbols import SymbolTable, read_symbols

RANGES, LENGTH = 8, 64 << 10  # pieces of .text that are compared, and bytes of each

_LINE = re.compile(r"^([0-9a-f]+):\t(.*)$")
_PREFIXES = r"(?:(?:bnd|notrack|[cdefgs]s|data16|rex\S*)\s+)*"
_X86 = re.compile(rf"^{_PREFIXES}(call|jmp|j[a-z]+|loop[a-z]*)[lqw]?(?:,p[nt])?\s+([0-9a-f]+)\b")
_ARM64 = re.compile(r"^(bl?|bc?\.[a-z]+|cbn?z|tbn?z)\t(?:[wx]\w+, )?(?:#\d+, )?([0-9a-f]+)(?: |$)")


@dataclass
class Listing:
    """What objdump says of a piece of code."""

    starts: list[int] = field(default_factory=list)
    targets: dict[int, tuple[bool, int]] = field(default_factory=dict)  # is it a call, and to where
    doubtful: list[int] = field(default_factory=list)  # unknown to this objdump, or read otherwise


@pytest.fixture(scope="module")
def elf(kernel: Path) -> Elf:
    """The kernel, if its machine code can be compared."""
    vmlinux = open_kernel(kernel).vmlinux
    if vmlinux is None:
        pytest.skip(f"{kernel} comes without a vmlinux")
    return Elf(vmlinux)


@pytest.fixture(scope="module")
def symbols(elf: Elf) -> SymbolTable:
    found = read_symbols(elf)
    if found is None:
        pytest.skip(f"{elf.path} has no symbol table")
    return found


def objdump(elf: Elf, start: int, end: int) -> Listing:
    """Disassemble a piece of the kernel."""
    tools = {"EM_AARCH64": ("aarch64-linux-gnu-objdump", "objdump")}
    tool = next((t for t in tools.get(elf.machine, ("objdump",)) if shutil.which(t)), None)
    if tool is None:
        pytest.skip("binutils are not installed")
    command = [tool, "-d", "-w", "--no-show-raw-insn", f"--start-address={start}"]
    command += [f"--stop-address={end}", str(elf.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    branch = _ARM64 if elf.machine == "EM_AARCH64" else _X86
    listing = Listing()
    for line in done.stdout.splitlines():
        if not (found := _LINE.match(line.strip())):
            continue
        at = int(found[1], 16)
        listing.starts.append(at)
        if "(bad)" in found[2] or re.match(r"f(init|stcw|stsw|save|clex)\b", found[2]):
            listing.doubtful.append(at)
        if edge := branch.match(found[2]):
            listing.targets[at] = edge[1] in ("call", "bl"), int(edge[2], 16)
    return listing


def functions(symbols: SymbolTable, start: int, end: int) -> dict[int, int]:
    """Address and size of the functions that lie wholly in a piece of the kernel."""
    rows = enumerate(zip(symbols.addresses, symbols.sizes, strict=True))
    return {
        address: size
        for row, (address, size) in rows
        if size and start <= address and address + size <= end and symbols.row(row).type == "func"
    }


@pytest.mark.parametrize("piece", range(RANGES))
def test_every_instruction_and_branch(elf: Elf, symbols: SymbolTable, piece: int) -> None:
    text = elf.section(".text")
    assert text is not None
    # Much of .text may be padding, so the functions are divided, not the bytes.
    known = sorted(functions(symbols, text.address, text.address + text.size))
    start = known[len(known) * piece // RANGES]
    listing = objdump(elf, start, start + LENGTH)
    assert len(listing.starts) > LENGTH // 16
    compared = 0
    for address, size in sorted(functions(symbols, start, start + LENGTH).items()):
        first, last = (bisect_left(listing.starts, end) for end in (address, address + size))
        here = listing.starts[first:last]
        if any(address <= at < address + size for at in listing.doubtful):
            continue
        code = elf.at(address, size)
        assert len(code) == size
        if elf.machine == "EM_AARCH64":
            transfers = arm64.decode(code, address)
        else:
            starts: list[int] = []
            transfers = x86.decode(code, address, bits=elf.bits, starts=starts)
            assert [address + at for at in starts] == here, hex(address)
        assert {
            (t.at, t.kind == "call", t.target) for t in transfers if t.kind in ("call", "jump")
        } == {
            (at, is_call, target)
            for at in here
            if at in listing.targets
            for is_call, target in [listing.targets[at]]
            if is_call or not address <= target < address + size
        }, hex(address)
        compared += 1
    assert compared > 20
    assert len(listing.targets) > 500


def test_alternatives_replace_code_by_code(elf: Elf) -> None:
    found = read_alternatives(elf)
    if elf.machine not in ("EM_X86_64", "EM_AARCH64"):
        pytest.skip(f"{elf.arch} has no alternatives that we read")
    assert len(found) > 100
    text = elf.section(".text")
    assert text is not None
    within = found.within(text.address, text.size)
    assert len(within) > 50
    assert all(len(elf.at(a.at, a.size)) == a.size for a in within)


def test_chains_that_every_kernel_has(elf: Elf, symbols: SymbolTable) -> None:
    begin = time.process_time()
    code = CodePaths(elf, symbols)
    for source, target, through in [
        ("tcp_sendmsg", "tcp_sendmsg_locked", ["lock_sock_nested"]),
        ("tcp_sendmsg", "_copy_from_iter", ["tcp_sendmsg_locked"]),
        ("udp_sendmsg", "_copy_from_iter", ["ip_generic_getfrag"]),
        ("udp_sendmsg", "__ip_append_data", ["ip_make_skb"]),
        ("__sys_sendmsg", "____sys_sendmsg", ["___sys_sendmsg"]),
    ]:
        path = code.path(source, target, through=through)
        assert path.found, path.detail
    back = code.path("tcp_sendmsg_locked", "tcp_sendmsg", through=["lock_sock_nested"])
    assert back.found is False
    assert time.process_time() - begin < 2  # a few hundredths on a quiet machine


def test_a_search_that_finds_nothing_is_bounded(elf: Elf, symbols: SymbolTable) -> None:
    begin = time.process_time()
    path = CodePaths(elf, symbols).path("tcp_sendmsg", "start_kernel")
    assert path.found is False
    assert path.detail.startswith("tcp_sendmsg does not reach start_kernel")
    assert time.process_time() - begin < 5
