# SPDX-License-Identifier: GPL-2.0-only
"""Sections of debug information as streams, and the layout of compile units.

.debug_info of a kernel takes 100 to 400 MB, so it is read through a window and never as a
whole, unless it is compressed.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ktest_ntcopy.image.file.elf import Elf, Section
from ktest_ntcopy.image.types.typeinfo import TypeInfoError

_WINDOW = 1 << 16  # bytes read ahead
_CHUNK = 1 << 22  # bytes searched at once

#: Fixed sizes of forms by their number in the DWARF standard.
_FIXED = {
    **dict.fromkeys((0x0B, 0x0C, 0x11, 0x25, 0x29), 1),  # data1 flag ref1 strx1 addrx1
    **dict.fromkeys((0x05, 0x12, 0x26, 0x2A), 2),  # data2 ref2 strx2 addrx2
    **dict.fromkeys((0x27, 0x2B), 3),  # strx3 addrx3
    # data4 strp ref4 ref_addr sec_offset ref_sup4 strp_sup line_strp strx4 addrx4
    **dict.fromkeys((0x06, 0x0E, 0x13, 0x10, 0x17, 0x1C, 0x1D, 0x1F, 0x28, 0x2C), 4),
    **dict.fromkeys((0x07, 0x14, 0x20, 0x24), 8),  # data8 ref8 ref_sig8 ref_sup8
    0x1E: 16,  # data16
    **dict.fromkeys((0x19, 0x21), 0),  # flag_present implicit_const
}
_ADDR = 0x01
_IMPLICIT_CONST = 0x21
_STRING = 0x08
_LEB = frozenset({0x0D, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23})  # sdata udata ref_udata strx ...
_COUNTED = {0x0A: 1, 0x03: 2, 0x04: 4}  # block1 block2 block4, by the width of their length
_BLOCK = frozenset({0x09, 0x18})  # block exprloc
FORM_STRINGS = frozenset({0x08, 0x0E, 0x1A, 0x25, 0x26, 0x27, 0x28})  #: string strp strx*
AT_SIBLING, AT_NAME, AT_DECLARATION, AT_EXTERNAL, AT_STR_OFFSETS_BASE = 0x01, 0x03, 0x3C, 0x3F, 0x72
NO_ATTRIBUTE = -1  #: asks :func:`locate` for the end of the entry

Abbrev = tuple[int, tuple[tuple[int, int], ...], bool]  # tag, (attribute, form), has children


class Span(io.RawIOBase):
    """A section as a seekable stream that can be searched."""

    def __init__(self, elf: Elf, section: Section) -> None:
        self._elf, self._section = elf, section
        self._whole = elf.read(section) if section.compressed else None
        self.size = section.size if self._whole is None else len(self._whole)
        self.name = section.name
        self._at = self._start = 0
        self._window = b""

    def bytes_at(self, at: int, length: int) -> bytes:
        """Up to ``length`` bytes; fewer at the end."""
        length = min(length, self.size - at)
        if at < 0 or length <= 0:
            return b""
        if self._whole is not None:
            return self._whole[at : at + length]
        if not self._start <= at <= at + length <= self._start + len(self._window):
            if length > _WINDOW:
                return self._elf.read(self._section, start=at, size=length)
            # What comes next is mostly near, on either side.
            self._start = max(0, at - _WINDOW // 4)
            size = min(_WINDOW * 2, self.size - self._start)
            self._window = self._elf.read(self._section, start=self._start, size=size)
        return self._window[at - self._start : at - self._start + length]

    def read(self, size: int | None = -1) -> bytes:
        wanted = self.size if size is None or size < 0 else size
        found = self.bytes_at(self._at, wanted)
        self._at += len(found)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def search(self, patterns: list[bytes], tick: Callable[[], None]) -> Iterator[int]:
        """Positions of any of the patterns, which have one length, in order chunk by chunk.

        ``tick`` is called for each chunk and may raise.
        """
        width = len(patterns[0])
        for start in range(0, self.size, _CHUNK):
            tick()
            chunk = self.bytes_at(start, _CHUNK + width - 1)
            for at in sorted(_find(chunk, patterns)):
                yield start + at


def _find(chunk: bytes, patterns: list[bytes]) -> Iterator[int]:
    for pattern in patterns:
        at = chunk.find(pattern)
        while at >= 0:
            yield at
            at = chunk.find(pattern, at + 1)


@dataclass(frozen=True, slots=True)
class Unit:
    """Where one compile unit lies in .debug_info."""

    start: int
    end: int
    version: int
    address_size: int
    abbrev_offset: int
    dies: int  #: offset of its first entry


def units(info: Span, order: str) -> list[Unit]:
    """All units.  Raises TypeInfoError for what is no DWARF of a kernel."""
    found: list[Unit] = []
    at = 0
    while at + 11 <= info.size:
        head = info.bytes_at(at, 12)
        length, version = struct.unpack_from(order + "IH", head)
        if length >= 0xFFFFFFF0:
            raise TypeInfoError(".debug_info is in the 64-bit format, which no kernel uses")
        end = at + 4 + length
        if end > info.size or length < 7:
            raise TypeInfoError(f"the unit at byte {at} of .debug_info is cut off")
        if version in (2, 3, 4):
            abbrev, address = struct.unpack_from(order + "IB", head, 6)
            found.append(Unit(at, end, version, address, abbrev, at + 11))
        elif version == 5:
            kind, address, abbrev = struct.unpack_from(order + "BBI", head, 6)
            if kind == 1:  # others are parts of split files, or types by signature
                found.append(Unit(at, end, version, address, abbrev, at + 12))
        else:
            raise TypeInfoError(f"DWARF version {version} is not known; it reads 2 to 5")
        at = end
    return found


def leb(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number, and where it ends.  Raises IndexError."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError


def abbrevs(section: Span, offset: int) -> dict[int, Abbrev]:
    """One table of abbreviations, up to its end or to damage in it."""
    found: dict[int, Abbrev] = {}
    data, at = section.bytes_at(offset, _WINDOW), 0
    try:
        while True:
            code, at = leb(data, at)
            if not code:
                return found
            tag, at = leb(data, at)
            children = bool(data[at])
            at += 1
            specs: list[tuple[int, int]] = []
            while True:
                name, at = leb(data, at)
                form, at = leb(data, at)
                if form == _IMPLICIT_CONST:
                    _, at = leb(data, at)
                if not name and not form:
                    break
                specs.append((name, form))
            found[code] = tag, tuple(specs), children
    except IndexError:
        return found


def locate(
    abbrev: Abbrev, data: bytes, at: int, unit: Unit, order: str, attribute: int
) -> tuple[int, int] | None:
    """Where an attribute of the entry whose attributes begin at ``at`` lies, and its form;
    for NO_ATTRIBUTE the end of the entry, and 0."""
    try:
        for name, form in abbrev[1]:
            if name == attribute:
                return at, form
            if form in _FIXED:
                at += 4 if form == 0x10 and unit.version > 2 else _FIXED[form]
            elif form == _ADDR:
                at += unit.address_size
            elif form in _LEB:
                _, at = leb(data, at)
            elif form == _STRING:
                at = data.index(b"\0", at) + 1
            elif form in _BLOCK:
                length, at = leb(data, at)
                at += length
            elif form in _COUNTED:
                width = _COUNTED[form]
                little = "little" if order == "<" else "big"
                length = int.from_bytes(data[at : at + width], little)  # type: ignore[arg-type]
                at += width + length
            else:
                return None
    except (IndexError, ValueError):
        return None
    return (at, 0) if attribute == NO_ATTRIBUTE else None
