# SPDX-License-Identifier: GPL-2.0-only
"""What wraps a kernel: boot sectors, EFI stubs, compressed files, and how to get inside."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.reader import FileSource, MemorySource, Source
from ktest_ntcopy.image.file.unpack import UnpackError, packer_of, pieces

#: Bytes of an unpacked kernel that we hold in memory.  Distributions' have 40 to 80 MiB.
KERNEL_LIMIT = 160 << 20
HEAD = 1 << 16  #: bytes; every header that is looked at lies within

#: Magic number of a raw Image -> uname -m.
_FLAT = {b"ARM\x64": "aarch64", b"RSC\x05": "riscv64"}
_LAYERS = 4  # e.g. a compressed file with a bzImage with an ELF file, and one for luck
_REST = 16 << 20  # bytes unpacked after the kernel to get to the checksum; x86 needs 2 MiB
_HINT = "give a vmlinux, a bzImage, an arm64 Image or a build directory"


@dataclass(frozen=True, kw_only=True)
class Container:
    """The outermost layer of a kernel file."""

    kind: str  #: "vmlinux" (ELF), "Image" (raw), "bzImage", "zboot", or "packed"
    arch: str = ""  #: uname -m, empty if only the inside tells
    release: str = ""  #: uname -r, as far as the header says
    packer: str = ""  #: "gzip", "xz"…; empty for what is not packed
    start: int = 0  #: of the packed kernel, in bytes
    size: int = 0  #: of the packed kernel, in bytes


def recognise(source: Source) -> Container:
    """The outermost layer.  Raises ConfigError with one line if it holds no kernel."""
    head = source.read(0, min(HEAD, source.size))
    if not head:
        raise ConfigError(f"{source.path}: is empty; build or copy the kernel again")
    kind = _kind(head)
    if kind == "bzImage":
        return _bzimage(source, head)
    if kind == "zboot":
        return _zboot(source, head)
    if kind == "packed":
        return Container(kind=kind, packer=packer_of(head) or "", size=source.size)
    if not kind:
        raise ConfigError(f"{source.path}: {_not_a_kernel(head)}")
    return Container(kind=kind, arch=_FLAT.get(head[0x38:0x3C], "") if kind == "Image" else "")


def _kind(head: bytes) -> str:
    if head[:4] == b"\x7fELF":
        return "vmlinux"
    if head[0x202:0x206] == b"HdrS":
        return "bzImage"
    if head[:2] == b"MZ" and head[4:8] == b"zimg":
        return "zboot"
    if head[0x38:0x3C] in _FLAT:
        return "Image"
    return "packed" if packer_of(head) else ""


def _bzimage(source: Source, head: bytes) -> Container:
    if len(head) < 0x250:
        raise ConfigError(f"{source.path}: truncated within the boot header; copy it again")
    sectors = head[0x1F1] or 4
    (paragraphs,) = struct.unpack_from("<I", head, 0x1F4)
    claimed = (sectors + 1) * 512 + paragraphs * 16
    if source.size < claimed:
        raise ConfigError(
            f"{source.path}: truncated: the boot header speaks of {claimed} bytes, the file has "
            f"{source.size}; copy or build it again"
        )
    protocol, text_at, flags = (
        struct.unpack_from("<H", head, at)[0] for at in (0x206, 0x20E, 0x236)
    )
    payload_at, size = struct.unpack_from("<II", head, 0x248)
    text = head[text_at + 0x200 : text_at + 0x200 + 256].split(b"\0")[0].split(b" ")[0]
    release = text.decode("ascii", "replace") if text_at else ""
    if not re.match(r"\d+\.\d+", release) or not release.isprintable():
        raise ConfigError(f"{source.path}: boot header names no kernel release; build it again")
    start = (sectors + 1) * 512 + payload_at
    size = max(0, min(size, source.size - start))
    return Container(
        kind="bzImage",
        arch="x86_64" if protocol >= 0x20C and flags & 1 else "i686",
        release=release,
        packer=packer_of(source.read(start, min(size, 16)) if size else b"") or "",
        start=start,
        size=size,
    )


def _zboot(source: Source, head: bytes) -> Container:
    """The EFI program that CONFIG_EFI_ZBOOT makes (vmlinuz.efi)."""
    if len(head) < 64:
        raise ConfigError(f"{source.path}: truncated within the EFI header; copy it again")
    start, size = struct.unpack_from("<II", head, 8)
    name = head[24:56].split(b"\0")[0].decode("ascii", "replace")
    # The header's name for a packer is that of the build's tool.
    packer = {"gzip": "gzip", "zstd": "zstd", "zstd22": "zstd", "xzkern": "xz"}.get(name, name)
    if start + size > source.size or not start:
        raise ConfigError(
            f"{source.path}: truncated: the header speaks of {start + size} bytes, the file has "
            f"{source.size}; copy or build it again"
        )
    seen = packer_of(source.read(start, min(size, 16)))
    return Container(kind="zboot", packer=seen or packer, start=start, size=size)


def _not_a_kernel(head: bytes) -> str:
    if head.startswith(b"!<arch>\ndebian-binary"):
        return (
            "is a Debian package; unpack it (dpkg-deb -x PACKAGE DIR) and give DIR/boot/vmlinuz-… "
            "or, from a -dbg package, DIR/usr/lib/debug/boot/vmlinux-…"
        )
    if head.startswith(b"!<arch>\n"):
        return "is an archive, not a linked kernel; give the vmlinux"
    if head.startswith(b"\xed\xab\xee\xdb"):
        return "is an RPM package; unpack it (rpm2cpio PACKAGE | cpio -id) and give its vmlinuz"
    if head[0x24:0x28] in (b"\x18\x28\x6f\x01", b"\x01\x6f\x28\x18"):
        return "is a 32-bit ARM zImage, which is not unpacked here; give the vmlinux of its build"
    if head.startswith(b"\x27\x05\x19\x56"):
        return "is a U-Boot image; give the vmlinux or the Image that it was made of"
    if head.startswith(b"\xd0\x0d\xfe\xed"):
        return "is a device tree or a FIT image; give the vmlinux or the Image that is in it"
    if head.startswith(b"07070"):
        return f"is a cpio archive (an initramfs?), not a kernel; {_HINT}"
    if head.startswith(b"MZ"):
        return (
            "is an EFI program, but no kernel (a unified kernel image? take the kernel out: "
            "objcopy -O binary --only-section=.linux FILE vmlinuz)"
        )
    if b"\x7fELF".startswith(head[:4]) or len(head) < 0x206:
        return f"is truncated or no kernel ({len(head)} bytes)"
    return f"is neither an ELF file (vmlinux) nor a bzImage; {_HINT}"


def open_source(path: Path) -> tuple[Source, Container]:
    """The ELF file or raw image that is inside a file, and what the file itself is.

    Raises ConfigError with one line if there is none or if it cannot be unpacked.
    """
    outer = source = FileSource(path)
    try:
        first = layer = recognise(source)
        if layer.kind in ("vmlinux", "Image"):
            return source, first
        inner = _Cache.get(outer)
        if inner is None:
            inner = _inside(source, layer)
            _Cache.put(outer, inner)
    except BaseException:
        outer.close()
        raise
    outer.close()
    return inner, first


def _inside(source: Source, layer: Container) -> MemorySource:
    inner = source
    for _ in range(_LAYERS):
        inner = MemorySource(source.path, _unpacked(inner, layer))
        layer = recognise(inner)
        if layer.kind in ("vmlinux", "Image"):
            return inner
    raise ConfigError(f"{source.path}: is packed more than {_LAYERS} times; unpack it first")


def _unpacked(source: Source, layer: Container) -> bytearray:
    what = f"{layer.packer}-compressed kernel" if layer.packer else "kernel"
    if not layer.packer:
        raise ConfigError(
            f"{source.path}: the kernel in this {layer.kind} is packed in a way that is not "
            "known here; give its vmlinux"
        )
    out = bytearray()
    limit, rest = KERNEL_LIMIT + 1, 0

    def read(at: int, size: int) -> bytes:
        return source.read(layer.start + at, size)

    try:
        for piece in pieces(layer.packer, read, layer.size):
            if len(out) >= limit:
                rest += len(piece)
                if len(out) > KERNEL_LIMIT or rest > _REST:
                    break
                continue
            seen = len(out)
            out += piece
            if seen < HEAD <= len(out):
                limit = min(limit, _end(source.path, bytes(out[:HEAD])))
    except UnpackError as err:
        raise ConfigError(
            f"{source.path}: the {what} cannot be unpacked: {err}; copy or build it again"
        ) from err
    if len(out) > KERNEL_LIMIT:
        raise ConfigError(
            f"{source.path}: the {what} unpacks to more than {KERNEL_LIMIT >> 20} MiB; "
            "unpack it and give the vmlinux"
        )
    return out


def _end(path: Path, head: bytes) -> int:
    """How much has to be unpacked, as the first bytes tell; stops bombs at their first bytes."""
    if head[:4] == b"\x7fELF":
        order = ">" if head[5] == 2 else "<"
        if head[4] == 2:
            at, size, count = struct.unpack_from(order + "Q10xHH", head, 40)
        else:
            at, size, count = struct.unpack_from(order + "I10xHH", head, 32)
        # The tables' end is the file's end; the relocations that x86 appends are not needed.
        return at + size * count if at and count else KERNEL_LIMIT + 1
    if not _kind(head):
        raise ConfigError(f"{path}: unpacked, it {_not_a_kernel(head)}")
    return KERNEL_LIMIT + 1


class _Cache:
    """The last unpacked kernel, so that several questions about a file unpack it once."""

    _key: tuple[int, ...] = ()
    _inner: MemorySource | None = None

    @staticmethod
    def _facts(source: FileSource) -> tuple[int, ...]:
        facts = source.path.stat()
        return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)

    @classmethod
    def get(cls, source: FileSource) -> MemorySource | None:
        if cls._inner and cls._key == cls._facts(source) and cls._inner.path == source.path:
            return cls._inner
        return None

    @classmethod
    def put(cls, source: FileSource, inner: MemorySource) -> None:
        cls._key, cls._inner = cls._facts(source), inner
