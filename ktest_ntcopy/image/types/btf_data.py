# SPDX-License-Identifier: GPL-2.0-only
"""The BTF format: types by number, elements of types, and where a name stands.

A type takes 12 bytes and, depending on its kind, more; all of it 32-bit words.  One pass
finds where each type starts.  A name is looked up the other way round: its place in the
strings first, then that number among the numbers that stand for names, so that nothing
else is decoded.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from ktest_ntcopy.image.types.typeinfo import TypeInfoError

MAGIC = 0xEB9F
DEPTH = 64  #: longest chain of typedefs, qualifiers and arrays followed; real ones are below ten
_REPEATS = 64  # places of one name in the strings; a writer stores each once, a module again
_BUDGET = 20_000  # steps of one question; the largest struct of a kernel takes some thousand
_LONGEST = 1024  # bytes of a name; the kernel itself takes half of that


class Kind(IntEnum):
    """Kinds of types, numbered as in the format."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19
    FOREIGN = 127  #: a kind newer than this reader, whose size the file told


QUALIFIERS = (Kind.VOLATILE, Kind.CONST, Kind.RESTRICT)
TRANSPARENT = (Kind.TYPEDEF, *QUALIFIERS, Kind.TYPE_TAG)
COMPOUND = (Kind.STRUCT, Kind.UNION)
ENUMS = (Kind.ENUM, Kind.ENUM64)

# Words after the header of a type: once, and per element.
_ONCE = {Kind.INT: 1, Kind.ARRAY: 3, Kind.VAR: 1, Kind.DECL_TAG: 1}
_EACH = {
    Kind.STRUCT: 3,
    Kind.UNION: 3,
    Kind.ENUM: 2,
    Kind.FUNC_PROTO: 2,
    Kind.DATASEC: 3,
    Kind.ENUM64: 3,
}
_NATIVE = "<" if sys.byteorder == "little" else ">"
_KINDS = tuple(Kind(k) if k in tuple(Kind) else Kind.FOREIGN for k in range(128))


class BtfError(TypeInfoError):
    """The bytes are no BTF, or damaged."""


class NoBase(BtfError):
    """The BTF is a module's, and that of its vmlinux was not given."""


class Budget:
    """Steps that one question may take: types that contain each other can ask for
    more than any machine has, without a single cycle."""

    def __init__(self, steps: int = _BUDGET) -> None:
        self._left = steps
        self._depth = 0

    @contextmanager
    def deeper(self, number: int) -> Iterator[None]:
        """One level further down, into type ``number``: a stack ends before steps do."""
        if self._depth >= DEPTH:
            raise BtfError(f"type {number} is nested too deeply, or contains itself")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def spend(self, number: int) -> None:
        """Take one step, at type ``number``."""
        self._left -= 1
        if self._left < 0:
            raise BtfError(f"type {number} is too large, or contains itself")


@dataclass(frozen=True)
class Type:
    """The header of one type."""

    number: int
    name: str
    kind: Kind
    count: int  #: elements: members, parameters, enumerators; a function's linkage
    flag: bool  #: bitfields in members; signed enum; union declared ahead; attribute tag
    last: int  #: size in bytes, or the number of the type referred to


class _Steps(dict[int, int]):
    """Words that a type takes, by the second word of its header."""

    def __init__(self, layout: bytes) -> None:
        self._once = {int(k): _ONCE.get(k, 0) for k in Kind if Kind.VOID < k < Kind.FOREIGN}
        self._each = {int(k): _EACH.get(k, 0) for k in Kind if Kind.VOID < k < Kind.FOREIGN}
        # Bytes once, bytes per element, and two of flags, of every kind its writer knew.
        for kind in range(len(self._once) + 1, min(len(layout) // 4, 127)):
            once, each = layout[4 * kind : 4 * kind + 2]
            if once % 4 == 0 and each % 4 == 0:
                self._once[kind], self._each[kind] = once // 4, each // 4

    def __missing__(self, info: int) -> int:
        kind = info >> 24 & 127
        if kind not in self._once:
            raise BtfError(
                f"a type of unknown kind {kind}: damaged, or BTF newer than this reader knows"
            )
        size = self[info] = 3 + self._once[kind] + self._each[kind] * (info & 0xFFFFFF)
        return size


class BtfData:
    """Decoded BTF.  ``base`` is what a module's BTF continues: its type numbers and
    string offsets go on where those of the base end.  Raises BtfError.
    """

    def __init__(self, data: bytes, *, base: BtfData | None = None) -> None:
        try:
            order, types, text, layout = _sections(data)
        except struct.error as err:
            raise BtfError(f"BTF ends too early, after {len(data)} bytes") from err
        if len(types) % 4:
            raise BtfError(f"{len(types)} bytes of types are no whole number of words")
        if order != _NATIVE:
            words = array("I", types)
            words.byteswap()
            types = words.tobytes()
        first = 0
        self.starts = array("I", [0])  # in words; number 0 is void and has none
        self._infos = array("I", [0])  # second words: kind, flag and count
        if base is None:
            if text[:1] != b"\0":
                raise NoBase("this continues the BTF of another file, which was not given")
        else:
            first = len(base.raw) // 4
            self.starts, self._infos = base.starts[:], base._infos[:]
            types, text = base.raw + types, base.text + text
        self.first = len(self.starts)  #: number of the first type that the base has not
        self.text: bytes = text
        self.raw: bytes = types
        self.words = memoryview(types).cast("I")
        self._known: dict[str, list[int]] = {}  #: types by names that were asked for
        self._walk(first, _Steps(layout))

    def _walk(self, at: int, steps: _Steps) -> None:
        words, end = self.words, len(self.words)
        start, tell = self.starts.append, self._infos.append
        try:
            while True:
                info = words[at + 1]
                start(at)
                tell(info)
                at += steps[info]
        except IndexError:  # cheaper than to compare each time
            if at != end:
                number = len(self.starts) - (at > end)
                raise BtfError(f"type {number} is cut off") from None

    def __len__(self) -> int:
        """Number of types, void included."""
        return len(self.starts)

    def type(self, number: int) -> Type:
        """The header of a type."""
        if not 0 < number < len(self.starts):
            if number == 0:
                return Type(0, "void", Kind.VOID, 0, False, 0)
            raise BtfError(f"type {number} of {len(self.starts)} referred to")
        at = self.starts[number]
        name, info, last = self.words[at : at + 3]
        kind = _KINDS[info >> 24 & 127]
        return Type(number, self.string(name), kind, info & 0xFFFFFF, bool(info >> 31), last)

    def kind(self, number: int) -> Kind:
        """The kind of a type, without the rest of its header."""
        if not 0 < number < len(self.starts):
            return self.type(number).kind
        return _KINDS[self._infos[number] >> 24 & 127]

    def name(self, number: int) -> str:
        """The name of a type, without the rest of its header."""
        return self.string(self.words[self.starts[number]])

    def string(self, at: int) -> str:
        """The string at an offset; what is not printable in it comes out as an escape."""
        end = self.text.find(b"\0", at)
        if end < 0 or at > len(self.text):
            raise BtfError(f"string {at} is not in the table")
        if end - at > _LONGEST:
            raise BtfError(f"string {at} is {end - at} bytes long")
        try:
            text = self.text[at:end].decode("ascii")
        except UnicodeDecodeError:
            text = self.text[at:end].decode("utf-8", "backslashreplace")
        return text if text.isprintable() else ascii(text)[1:-1]

    def elements(self, found: Type) -> Iterator[tuple[int, ...]]:
        """The elements of a type as words: (name, type, offset) of members, (name, value)
        or (name, low, high) of enumerators, (name, type) of parameters, (type, offset,
        size) of variables in a section.  An array has one, (element, index, count)."""
        size = 3 if found.kind is Kind.ARRAY else _EACH.get(found.kind, 0)
        at = self.starts[found.number] + 3
        count = 1 if found.kind is Kind.ARRAY else found.count
        for place in range(at, at + size * count, size or 1):
            yield tuple(self.words[place : place + size])

    def extra(self, found: Type) -> int:
        """The word after the header of an INT, VAR or DECL_TAG."""
        return self.words[self.starts[found.number] + 3]

    def of_kind(self, *kinds: Kind) -> Iterator[int]:
        """Numbers of all types of these kinds, in their order."""
        every = bytes(value for kind in kinds for value in (kind, kind | 128))
        for hit in re.finditer(b"[" + re.escape(every) + b"]", self._kinds):
            if hit.start():
                yield hit.start()

    @cached_property
    def _kinds(self) -> bytes:
        """Kind and flag of every type."""
        return self._infos.tobytes()[3 if sys.byteorder == "little" else 0 :: 4]

    @cached_property
    def _names(self) -> bytes:
        """Place of the name of every type."""
        places = array("I", map(self.words.__getitem__, self.starts if self.words else ()))
        if places:
            places[0] = 0  # void, which would have that of the first type
        return places.tobytes()

    @cached_property
    def _enumerators(self) -> tuple[bytes, list[int], list[int]]:
        """Places of the names of all enumerators; numbers of the enums, and how many
        enumerators come before each."""
        places, numbers, before = array("I"), [], []
        for number in self.of_kind(*ENUMS):
            numbers.append(number)
            before.append(len(places))
            count, size = self._infos[number] & 0xFFFFFF, _EACH[self.kind(number)]
            at = self.starts[number] + 3
            places.extend(self.words[at : at + size * count : size])
        return places.tobytes(), numbers, before

    def named(self, name: str, *kinds: Kind) -> Iterator[int]:
        """Numbers of all types of that name, of the kinds if any are given."""
        # Many questions are about few names, and the strings are long.
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = sorted(self._where(self._names, name))
        return (number for number in found if not kinds or self.kind(number) in kinds)

    def enumerators_named(self, name: str) -> Iterator[tuple[int, int]]:
        """Number of the enum and index in it, of all enumerators of that name."""
        places, numbers, before = self._enumerators
        for found in sorted(self._where(places, name)):
            enum = bisect_right(before, found) - 1
            yield numbers[enum], found - before[enum]

    def _where(self, places: bytes, name: str) -> Iterator[int]:
        """Indexes in an array of places at which that of the name stands."""
        for place in self._places(name):
            needle = struct.pack("=I", place)
            at = places.find(needle)
            while at >= 0:
                if at % 4 == 0:
                    yield at // 4
                at = places.find(needle, at + 1)

    def _places(self, name: str) -> list[int]:
        found: list[int] = []
        needle = b"\0" + name.encode("utf-8", "replace") + b"\0"
        at = self.text.find(needle) if name and "\0" not in name else -1
        while at >= 0:
            found.append(at + 1)
            if len(found) > _REPEATS:
                raise BtfError(f"the strings repeat {name!r} more than {_REPEATS} times")
            at = self.text.find(needle, at + 1)
        return found


def _sections(data: bytes) -> tuple[str, bytes, bytes, bytes]:
    """Byte order, types, strings, and the sizes of kinds (empty before Linux 7)."""
    for order in "<>":
        magic, version, _, header = struct.unpack_from(order + "HBBI", data)
        if magic == MAGIC:
            break
    else:
        raise BtfError("no BTF magic number")
    if version != 1:
        raise BtfError(f"BTF version {version} is not known")
    if header < 24:
        raise BtfError(f"a BTF header of {header} bytes")
    places = list(struct.unpack_from(order + "IIII", data, 8))
    if header >= 32:
        places += struct.unpack_from(order + "II", data, 24)
    parts = []
    for start, size in zip(places[::2], places[1::2], strict=True):
        if header + start + size > len(data):
            raise BtfError(
                f"BTF ends too early: {len(data)} bytes, its header speaks of "
                f"{header + start + size}"
            )
        parts.append(data[header + start : header + start + size])
    types, text, *layout = parts
    if text[-1:] not in (b"", b"\0"):
        raise BtfError("the last string is cut off")
    return order, types, text, layout[0] if layout else b""
