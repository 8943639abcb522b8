# SPDX-License-Identifier: GPL-2.0-only
"""Types of a real kernel: every one of them against what other tools read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.types.btf import Btf, load_btf
from ktest_ntcopy.image.types.btf_data import COMPOUND, ENUMS, BtfData, Kind, Type
from ktest_ntcopy.image.types.btf_layout import array_of, enumerators, fields
from ktest_ntcopy.image.types.declare import prototype, show
from ktest_ntcopy.image.types.dwarf import Dwarf, load_dwarf
from ktest_ntcopy.image.types.signature import normal_signature

_WHERE = re.compile(r"/\*\s*(\d+)(?::\s*(\d+))?\s+(\d+) \*/$")
_ATTRIBUTE = re.compile(r"\s*__attribute__\(\(__(?:aligned__\(\d+\)|packed__)\)\)")
_CONST = re.compile(r"\b(?:const|inline) ?")
_AROUND = re.compile(r"\s*([*(),;])\s*")
_POINTER_TO_ARRAY = re.compile(r"\((\*+)(?:const )?(\w*)\)(?:\[\d*\])+")


@pytest.fixture(scope="module")
def vmlinux(kernel: Path) -> Path:
    found = open_kernel(kernel).vmlinux
    if found is None:
        pytest.skip(f"{kernel} comes without a vmlinux")
    return found


@pytest.fixture(scope="module")
def types(vmlinux: Path) -> Btf:
    found = load_btf(vmlinux)
    if found is None:
        pytest.skip(f"{vmlinux} has no BTF")
    return found


def output(*command: str | Path) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# pahole


def plain(code: str) -> str:
    """Code without what pahole does not say or says otherwise than the kernel's source:
    where "const" belongs, and that a pointer leads to an array."""
    code = _CONST.sub("", _POINTER_TO_ARRAY.sub(r"\1\2", code))
    return _AROUND.sub(r"\1", " ".join(code.split())).replace("[]", "[0]")


def shown(block: str) -> list[tuple[str, object]]:
    """What a struct is shown to consist of: code, and offset and size."""
    found: list[tuple[str, object]] = []
    for line in map(str.strip, block.splitlines()):
        if not line or line.startswith("/*") or re.match(r"[\w ]+ :\d+;", line):
            continue  # cache lines, holes, and the bits of a hole
        line = _ATTRIBUTE.sub("", line)
        where = _WHERE.search(line)
        code = plain(line[: where.start()] if where else re.sub(r"/\*.*\*/", "", line))
        place: object = None
        if where and where[2]:
            place = 8 * int(where[1]) + int(where[2])  # the unit of a bitfield is a choice
        elif where:
            place = int(where[1]), int(where[3])
        found.append((code, place))
    return found


def blocks(text: str) -> Iterator[tuple[str, str]]:
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        if line.startswith("}"):
            if found := re.match(r"(?:struct|union) \w+", lines[0].lstrip()):
                yield found[0], "\n".join(lines)
            lines = []


def test_every_struct_is_as_pahole_shows_it(types: Btf, vmlinux: Path) -> None:
    theirs: dict[str, list[list[tuple[str, object]]]] = defaultdict(list)
    for name, block in blocks(output("pahole", "-F", "btf", vmlinux)):
        theirs[name].append(shown(block))
    assert len(theirs) > 1000
    mine: dict[str, list[list[tuple[str, object]]]] = defaultdict(list)
    for number in types.data.of_kind(*COMPOUND):
        for name, block in blocks(show(types.data, number, types.pointer_size)):
            mine[name].append(shown(block))
    different = [name for name, seen in theirs.items() if any(s not in mine[name] for s in seen)]
    assert different == []


def test_every_function_is_as_pfunct_shows_it(types: Btf, vmlinux: Path) -> None:
    mine: dict[str, set[str]] = defaultdict(set)
    for number in types.data.of_kind(Kind.FUNC):
        found = types.data.type(number)
        one = prototype(types.data, found)
        mine[found.name].add(plain(one))
        assert normal_signature(one)
    lines = [line for line in output("pfunct", "-F", "btf", "-P", vmlinux).splitlines() if line]
    assert len(lines) > 10_000
    # A pfunct older than the kernel stops in the middle of a declaration it cannot read.
    readable = [line for line in lines if "ERROR" not in line and line.endswith(";")]
    assert len(readable) > 0.99 * len(lines)
    different = []
    for line in readable:
        name = re.search(r"(\w+)\(", line)
        if name and plain(line).rstrip(";") not in mine[name[1]]:
            different.append(line)
    # Pointers to arrays come out of pfunct as pointers to their elements, in many ways.
    assert len(different) <= 15, different[:20]


# bpftool


def told(row: dict[str, Any]) -> tuple[object, ...]:
    """A type as bpftool tells it."""

    def name(of: dict[str, Any]) -> str:
        return "" if of["name"] == "(anon)" else str(of["name"])

    kind = row["kind"]
    more: dict[str, Callable[[], object]] = {
        "ARRAY": lambda: (row["type_id"], row["nr_elems"]),
        "FWD": lambda: row["fwd_kind"] == "union",
        "ENUM": lambda: [(name(e), e["val"] & 0xFFFFFFFF) for e in row["values"]],
        "ENUM64": lambda: [(name(e), e["val"]) for e in row["values"]],
        "FUNC_PROTO": lambda: (
            row["ret_type_id"],
            [(name(p), p["type_id"]) for p in row["params"]],
        ),
        "DATASEC": lambda: [(v["type_id"], v["offset"], v["size"]) for v in row["vars"]],
        "DECL_TAG": lambda: (row["type_id"], row["component_idx"] & 0xFFFFFFFF),
    }
    if kind in ("STRUCT", "UNION"):
        members = [
            (name(m), m["type_id"], m["bits_offset"], m.get("bitfield_size", 0))
            for m in row["members"]
        ]
        return kind, name(row), row["size"], members
    if kind in more:
        return kind, name(row), more[kind]()
    return kind, name(row), row["size"] if kind in ("INT", "FLOAT") else row["type_id"]


def read(data: BtfData, found: Type) -> tuple[object, ...]:
    """The same, as this project reads it."""
    more: dict[Kind, Callable[[], object]] = {
        Kind.ARRAY: lambda: array_of(data, found),
        Kind.FWD: lambda: found.flag,
        Kind.ENUM: lambda: [(e.name, e.value & 0xFFFFFFFF) for e in enumerators(data, found)],
        Kind.ENUM64: lambda: [(e.name, e.value) for e in enumerators(data, found)],
        Kind.FUNC_PROTO: lambda: (
            found.last,
            [(data.string(at), kind) for at, kind in data.elements(found)],
        ),
        Kind.DATASEC: lambda: list(data.elements(found)),
        Kind.DECL_TAG: lambda: (found.last, data.extra(found)),
    }
    if found.kind in COMPOUND:
        members = [(f.name, f.type, f.bit_offset, f.bits) for f in fields(data, found)]
        return found.kind.name, found.name, found.last, members
    return found.kind.name, found.name, more.get(found.kind, lambda: found.last)()


def test_every_type_is_as_bpftool_reads_it(types: Btf, vmlinux: Path) -> None:
    rows = json.loads(output("bpftool", "-j", "btf", "dump", "file", vmlinux))["types"]
    assert len(rows) == len(types) - 1
    different = []
    for row in rows:
        expected, mine = told(row), read(types.data, types.data.type(row["id"]))
        if expected != mine:
            different.append((expected, mine))
    assert different == []


# One way of asking against the other, and the other section


def test_every_name_is_found(types: Btf) -> None:
    data = types.data
    for number in list(data.of_kind(*COMPOUND))[::31]:
        if name := data.name(number):
            assert number in data.named(name, *COMPOUND)
    for number in list(data.of_kind(*ENUMS))[::31]:
        for one in list(enumerators(data, data.type(number)))[:3]:
            found = types.enumerator(one.name)
            assert found is not None
            assert found.value == types.enumerators[one.name]


@pytest.fixture(scope="module")
def dwarf(vmlinux: Path) -> Iterator[Dwarf]:
    with Elf(vmlinux) as elf:
        found = load_dwarf(elf)
        if found is None:
            pytest.skip(f"{vmlinux} has no DWARF")
        yield found


def test_dwarf_says_the_same(types: Btf, dwarf: Dwarf) -> None:
    """Names used once, and some that the linker stores at the end of longer ones."""
    for name in ("sock", "iov_iter", "proto", "msghdr", "sk_buff", "page_frag", "ubuf_info_msgzc"):
        assert dwarf.members(name) == types.members(name)
        assert dwarf.struct_size(name) == types.struct_size(name)
    for name in ("SOCK_RCVMARK", "SKBFL_ZEROCOPY_ENABLE", "TCP_ESTABLISHED", "ITER_UBUF"):
        assert dwarf.enumerator(name) == types.enumerator(name)
    for name in ("udp_sendmsg", "tcp_sendmsg_locked", "sock_sendmsg", "_copy_from_iter"):
        assert dwarf.prototype(name) == types.prototype(name)
    assert dwarf.declaration("struct iov_iter") == types.declaration("struct iov_iter")
    assert dwarf.struct_size("no_such_struct") is None
    assert dwarf.enumerator("NO_SUCH_ENUMERATOR") is None
    assert dwarf.prototype("no_such_function") is None


def test_types_take_a_blink(vmlinux: Path) -> None:
    """What all features ask about types fits well into the time that everything may take."""
    wanted = [e for feature in load_features() for e in feature.expectations]
    load_btf(vmlinux)  # into the page cache
    best = 1.0
    for _ in range(3):
        start = time.process_time()
        types = load_btf(vmlinux)
        if types is None:
            pytest.skip(f"{vmlinux} has no BTF")
        for expectation in wanted:
            if expectation.kind == "member":
                types.member(expectation.name)
            elif expectation.kind == "enumerator":
                types.enumerator(expectation.name)
            elif expectation.kind == "prototype":
                types.prototype(expectation.name)
        best = min(best, time.process_time() - start)
    assert best < 0.1
