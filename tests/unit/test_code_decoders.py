# SPDX-License-Identifier: GPL-2.0-only
"""Decoders of machine code against objdump, on made-up instructions."""

from __future__ import annotations

import random
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.image.code import arm64, x86

BASE = 0x10000000
SLOT = 32  # bytes for each made-up x86 instruction, the second half of them one-byte nops
_LINE = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]+ )+)\s*\t?(.*)$")
# Where objdump and we read the same bytes in two ways, and a kernel has none of them:
# branches of operand size 16 (AMD's processors and Intel's differ), SSE4a, moves to the 386's
# test registers, and prefixes or fwait that objdump shows with the instruction after them.
_DISPUTED = re.compile(
    r"data16|insertq|extrq|%tr\d|^rex|rex(\.\w+)?\s*$|^(?:repn?z|cs|ds|es|ss|fs|gs|lock|addr32)\s*$"
)


def objdump(folder: Path, data: bytes, machine: str, tool: str = "objdump") -> Iterator[re.Match]:  # type: ignore[type-arg]
    """Lines of a disassembly: address, bytes, text."""
    file = folder / "code"
    file.write_bytes(data)
    command = [tool, "-D", "-w", "-b", "binary", "-m", machine, f"--adjust-vma={BASE:#x}"]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=True)
    return (m for line in done.stdout.splitlines() if (m := _LINE.match(line)))


def made_up(count: int, seed: int) -> bytes:
    """Random bytes that often begin as rarer instructions do."""
    dice = random.Random(seed)
    heads = [b""] * 8 + [b"\x0f"] * 6 + [b"\x48", b"\x66\x0f", b"\xf3\x0f", b"\xf2\x0f"]
    heads += [b"\x0f\x38", b"\x0f\x3a", b"\x66\x0f\x3a", b"\xc5", b"\xc4\xe1", b"\xc4\xe2"]
    heads += [b"\xc4\xe3", b"\x62\xf1\x7c\x48", b"\x62\xf2\x7d\x48", b"\x62\xf3\x7d\x48", b"\x67"]
    heads += [b"\xe8", b"\xe9", b"\x0f\x84", b"\xff", b"\x8d", b"\x48\x8d", b"\x48\xc7\xc7"]
    half = SLOT // 2
    return b"".join(
        (dice.choice(heads) + dice.randbytes(half))[:half] + b"\x90" * half for _ in range(count)
    )


@pytest.mark.parametrize(("bits", "machine"), [(64, "i386:x86-64"), (32, "i386")])
def test_x86_lengths(tmp_path: Path, bits: int, machine: str) -> None:
    data = made_up(6000, seed=bits)
    compared, wrong = 0, []
    for line in objdump(tmp_path, data, machine):
        at, size, text = int(line[1], 16) - BASE, len(line[2].split()), line[3].strip()
        slot = data[at : at + SLOT]
        if at % SLOT or "(bad)" in text or ".byte" in text or _DISPUTED.search(text):
            continue
        if slot[0] == 0x9B or (0x66 in slot[:3] and re.search(r"^(?:\w+ )*(?:j|call|loop)", text)):
            continue
        starts: list[int] = []
        x86.decode(slot, BASE + at, bits=bits, starts=starts)
        compared += 1
        if starts[1] != size:
            wrong.append(f"{slot[:16].hex()}: {text} has {size} bytes, not {starts[1]}")
    assert not wrong
    assert compared > 3000


@pytest.mark.parametrize(("bits", "machine"), [(64, "i386:x86-64"), (32, "i386")])
def test_x86_branches(tmp_path: Path, bits: int, machine: str) -> None:
    dice = random.Random(bits)
    opcodes = [b"\xe8", b"\xe9", *(bytes([0x0F, n]) for n in range(0x80, 0x90))]
    data = b"".join(dice.choice(opcodes) + dice.randbytes(4) for _ in range(2000))
    want = {
        (int(line[1], 16), int(found[1], 16))
        for line in objdump(tmp_path, data, machine)
        if (found := re.search(r"^(?:call|j\w+)\s+0x([0-9a-f]+)", line[3]))
    }
    got = {(t.at, t.target) for t in x86.decode(data, BASE, bits=bits)}
    assert len(want) == 2000
    assert got == {(at, to) for at, to in want if not BASE <= to < BASE + len(data)} | {
        (at, to) for at, to in want if data[at - BASE] == 0xE8
    }


@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-objdump") is None,
    reason="gcc-aarch64-linux-gnu is not installed; see setup/debian-packages.txt",
)
def test_arm64_branches(tmp_path: Path) -> None:
    dice = random.Random(64)
    # Opcode and which other bits are free.
    shapes = [
        (0x14000000, 0x3FFFFFF),
        (0x94000000, 0x3FFFFFF),
        (0x54000000, 0xFFFFFF),
        (0x34000000, 0x81FFFFFF),
        (0x36000000, 0x81FFFFFF),
        (0x10000000, 0x60FFFFFF),
        (0xD61F0000, 0x3E0),
        (0xD63F0000, 0x3E0),
        (0xD65F0000, 0x3E0),
    ]
    words = []
    for _ in range(4000):
        head, free = dice.choice(shapes)
        words.append(head | dice.getrandbits(32) & free)
    data = struct.pack(f"<{len(words)}I", *words)
    want, indirect = set(), set()
    for line in objdump(tmp_path, data, "aarch64", "aarch64-linux-gnu-objdump"):
        name, _, rest = line[3].partition("\t")
        where = re.search(r"0x([0-9a-f]+)$", rest.partition("//")[0].strip())
        if name in ("br", "blr"):
            indirect.add(int(line[1], 16))
        elif name != "ret":
            assert where, line[0]
            kind = {"bl": "call", "adr": "reference"}.get(name, "jump")
            want.add((int(line[1], 16), kind, int(where[1], 16)))
    got = arm64.decode(data, BASE)
    inside = range(BASE, BASE + len(data))
    assert {t.at for t in got if t.kind == "indirect"} == indirect
    assert {tuple(t) for t in got if t.kind != "indirect"} == {
        edge for edge in want if edge[1] != "jump" or edge[2] not in inside
    }
    assert len(want) > 2000


def test_arm64_addresses_in_two_halves() -> None:
    words = [0x90000001, 0x91004021, 0x91404021, 0x91004042]  # adrp x1; add x1; add lsl 12; x2
    data = struct.pack("<4I", *words)
    found = arm64.decode(data, 0xFFFF800080000000)
    assert found == [(0xFFFF800080000004, "reference", 0xFFFF800080000010)]


@given(data=st.binary(max_size=300), bits=st.sampled_from([32, 64]))
def test_any_bytes_can_be_decoded(data: bytes, bits: int) -> None:
    starts: list[int] = []
    for transfer in x86.decode(data, BASE, bits=bits, starts=starts):
        assert BASE <= transfer.at < BASE + len(data)
        assert transfer.target is None or 0 <= transfer.target < 1 << bits
    assert starts == sorted(set(starts))
    assert all(0 <= start < len(data) for start in starts)
    for transfer in arm64.decode(data, BASE):
        assert BASE <= transfer.at < BASE + len(data)
        assert transfer.target is None or 0 <= transfer.target < 1 << 64


@pytest.mark.parametrize(
    "code", ["e8000000", "0f84", "48c7c7000000", "ff15000000", "488d3d00", "e9"]
)
def test_instructions_cut_off_at_the_end_are_none(code: str) -> None:
    assert x86.decode(bytes.fromhex(code), BASE) == []
