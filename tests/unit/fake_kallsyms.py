# SPDX-License-Identifier: GPL-2.0-only
"""Makes a kernel's own symbol table as the build's scripts/kallsyms lays it out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

#: Letter as nm prints it, name, address.
Symbols = Sequence[tuple[str, str, int]]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What differs between versions and architectures."""

    bits: int = 64
    order: str = "<"
    form: str = "relative"  #: or "percpu", "absolute", "place"
    step: int = 0  #: tables begin at multiples of this; 0: of a word, as until lately
    addresses_last: bool = True  #: from 6.4 on; before the number of symbols until then
    numbers_of_names: bool = False  #: 6.2 and 6.3 have these between markers and tokens
    base_in_place: bool = True  #: False where a relocation puts it in


def symbols(count: int, base: int = 0xFFFFFFFF81000000, *, percpu: int = 0) -> Symbols:
    """``count`` symbols from ``base`` on, the first ``percpu`` of them from 0 on."""
    low = [("A", f"__per_cpu_thing_{n}", n * 64) for n in range(percpu)]
    letters = "TtDdBbRrWV"
    return [
        *low,
        ("T", "_text", base),
        *(
            (letters[n % len(letters)], f"do_something_{n}.isra.{n % 7}", base + 16 * n)
            for n in range(1, count - percpu)
        ),
    ]


def _align(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)


def _tokens(table: Symbols) -> list[bytes]:
    text = "".join(letter + name for letter, name, _ in table)
    used = {ord(c) for c in text} | set(b"0123456789")
    pairs = sorted({text[i : i + 2] for i in range(len(text) - 1)}, key=lambda p: -text.count(p))
    longer = iter([*pairs[:200], *(f"_{n}_" for n in range(256))])
    # A token with no use is empty, as in kernels with few symbols.
    return [
        bytes([c]) if c in used else b"" if c > 250 else next(longer).encode() for c in range(256)
    ]


def _pack(text: bytes, tokens: dict[bytes, int]) -> bytes:
    out, at = b"", 0
    while at < len(text):
        size = 2 if text[at : at + 2] in tokens else 1
        out += bytes([tokens[text[at : at + size]]])
        at += size
    return out


def tables(
    table: Symbols, layout: Layout, *, lead: bytes = b"\0" * 64, start: int = 0
) -> tuple[bytes, int]:
    """The tables after ``lead``, and where the base address stands (0 if there is none).

    ``start`` is the address of ``lead``; only the form "place" needs it.
    """
    word, order = layout.step or layout.bits // 8, layout.order
    address = order + ("Q" if layout.bits == 64 else "I")
    tokens = _tokens(table)
    index_of = {t: i for i, t in reversed(list(enumerate(tokens))) if t}
    names, markers = b"", []
    for number, (letter, name, _) in enumerate(table):
        if number % 256 == 0:
            markers.append(len(names))
        packed = _pack((letter + name).encode(), index_of)
        size = len(packed)
        head = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        names += head + packed
    base = min(a for letter, _, a in table if letter != "A")
    if layout.form == "place":
        numbers = bytes(4 * len(table))
    elif layout.form == "absolute":
        numbers = b"".join(struct.pack(address, a) for _, _, a in table)
    else:
        numbers = b"".join(
            struct.pack(
                order + "I",
                (a if a < base else base - 1 - a & 0xFFFFFFFF)
                if layout.form == "percpu"
                else a - base,
            )
            for _, _, a in table
        )
    numbers = _align(numbers, word)
    base_from_numbers = len(numbers)
    if layout.form not in ("absolute", "place"):
        numbers += struct.pack(address, base if layout.base_in_place else 0)
    out = _align(lead, word)
    base_at = 0
    if not layout.addresses_last:
        base_at = len(out) + base_from_numbers
        out += numbers
    out += _align(struct.pack(order + "I", len(table)), word)
    out = _align(out + names, word)
    out = _align(out + struct.pack(f"{order}{len(markers)}I", *markers), word)
    if layout.numbers_of_names:
        out = _align(out + bytes(3 * len(table)), word)
    places, at = [], 0
    for token in tokens:
        places.append(at)
        at += len(token) + 1
    out = _align(out + b"".join(t + b"\0" for t in tokens), word)
    out = _align(out + struct.pack(order + "256H", *places), word)
    if layout.addresses_last:
        base_at = len(out) + base_from_numbers
        if layout.form == "place":
            here = start + len(out)
            numbers = b"".join(
                struct.pack(order + "i", a - (here + 4 * i)) for i, (_, _, a) in enumerate(table)
            )
        out += numbers
    return out + b"\0" * 64, 0 if layout.form in ("absolute", "place") else base_at
