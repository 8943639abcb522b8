# SPDX-License-Identifier: GPL-2.0-only
"""Unpacks what kernels are packed with, and never more than asked for.

Each packer is a generator of pieces, so that a bomb costs one piece and not all memory.
Libraries are imported where they are used: most kernels are not packed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import bz2
    import lzma

_PIECE = 1 << 18  # bytes read at a time
_OUT = 1 << 20  # bytes that a packer may give at a time

_LZ4_BLOCK = 8 << 20  # bytes; the legacy frame's blocks unpack to no more
_LZO_BLOCK = 256 << 10  # bytes; the kernel unpacks no larger blocks
#: 128 MiB: what the kernel's build (`zstd -22 --ultra`) may use, and the most we allow.
_ZSTD_WINDOW = 1 << 27
_LZMA_MEMORY = 256 << 20  # bytes

LEGACY_LZ4 = b"\x02\x21\x4c\x18"
#: How packed data starts -> the packer.  LZMA has no magic: properties, then a
#: dictionary size whose low bytes are zero.
MAGICS = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (LEGACY_LZ4, "lz4"),
    (b"\x89LZO\0\r\n\x1a\n", "lzo"),
    (b"\x5d\0\0", "lzma"),
)


class UnpackError(Exception):
    """Packed data are damaged, or unpack to more than is allowed."""


def packer_of(head: bytes) -> str | None:
    """The name of the packer by the first bytes of packed data."""
    return next((name for magic, name in MAGICS if head.startswith(magic)), None)


Read = Callable[[int, int], bytes]  # position, at most so many bytes -> bytes


def pieces(packer: str, read: Read, size: int) -> Iterator[bytes]:
    """Unpack ``size`` packed bytes piece by piece; what follows the packed data is ignored.

    Raises UnpackError for damage, after the pieces that came before it.
    """
    import lzma

    try:
        yield from _PACKERS[packer](read, size)
    except (zlib.error, lzma.LZMAError, struct.error, LookupError) as err:
        raise UnpackError(f"damaged {packer} data: {err}") from err
    except (OSError, EOFError, ValueError) as err:
        raise UnpackError(f"damaged {packer} data: {err}") from err
    except MemoryError as err:
        raise UnpackError(f"{packer} data claim more memory than there is") from err


def unpack(packer: str, data: bytes, *, limit: int) -> bytes:
    """All of it, for small things.  Raises UnpackError beyond ``limit`` bytes."""
    out = bytearray()
    for piece in pieces(packer, lambda at, n: data[at : at + n], len(data)):
        out += piece
        if len(out) > limit:
            raise UnpackError(f"{packer} data unpack to more than {limit} bytes")
    return bytes(out)


def _packed(read: Read, size: int) -> Iterator[bytes]:
    for at in range(0, size, _PIECE):
        yield read(at, min(_PIECE, size - at))


def _gzip(read: Read, size: int) -> Iterator[bytes]:
    yield from _inflate(read, size, wbits=31)


def _zlib(read: Read, size: int) -> Iterator[bytes]:
    yield from _inflate(read, size, wbits=15)


def _inflate(read: Read, size: int, *, wbits: int) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=wbits)
    for piece in _packed(read, size):
        while True:
            yield unpacker.decompress(piece, _OUT)
            piece = unpacker.unconsumed_tail
            if unpacker.eof:
                return
            if not piece:
                break
    raise EOFError("it ends early")


def _stream(unpacker: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> _Packer:
    def run(read: Read, size: int) -> Iterator[bytes]:
        for piece in _packed(read, size):
            yield unpacker.decompress(piece, _OUT)
            while not unpacker.eof and not unpacker.needs_input:
                yield unpacker.decompress(b"", _OUT)
            if unpacker.eof:
                return
        raise EOFError("it ends early")

    return run


def _bzip2(read: Read, size: int) -> Iterator[bytes]:
    import bz2

    yield from _stream(bz2.BZ2Decompressor())(read, size)


def _xz(read: Read, size: int) -> Iterator[bytes]:
    import lzma

    yield from _stream(lzma.LZMADecompressor(lzma.FORMAT_XZ, _LZMA_MEMORY))(read, size)


def _lzma(read: Read, size: int) -> Iterator[bytes]:
    import lzma

    yield from _stream(lzma.LZMADecompressor(lzma.FORMAT_ALONE, _LZMA_MEMORY))(read, size)


def _zstd(read: Read, size: int) -> Iterator[bytes]:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
    # The library gives all that a piece unpacks to at once, so pieces are small here: a
    # block of four bytes may stand for 128 KiB.
    step = 1 << 10
    for at in range(0, size, step):
        try:
            yield unpacker.decompress(read(at, min(step, size - at)))
        except zstandard.ZstdError as err:
            raise ValueError(str(err)) from err
        if unpacker.eof:
            return
    raise EOFError("it ends early")


def _lz4(read: Read, size: int) -> Iterator[bytes]:
    """The legacy frame: blocks, each with its packed size before it."""
    import lz4.block

    if size < 4 or read(0, 4) != LEGACY_LZ4:
        raise EOFError("it ends early")
    at, total = 4, 0
    while at + 4 <= size:
        head = read(at, 4)
        at += 4
        if head == LEGACY_LZ4:
            continue
        (length,) = struct.unpack("<I", head)
        # The kernel's build appends the unpacked size, which is no block.
        if not length or (total and length == total & 0xFFFFFFFF):
            return
        if at + length > size:
            raise EOFError("it ends early")
        try:
            block = lz4.block.decompress(read(at, length), uncompressed_size=_LZ4_BLOCK)
        except lz4.block.LZ4BlockError as err:
            raise ValueError(str(err)) from err
        yield block
        total += len(block)
        at += length


_LZO_FILTER, _LZO_EXTRA, _LZO_CRC32 = 0x800, 0x40, 0x1000
_LZO_SUMS_OUT = (0x1, 0x100)  # Adler-32 and CRC-32 of what a block unpacks to
_LZO_SUMS_IN = (0x2, 0x200)  # the same of the packed block


def _lzo(read: Read, size: int) -> Iterator[bytes]:
    """lzop's file format."""
    import lzallright

    head = read(0, min(size, 512))
    at = 9
    (version,) = struct.unpack_from(">H", head, at)
    at += 4 if version < 0x940 else 6  # version, library version, version needed
    at += 1 if version < 0x940 else 2  # method, level
    (flags,) = struct.unpack_from(">I", head, at)
    at += 4 + (4 if flags & _LZO_FILTER else 0)
    at += 8 if version < 0x940 else 12  # mode, times
    at += 1 + head[at] + 4  # file name, checksum of the header
    if flags & _LZO_EXTRA:
        at += struct.unpack_from(">I", head, at)[0] + 8
    while at + 4 <= size:
        (length,) = struct.unpack(">I", read(at, 4))
        if not length:
            return
        (packed,) = struct.unpack(">I", read(at + 4, 4))
        if length > _LZO_BLOCK or packed > length:
            raise ValueError(f"a block of {packed} bytes for {length}")
        at += 8 + 4 * sum(bool(flags & bit) for bit in _LZO_SUMS_OUT)
        if packed < length:
            at += 4 * sum(bool(flags & bit) for bit in _LZO_SUMS_IN)
        if at + packed > size:
            raise EOFError("it ends early")
        block = read(at, packed)
        if packed < length:
            try:
                block = lzallright.LZOCompressor.decompress(block, length)
            except lzallright.LZOError as err:
                raise ValueError(str(err)) from err
        if len(block) != length:
            raise ValueError("a block has not the size it claims")
        yield block
        at += packed
    raise EOFError("it ends early")


_Packer = Callable[[Read, int], Iterator[bytes]]
_PACKERS: dict[str, _Packer] = {
    "gzip": _gzip,
    "zlib": _zlib,
    "bzip2": _bzip2,
    "xz": _xz,
    "lzma": _lzma,
    "zstd": _zstd,
    "lz4": _lz4,
    "lzo": _lzo,
}
