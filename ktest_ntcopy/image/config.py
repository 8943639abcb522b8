# SPDX-License-Identifier: GPL-2.0-only
"""The configuration a kernel was built with."""

from __future__ import annotations

import bz2
import hashlib
import lzma
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.elf import Elf

_START, _END = b"IKCFG_ST", b"IKCFG_ED"
_KERNEL_LIMIT = 256 << 20  # bytes of an unpacked kernel
_LIMIT = 8 << 20  # bytes; a full configuration is about 300 KiB
_LINE = re.compile(r"^(CONFIG_[A-Za-z0-9_]+)=(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class KernelConfig:
    """Options that are set, by full name (``CONFIG_NET``), and where they were read."""

    values: Mapping[str, str]
    source: str  #: for people: a path, or "IKCONFIG in PATH"

    def __getitem__(self, name: str) -> str:
        """``y``, ``m``, a number, a string without quotes, or ``n`` if it is not set."""
        return self.values.get(name, "n")

    @cached_property
    def sha256(self) -> str:
        """Hash of the options that are set; comments and order do not matter."""
        lines = "".join(f"{k}={v}\n" for k, v in sorted(self.values.items()))
        return hashlib.sha256(lines.encode()).hexdigest()


def parse_config(text: str, source: str = "") -> KernelConfig:
    """Read ``.config`` or ``auto.conf`` text."""
    values = {}
    for name, value in _LINE.findall(text):
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        values[name] = value
    return KernelConfig(values, source)


def unpack_ikconfig(data: bytes) -> str | None:
    """The configuration that CONFIG_IKCONFIG embeds; None if ``data`` have none."""
    start = data.find(_START)
    if start < 0:
        return None
    end = data.find(_END, start)
    packed = data[start + len(_START) : end if end >= 0 else len(data)]
    try:
        text = zlib.decompressobj(wbits=31).decompress(packed, _LIMIT)
    except zlib.error:
        return None
    return text.decode("utf-8", "replace")


def unpack_payload(packed: bytes) -> bytes | None:
    """The kernel inside a bzImage; None if Python cannot unpack it (zstd, lz4, lzo)."""
    try:
        if packed.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(wbits=31).decompress(packed, _KERNEL_LIMIT)
        if packed.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
            return lzma.LZMADecompressor().decompress(packed, _KERNEL_LIMIT)
        if packed.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(packed, _KERNEL_LIMIT)
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        pass
    return None


def packed_config(path: Path, *, start: int, size: int) -> KernelConfig | None:
    """The configuration inside a bzImage whose compressed kernel lies at ``start``.

    None without CONFIG_IKCONFIG, or if it cannot be unpacked.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            image = unpack_payload(file.read(min(size, _KERNEL_LIMIT)))
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err
    text = unpack_ikconfig(image) if image else None
    return None if text is None else parse_config(text, f"IKCONFIG in {path}")


def embedded_config(elf: Elf) -> KernelConfig | None:
    """The configuration inside an open vmlinux, if it was built with CONFIG_IKCONFIG."""
    section = elf.section(".rodata")
    text = unpack_ikconfig(elf.read(section)) if section else None
    return None if text is None else parse_config(text, f"IKCONFIG in {elf.path}")


def config_beside(path: Path, release: str) -> Path | None:
    """The configuration file that lies beside a kernel, as builds and distributions put it."""
    folders = [path.parent]
    if path.parent.name == "boot":  # arch/x86/boot/bzImage of a build directory
        folders.append(path.parent.parents[2] if len(path.parts) > 4 else path.parent)
    for folder in folders:
        names = [f"config-{release}"] if release else []
        for name in (*names, ".config", "include/config/auto.conf"):
            if (folder / name).is_file():
                return folder / name
    return None


def read_config(path: Path) -> KernelConfig:
    """Read a configuration file.  Raises ConfigError."""
    try:
        return parse_config(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err
