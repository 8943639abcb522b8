# SPDX-License-Identifier: GPL-2.0-only
"""Makes a small kernel file that shows all that feature files expect, or all but some of it.

Its functions call what they are expected to call, in x86-64 machine code; its variables
start with what they are expected to start with.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from ktest_ntcopy.features.expect import Expectation
from ktest_ntcopy.features.model import Feature, load_features
from tests.unit import fake_kernel as fake

VERSION, ARCH = "6.12", "x86_64"
_START = 64 + 2 * 56  # where the first section's bytes lie, as fake_kernel puts them
_INT, _PTR, _STRUCT, _TYPEDEF, _FUNC, _PROTO, _ENUM = 1, 2, 4, 8, 12, 13, 6
_SIZES = {"bool": 1, "char": 1, "int": 4, "unsigned int": 4, "long": 8, "unsigned long": 8}
_SIZES |= {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "size_t": 8, "__u8": 1}
_SIZES |= {"netdev_features_t": 8}
_OF_SIZE = {1: "u8", 2: "u16", 8: "u64"}
_WORDS = ("bool", "char", "int", "unsigned int", "long", "unsigned long")


@dataclass
class _Struct:
    """A struct in the making: members with their type, offset and size in bytes."""

    members: dict[str, tuple[str, int | None, int | None]] = field(default_factory=dict)
    inner: dict[str, _Struct] = field(default_factory=dict)
    size: int | None = None


class _Btf:
    """Writes BTF, each type once."""

    def __init__(self, structs: Mapping[str, _Struct]) -> None:
        self._text = fake.Strings()
        self._types: list[bytes] = []
        self._known: dict[str, int] = {}
        self._structs = structs
        self._sizes: dict[str, int] = {}
        self.offsets: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, kind: int, name: str, vlen: int, last: int, more: bytes = b"") -> int:
        at = self._text.add(name)
        self._types.append(struct.pack("<III", at, kind << 24 | vlen, last) + more)
        return len(self._types)

    def type(self, text: str) -> int:
        """The number of a type written in C."""
        text = re.sub(r"\bconst\b", "", text).strip()
        if text in self._known:
            return self._known[text]
        if text == "void":
            return 0
        if text.endswith("*"):
            number = self.add(_PTR, "", 0, self.type(text[:-1]))
        elif text.startswith("struct "):
            number = self.compound(text.removeprefix("struct "), self._structs.get(text[7:]))
        elif text in _WORDS:
            bits = struct.pack("<I", _SIZES[text] * 8)
            number = self.add(_INT, text, 0, _SIZES[text], bits)
        else:
            below = {1: "char", 2: "u16", 8: "unsigned long"}.get(_SIZES.get(text, 4), "int")
            number = self.add(_TYPEDEF, text, 0, self.type(below))
        self._known[text] = number
        return number

    def size(self, text: str) -> int:
        text = re.sub(r"\bconst\b", "", text).strip()
        if text.endswith("*"):
            return 8
        return self._sizes.get(text) or _SIZES.get(text, 4)

    def compound(self, name: str, made: _Struct | None) -> int:
        rows, at = b"", 0
        for member, (text, offset, size) in (made.members if made else {}).items():
            if inner := made.inner.get(member) if made else None:
                number = self.compound(f"{name}_{member}", inner)
                length = self._sizes[f"struct {name}_{member}"]
            else:
                number, length = self.type(text), size or self.size(text)
            place = (at + 7) // 8 * 8 if offset is None else offset
            rows += struct.pack("<III", self._text.add(member), number, place * 8)
            self.offsets[name, member] = place, length
            at = max(at, place + length)
        size = made.size if made and made.size else at
        self._sizes[f"struct {name}"] = size
        return self.add(_STRUCT, name, len(made.members) if made else 0, size, rows)

    def function(self, signature: str) -> None:
        head, _, rest = signature.partition("(")
        result, name = re.fullmatch(r"(.*?)(\w+)", head.strip()).groups()  # type: ignore[union-attr]
        rows = b""
        parameters = [p.strip() for p in rest.rsplit(")", 1)[0].split(",")]
        for parameter in parameters if parameters != ["void"] else []:
            text, label = re.fullmatch(r"(.*?)(\w+)", parameter).groups()  # type: ignore[union-attr]
            rows += struct.pack("<II", self._text.add(label), self.type(text))
        proto = self.add(_PROTO, "", len(rows) // 8, self.type(result), rows)
        self.add(_FUNC, name, 0, proto)

    def enum(self, values: Mapping[str, int]) -> None:
        rows = b"".join(struct.pack("<Ii", self._text.add(n), v) for n, v in values.items())
        at = self._text.add("")
        head = struct.pack("<III", at, 1 << 31 | _ENUM << 24 | len(values), 4)
        self._types.append(head + rows)

    def data(self) -> bytes:
        types = b"".join(self._types)
        head = struct.pack("<HBBI", 0xEB9F, 1, 0, 24)
        head += struct.pack("<IIII", 0, len(types), len(types), len(self._text.data))
        return head + types + self._text.data


@dataclass
class Plan:
    """What is in the kernel."""

    structs: dict[str, _Struct] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    enumerators: dict[str, int] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=lambda: dict(fake.BOOTABLE))
    exports: dict[str, tuple[bool, str]] = field(default_factory=dict)  #: GPL only, namespace
    #: variable -> struct, and member path -> number or name of a function
    variables: dict[str, tuple[str, dict[str, int | str]]] = field(default_factory=dict)

    def struct_of(self, name: str, way: str, text: str = "") -> tuple[_Struct, str]:
        """The struct that holds the last member of a path, made with all between."""
        here = self.structs.setdefault(name, _Struct())
        *outer, last = way.split(".")
        for member in outer:
            here.members.setdefault(member, ("", None, None))
            here = here.inner.setdefault(member, _Struct())
        return here, last

    def expect(self, one: Expectation) -> None:
        """Take in what meets an expectation."""
        self.config.update(dict.fromkeys(one.needs, "y"))
        match one.kind:
            case "symbol" if not one.absent:
                if one.type == "object":
                    self.objects.append(one.name)
                else:
                    self.calls.setdefault(one.name, [])
            case "export" if not one.absent:
                self.exports[one.name] = bool(one.gpl), one.namespace or ""
                self.calls.setdefault(one.name, [])
            case "member" if not one.absent:
                outer, _, way = one.name.partition(".")
                here, last = self.struct_of(outer, way)
                # Type tags matter to nobody here; arrays become what they hold.
                text = one.type.split("[")[0].strip() or _OF_SIZE.get(one.size or 4, "u32")
                here.members[last] = text, one.offset, one.size
            case "struct" if not one.absent:
                self.structs.setdefault(one.name, _Struct()).size = one.size
            case "enumerator" if not one.absent:
                self.enumerators[one.name] = int(one.value or 0)
            case "prototype":
                self.signatures.append(one.signature)
                self.calls.setdefault(one.name, [])
            case "config":
                self.config[one.name] = str(one.value or "y")
            case "call":
                source, target = one.ends
                chain = [source, *one.through, target]
                for caller, callee in pairwise(chain):
                    self.calls.setdefault(caller, [])
                    if not one.absent:
                        self.calls.setdefault(callee, [])
                        self.calls[caller].append(callee)
            case "pointer" | "initial":
                variable, _, way = one.name.partition(".")
                here, last = self.struct_of(one.struct, way)
                text = "void *" if one.kind == "pointer" else "bool"
                here.members.setdefault(last, (text, None, None))
                self.variables.setdefault(variable, (one.struct, {}))[1][way] = (
                    one.target if one.kind == "pointer" else int(one.value or 0)
                )
                if one.kind == "pointer":
                    self.calls.setdefault(one.target, [])


def _code(calls: Mapping[str, list[str]], base: int) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Machine code, and address and size of each function in it."""
    places: dict[str, tuple[int, int]] = {}
    at = base
    for name, callees in calls.items():
        size = 5 * len(callees) + 1
        places[name] = at, size
        at += (size + 15) // 16 * 16
    text = b""
    for name, callees in calls.items():
        body = b""
        for callee in callees:
            after = places[name][0] + len(body) + 5
            body += b"\xe8" + struct.pack("<i", places[callee][0] - after)
        body += b"\xc3"
        text += body + b"\xcc" * (-len(body) % 16)
    return text, places


def _exports(
    exports: Mapping[str, tuple[bool, str]], functions: Mapping[str, tuple[int, int]], base: int
) -> list[tuple[str, bytes]]:
    """Tables of exports, which begin at ``base``, and their strings."""
    count = {gpl: sum(e[0] is gpl for e in exports.values()) for gpl in (False, True)}
    starts = {False: base, True: base + _aligned(12 * count[False])}
    strings_at = starts[True] + _aligned(12 * count[True])
    strings = fake.Strings()
    tables = {False: b"", True: b""}
    for name, (gpl, space) in exports.items():
        for target in (
            functions[name][0],
            strings_at + strings.add(name),
            strings_at + strings.add(space),
        ):
            place = starts[gpl] + len(tables[gpl])
            tables[gpl] += struct.pack("<i", target - place)
    return [
        ("__ksymtab", tables[False]),
        ("__ksymtab_gpl", tables[True]),
        ("__ksymtab_strings", strings.data),
    ]


def _aligned(size: int) -> int:
    return (size + 7) // 8 * 8


def build(plan: Plan, *, release: str = "6.12.117-test") -> bytes:
    """The kernel file."""
    types = _Btf(plan.structs)
    for name in plan.structs:
        types.type(f"struct {name}")
    for signature in plan.signatures:
        types.function(signature)
    if plan.enumerators:
        types.enum(plan.enumerators)
    base = fake.BASE + _START
    text, functions = _code(plan.calls, base)
    data_at = base + (len(text) + 7) // 8 * 8
    data, objects = b"", {}
    for variable, (kind, values) in plan.variables.items():
        content = bytearray(types.size(f"struct {kind}"))
        for way, value in values.items():
            outer, place, length = kind, 0, 0
            for member in way.split("."):
                offset, length = types.offsets[outer, member]
                outer, place = f"{outer}_{member}", place + offset
            number = functions[value][0] if isinstance(value, str) else value
            content[place : place + length] = number.to_bytes(length, "little")
        objects[variable] = data_at + len(data), len(content)
        data += bytes(content) + b"\0" * (-len(content) % 8)
    for name in plan.objects:
        objects.setdefault(name, (data_at + len(data), 8))
        data += b"\0" * 8
    names = fake.Strings()
    table = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for info, shndx, group in ((0x12, 1, functions), (0x11, 2, objects)):
        for name, (address, size) in group.items():
            table += struct.pack("<IBBHQQ", names.add(name), info, 0, shndx, address, size)
    rodata = b"junk\0" + f"Linux version {release} (user@host) (gcc) #1 SMP\n\0".encode()
    rodata += fake.ikconfig(plan.config)
    notes = fake.note(b"GNU", 3, b"\x12" * 20) + fake.note(b"Xen", 18, b"\0" * 4)
    exported = _exports(plan.exports, functions, data_at + _aligned(len(data)))
    sections = [
        ("", 0, b"", 0, 0),
        (".text", 1, text, 0, 0),
        (".data", 1, data, 0, 0),
        *((name, 1, table, 0, 0) for name, table in exported),
        (".rodata", 1, rodata, 0, 0),
        (".notes", 7, notes, 0, 0),
        (".BTF", 1, types.data(), 0, 0),
        (".symtab", 2, table, 7 + len(exported), 24),
        (".strtab", 3, names.data, 0, 0),
    ]
    return fake._assemble(sections, fake.X86_64, fake.EXEC, 64, "<")


def whole(
    features: Iterable[Feature] = (),
    *,
    without: Iterable[str] = (),
    config: Mapping[str, str] = {},
    unset: Iterable[str] = (),
) -> bytes:
    """A kernel that meets all expectations of the features, by default the shipped ones.

    ``without`` are ids of expectations that it does not meet, as far as others do not make
    it meet them, and names of features that it does not have; ``config`` is added to the
    configuration and ``unset`` taken from it.
    """
    plan = Plan()
    missing = set(without)
    for feature in features or load_features():
        for one in feature.expected(VERSION, ARCH):
            if one.id not in missing and (one.shared or feature.name not in missing):
                plan.expect(one)
        for need in (n for p in feature.programs for point in p.points() for n in p.needed(point)):
            if need.kind == "config":
                plan.config[need.name] = need.value or "y"
    plan.config.update(config)
    for name in unset:
        plan.config.pop(name, None)
    return build(plan)
