# SPDX-License-Identifier: GPL-2.0-only
"""Packs kernels as the kernel's build does: its tools' formats, then the size unpacked."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Callable

import lz4.block
import lzallright
import zstandard

_BLOCK = 256 << 10  # bytes; what lzop writes


def _xz(data: bytes) -> bytes:
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6}]
    return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=filters)


def _lzma(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_ALONE)


def _lz4(data: bytes) -> bytes:
    out = b"\x02\x21\x4c\x18"
    for at in range(0, len(data), 8 << 20):
        block = lz4.block.compress(data[at : at + (8 << 20)], store_size=False)
        out += struct.pack("<I", len(block)) + block
    return out


def _lzo(data: bytes) -> bytes:
    head = struct.pack(">HHHBBIIIIB", 0x1040, 0x20A0, 0x0940, 3, 9, 0x0300000D, 0, 0, 0, 0)
    out = b"\x89LZO\0\r\n\x1a\n" + head + struct.pack(">I", zlib.adler32(head))
    for at in range(0, len(data), _BLOCK):
        block = data[at : at + _BLOCK]
        packed = lzallright.LZOCompressor().compress(block)
        packed = block if len(packed) >= len(block) else packed
        out += struct.pack(">III", len(block), len(packed), zlib.adler32(block))
        out += packed
    return out + bytes(4)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(data)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "lzma": _lzma,
    "xz": _xz,
    "lzo": _lzo,
    "lz4": _lz4,
    "zstd": _zstd,
}


def pack(packer: str, data: bytes) -> bytes:
    """What a bzImage has as its payload."""
    size = b"" if packer == "gzip" else struct.pack("<I", len(data) & 0xFFFFFFFF)
    return PACKERS[packer](data) + size
