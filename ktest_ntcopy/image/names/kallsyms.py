# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own symbol table, which stays in a stripped kernel (CONFIG_KALLSYMS).

``scripts/kallsyms`` writes the tables without marks to find them by, in an order that
changed over the versions (all of these from 5.0 on are read here):

- the 256 tokens that names are packed with, as strings one after the other, and where
  each begins: 256 numbers of 16 bits.  These two prove each other, so they are found first;
- the number of symbols, their packed names, and where every 256th name begins, before
  the tokens.  The markers prove the names;
- the addresses: 32 bits per symbol and a base, either before the number of symbols (up to
  6.3) or after the tokens; or whole addresses; or, lately, 32 bits that count from where
  they lie themselves.  They are sorted, which proves them.

Each table begins at a multiple of a word, lately of 4 bytes on all machines.

No I/O here.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_DIGITS = b"".join(bytes([c, 0]) for c in b"0123456789")
_ZERO = ord("0")
_FEWEST, _MOST = 300, 1 << 22  # symbols of a kernel
_TRIES = 1000  # places that look like digits' tokens; kernels have one or two
_REACH = 32 << 20  # bytes before the tokens in which the names must begin
_STEP = 1 << 20  # bytes
_LONGEST = 256 * 514  # bytes of 256 names
#: Kinds of symbols as nm prints them; kallsyms has these before each name.
_LETTERS = frozenset(b"aAbBcCdDgGiInNrRsStTuUvVwW?")


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Where the tables lie in the data, in bytes from its start."""

    order: str  #: "<" or ">"
    bits: int
    tokens: tuple[bytes, ...]
    count: int  #: symbols
    names_at: int
    addresses_at: int
    form: str  #: "relative", "percpu" (relative, but per-CPU symbols absolute), "absolute";
    #: or "place": relative to each number's own address, so the base is that of the data
    base_at: int  #: where the base address lies, for the relative forms
    base: int  #: as the data say; 0 where a relocation puts it in


@dataclass(frozen=True)
class Named:
    """One symbol; its size is not known."""

    name: str
    letter: str  #: as nm prints it: "T" global code, "t" local code, "d" data…
    address: int


def find_tables(data: bytes, *, bits: int) -> Tables | None:
    """Find the tables in a kernel's read-only data, or in the whole of its image."""
    at = -1
    budget = _Budget()
    for _ in range(_TRIES):
        at = data.find(_DIGITS, at + 1)
        if at < 0 or budget.spent:
            return None
        if (found := _tokens(data, at, bits)) and (whole := _around(data, *found, bits, budget)):
            return whole
    return None


class _Budget:
    """Bounds the work that data can cause which are made to look like tables."""

    def __init__(self) -> None:
        self._left = 3 * _MOST // 4

    def take(self, steps: int) -> None:
        self._left -= steps

    @property
    def spent(self) -> bool:
        return self._left < 0


def _tokens(data: bytes, zero_at: int, bits: int) -> tuple[str, tuple[bytes, ...], int, int] | None:
    """Byte order, tokens, their begin, and the end of their index, if they are the tokens."""
    at = zero_at
    for _ in range(_ZERO - 1):  # back to where token 1 begins
        at = data.rfind(b"\0", max(0, at - 512), at - 1) + 1
        if not at:
            return None
    second = at
    starts = [second]
    for _ in range(254):
        at = data.find(b"\0", at, at + 512) + 1
        if not at:
            return None
        starts.append(at)
    end = data.find(b"\0", at, at + 512) + 1
    if not end:
        return None
    for order, index_at in itertools.product(
        "<>", sorted({_align(end, 4), _align(end, bits // 8)})
    ):
        if index_at + 512 > len(data):
            return None
        index = struct.unpack_from(order + "256H", data, index_at)
        first = second - index[1]
        if (
            not index[0]
            and first >= 0
            and all(first + n == s for n, s in zip(index[1:], starts, strict=True))
        ):
            bounds = zip([first, *starts], [*starts, end], strict=True)
            return order, tuple(data[a : b - 1] for a, b in bounds), first, index_at + 512
    return None


def _around(
    data: bytes,
    order: str,
    tokens: tuple[bytes, ...],
    tokens_at: int,
    index_end: int,
    bits: int,
    budget: _Budget,
) -> Tables | None:
    word = bits // 8
    budget.take(_MOST // 8)
    counts = itertools.chain(
        ((at, count, 4) for at, count in _marked(data, order, tokens_at)),
        ((at, count, word) for at, count in _counts(data, order, tokens_at, word)),
    )
    for count_at, count, step in counts:
        if budget.spent:
            return None
        names_at = count_at + step
        if _names_fit(data, order, tokens, names_at, count, tokens_at, step, budget):
            break
    else:
        return None
    for form, addresses_at, base_at in _places(count_at, index_end, count, word):
        base_at_word = "Q" if bits == 64 else "I"
        if addresses_at < 0 or max(base_at, addresses_at) + word > len(data):
            continue
        base = 0
        if form == "place":
            numbers = _numbers(data, order + f"{count}i", addresses_at)
            if numbers and 0 <= numbers[0] < 4 * count:  # the first symbol lies elsewhere
                continue
        elif form == "absolute":
            numbers = _numbers(data, order + f"{count}{base_at_word}", addresses_at)
        else:
            numbers = _numbers(data, order + f"{count}I", addresses_at)
            (base,) = struct.unpack_from(order + base_at_word, data, base_at)
            form = "percpu" if numbers and numbers[-1] >> 31 else form
        if numbers and _sorted(_resolve(numbers, form, 1 << 64, addresses_at)):
            return Tables(
                order=order,
                bits=bits,
                tokens=tokens,
                count=count,
                names_at=names_at,
                addresses_at=addresses_at,
                form=form,
                base_at=base_at,
                base=base,
            )
    return None


def _marked(data: bytes, order: str, before: int) -> Iterator[tuple[int, int]]:
    """The same where tables begin at multiples of 4 bytes.

    There every number could be that of the symbols, but the markers end where the tokens
    begin, and say how far before them the names began, except for up to 256 names.
    """
    if before % 4:
        return
    start = max(0, before - _MOST // 256 * 4)
    numbers = struct.unpack_from(f"{order}{(before - start) // 4}I", data, start)
    first = len(numbers) - 1
    while first > 0 and numbers[first - 1] < numbers[first]:
        first -= 1
    markers = len(numbers) - first
    if first < 0 or numbers[first] or markers < 2:
        return
    names_end = before - 4 * markers - numbers[-1]
    for at in range(names_end & ~3, max(4, names_end - _LONGEST), -4):
        (count,) = struct.unpack_from(order + "I", data, at - 4)
        if 256 * (markers - 1) < count <= 256 * markers and count >= _FEWEST:
            yield at - 4, count


def _counts(data: bytes, order: str, before: int, word: int) -> Iterator[tuple[int, int]]:
    """Places that may hold the number of symbols, the nearest first."""
    end = before // word * word
    lowest = max(0, end - _REACH)
    while end > lowest:
        start = max(lowest // word * word, end - _STEP)
        numbers = struct.unpack_from(f"{order}{(end - start) // 4}I", data, start)
        step = word // 4
        rows = zip(numbers[::step], numbers[1::step] if step == 2 else numbers, strict=True)
        hits = [
            (start + i * word, number)
            for i, (number, padding) in enumerate(rows)
            if _FEWEST <= number < _MOST and (step == 1 or not padding)
        ]
        yield from reversed(hits)
        end = start


def _names_fit(
    data: bytes,
    order: str,
    tokens: tuple[bytes, ...],
    names_at: int,
    count: int,
    limit: int,
    word: int,
    budget: _Budget,
) -> bool:
    """Whether ``count`` names begin here: their kinds are letters and the markers follow."""
    at = names_at
    markers = []
    for number in range(count):
        if number % 256 == 0:
            markers.append(at - names_at)
        length = data[at]
        at += 1
        if length & 0x80:
            length = length & 0x7F | data[at] << 7
            at += 1
        if not length or at + length > limit or tokens[data[at]][:1] not in _STARTS:
            budget.take(number)
            return False
        at += length
    budget.take(count)
    at = _align(at, word)
    if at + 4 * len(markers) > limit:
        return False
    return struct.unpack_from(f"{order}{len(markers)}I", data, at) == tuple(markers)


_STARTS = frozenset(bytes([c]) for c in _LETTERS)


def _places(count_at: int, index_end: int, count: int, word: int) -> Iterator[tuple[str, int, int]]:
    """Form, where the addresses may begin, and where their base is then."""
    after = _align(index_end, word)
    room = _align(4 * count, word)
    yield "relative", after, after + room
    yield "relative", count_at - word - room, count_at - word
    yield "absolute", count_at - word * count, 0
    yield "place", _align(index_end, 4), 0


def _numbers(data: bytes, layout: str, at: int) -> tuple[int, ...]:
    if at + struct.calcsize(layout) > len(data):
        return ()
    return struct.unpack_from(layout, data, at)


def _resolve(numbers: tuple[int, ...], form: str, base: int, at: int) -> list[int]:
    if form == "absolute":
        return list(numbers)
    if form == "place":
        return [base + at + 4 * i + n for i, n in enumerate(numbers)]
    if form == "relative":
        return [base + n for n in numbers]
    # Of 32 bits signed: negative is -1 - distance from the base, others stand for themselves.
    return [base + 0xFFFFFFFF - n if n >> 31 else n for n in numbers]


def _sorted(numbers: list[int]) -> bool:
    return numbers[-1] > numbers[0] and all(a <= b for a, b in itertools.pairwise(numbers))


def _align(at: int, to: int) -> int:
    return -(-at // to) * to


def read_names(data: bytes, tables: Tables, *, base: int | None = None) -> list[Named]:
    """All symbols in the order of their addresses.

    ``base`` replaces the tables' own base where a relocation would; for the form "place" it
    is the address of the data's first byte.  Raises IndexError or
    struct.error for data that are not those in which the tables were found.
    """
    letter = {"absolute": "Q" if tables.bits == 64 else "I", "place": "i"}.get(tables.form, "I")
    numbers = struct.unpack_from(f"{tables.order}{tables.count}{letter}", data, tables.addresses_at)
    start = tables.base if base is None else base
    mask = (1 << tables.bits) - 1
    token = [t.decode("latin-1") for t in tables.tokens].__getitem__
    found = []
    at = tables.names_at
    for address in _resolve(numbers, tables.form, start, tables.addresses_at):
        length = data[at]
        at += 1
        if length & 0x80:
            length = length & 0x7F | data[at] << 7
            at += 1
        name = "".join(map(token, data[at : at + length]))
        at += length
        found.append(Named(name[1:], name[0], address & mask))
    return found


def image_start(data: bytes) -> int:
    """The address that an arm64 Image is linked at, from any of its relocations; or 0."""
    end = b"\xff\xff" + struct.pack("<Q", 0x403)  # of the place; then the kind
    at = 6
    for _ in range(_TRIES):
        at = data.find(end, at)
        if at < 0:
            break
        (place,) = struct.unpack_from("<Q", data, at - 6)
        start = place & -(1 << 27)
        if place % 8 == 0 and place - start < len(data):
            return int(start)
        at += 1
    return 0


def relocated_base(data: bytes, base_at: int) -> tuple[int, int] | None:
    """The address of an arm64 Image and the base of its symbols, from its relocations.

    The Image is linked like a shared library: the place of the base holds 0, and among the
    relocations (24 bytes: place, kind, value) is one for it.
    """
    # The image is linked at a multiple of 128 MiB, so two bytes of the place are known,
    # and images are smaller than that, so only one place fits.
    low = re.escape(struct.pack("<H", base_at & 0xFFFF))
    kind = re.escape(struct.pack("<Q", 0x403))  # R_AARCH64_RELATIVE
    for hit in re.finditer(low + b"(?s:.{6})" + kind + b"(?s:.{8})", data):
        place, _, value = struct.unpack("<QQQ", hit.group())
        start = place - base_at
        if start % (1 << 27) == 0 and start <= value < start + len(data):
            return start, value
    return None
