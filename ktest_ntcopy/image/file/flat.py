# SPDX-License-Identifier: GPL-2.0-only
"""A raw Image (arm64, riscv): no headers, so its parts are found by what they look like."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ktest_ntcopy.image.file.reader import Source
from ktest_ntcopy.image.names.kallsyms import find_tables, image_start, relocated_base

_LIMIT = 128 << 20  # bytes
_RISCV = 0xFFFFFFFF80000000  # where riscv kernels of 64 bits are linked, all of them


def flat_sections(source: Source, order: str) -> Iterator[tuple[str, int, int, int]]:
    """Name, address, offset and size of what a raw image holds: ``.image``, ``.BTF``.

    The address is that of the kernel's own symbol table, 0 without CONFIG_KALLSYMS.
    """
    data = source.read(0, min(source.size, _LIMIT))
    tables = find_tables(data, bits=64)
    base = 0
    if tables and tables.form == "place":
        base = image_start(data) or _RISCV
    elif tables and tables.form != "absolute":
        # Without relocations (riscv) the first symbol is where the image begins.
        moved = None if tables.base else relocated_base(data, tables.base_at)
        base = moved[0] if moved else tables.base
    yield ".image", base, 0, source.size
    if (found := _btf(data, order)) is not None:
        at, size = found
        yield ".BTF", base + at if base else 0, at, size


def _btf(data: bytes, order: str) -> tuple[int, int] | None:
    """Where the kernel's BTF lies: of all that looks like BTF, the largest."""
    magic = struct.pack(order + "HBBI", 0xEB9F, 1, 0, 24)
    best: tuple[int, int] | None = None
    at = data.find(magic)
    while at >= 0:
        if at + 24 <= len(data):
            types_at, types, strings_at, strings = struct.unpack_from(order + "IIII", data, at + 8)
            size = 24 + strings_at + strings
            fits = types_at == 0 and strings_at == types and at + size <= len(data)
            if fits and strings and not data[at + 24 + strings_at] and (not best or size > best[1]):
                best = at, size
        at = data.find(magic, at + 1)
    return best
