# SPDX-License-Identifier: GPL-2.0-only
"""What the caller's ``--kernel=PATH`` is, or one line that says what is wrong with it."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import stat
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.config import (
    KernelConfig,
    config_beside,
    embedded_config,
    packed_config,
    read_config,
)
from ktest_ntcopy.image.elf import Elf

#: Architectures that a machine of this project can boot.
SUPPORTED = ("x86_64",)

_BANNER = re.compile(rb"Linux version (\d+\.\d+[^\s(]*) \(")
_HEAD = 1 << 16  # bytes; every header we look at lies within
_BZIMAGE = Path("arch/x86/boot/bzImage")

# Kernels of other architectures that are no ELF files: offset, magic, uname -m.
_FOREIGN = ((0x38, b"ARM\x64", "aarch64"), (0x38, b"RSC\x05", "riscv64"))
_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}


@dataclass(frozen=True, kw_only=True)
class KernelFile:
    """A kernel that can be looked at and, unless ``boot_problem`` says why not, booted."""

    path: Path  #: what a machine boots
    kind: str  #: "vmlinux" or "bzImage", of ``path``
    vmlinux: Path | None  #: the ELF file with symbols, if known
    arch: str  #: uname -m
    release: str  #: uname -r
    config: KernelConfig | None
    build_dir: Path | None
    source_tree: Path | None
    identity: str  #: stands for the content: equal only for equal kernels
    boot_problem: str = ""  #: one line, empty if nothing is known against booting it

    @property
    def version(self) -> str:
        """Major and minor: "6.12"."""
        found = re.match(r"\d+\.\d+", self.release)
        return found.group() if found else self.release


def open_kernel(path: Path) -> KernelFile:
    """Recognise a vmlinux, a bzImage or a build directory.

    Raises ConfigError with one line that names the path and the fault.
    """
    path = path.absolute()
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        return _directory(path)
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}: is a {_kind(mode)}, not a kernel file")
    head = _head(path)
    if not head:
        raise ConfigError(f"{path}: is empty; build or copy the kernel again")
    if head[:4] == b"\x7fELF":
        kernel = _vmlinux(path)
    elif head[0x202:0x206] == b"HdrS":
        kernel = _bzimage(path, head)
    else:
        raise ConfigError(f"{path}: {_not_a_kernel(head)}")
    if kernel.arch not in SUPPORTED:
        raise ConfigError(_wrong_arch(path, kernel.arch))
    return replace(kernel, boot_problem=kernel.boot_problem or _config_problem(kernel))


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        what = "dangling symbolic link" if path.is_symlink() else "no such file or directory"
        raise ConfigError(f"{path}: {what}; give a vmlinux, a bzImage or a build directory") from (
            None
        )
    except (OSError, ValueError) as err:
        said = getattr(err, "strerror", None) or err
        raise ConfigError(f"{path}: cannot be read: {said}") from err


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISBLK, "block device"),
        (stat.S_ISCHR, "character device"),
    ):
        if test(mode):
            return name
    return "special file"


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err


def _not_a_kernel(head: bytes) -> str:
    for offset, magic, arch in _FOREIGN:
        if head[offset : offset + len(magic)] == magic:
            return f"is an {arch} kernel, but the machine runs {' or '.join(SUPPORTED)}"
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            return f"is {name}-compressed data; unpack it first"
    if b"\x7fELF".startswith(head[:4]) or len(head) < 0x206:
        return f"is truncated or no kernel ({len(head)} bytes)"
    return "is neither an ELF file (vmlinux) nor a bzImage"


def _wrong_arch(path: Path, arch: str) -> str:
    return (
        f"{path}: is built for {arch}, but the machine runs {' or '.join(SUPPORTED)}; "
        "build the kernel for that architecture"
    )


def _directory(path: Path) -> KernelFile:
    if not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"{path}: cannot be read: Permission denied")
    image = path / "vmlinux"
    if not image.exists():
        hint = "finish the build there" if (path / ".config").is_file() else "no kernel build"
        raise ConfigError(f"{path}: directory without a vmlinux ({hint})")
    for needed in (".config", "include/config/kernel.release"):
        if not (path / needed).is_file():
            raise ConfigError(
                f"{path}: has a vmlinux but no {needed}, so it is no build directory; "
                "give the vmlinux itself or finish the build"
            )
    return open_kernel(image)


def _build_dir(folder: Path) -> Path | None:
    wanted = (".config", "include/config/kernel.release")
    return folder if all((folder / f).is_file() for f in wanted) else None


def _source_tree(build: Path | None) -> Path | None:
    if build is None:
        return None
    for tree in (build / "source", build):
        if (tree / "Kbuild").is_file() and (tree / "MAINTAINERS").is_file():
            return tree.resolve()
    return None


def _vmlinux(path: Path) -> KernelFile:
    with Elf(path) as elf:
        if elf.kind not in ("ET_EXEC", "ET_DYN"):
            names = {"ET_REL": "an object file", "ET_CORE": "a core dump"}
            raise ConfigError(
                f"{path}: is {names.get(elf.kind, elf.kind)}, not a linked kernel; "
                "give the vmlinux at the top of the build directory"
            )
        if elf.arch not in SUPPORTED:
            raise ConfigError(_wrong_arch(path, elf.arch))
        release = _release(elf)
        if not release:
            raise ConfigError(f"{path}: is an ELF program, but no Linux kernel")
        pvh = elf.has_pvh_entry
        config = embedded_config(elf)
        identity = elf.build_id or _fingerprint(path)
        arch = elf.arch
    build = _build_dir(path.parent)
    boot, kind, problem = path, "vmlinux", ""
    if not pvh:
        packed = path.parent / _BZIMAGE
        if build and packed.is_file():
            boot, kind = packed, "bzImage"
        else:
            problem = (
                f"{path}: has no PVH entry, without which QEMU cannot start a vmlinux; "
                "set CONFIG_PVH=y or give the bzImage"
            )
    return KernelFile(
        path=boot,
        kind=kind,
        vmlinux=path,
        arch=arch,
        release=release,
        config=config or _config_near(path, release),
        build_dir=build,
        source_tree=_source_tree(build),
        identity=identity,
        boot_problem=problem,
    )


def _release(elf: Elf) -> str:
    """The release in the kernel's own banner, or empty if there is none."""
    section = elf.section(".rodata")
    if section and (found := _BANNER.search(elf.read(section))):
        return found.group(1).decode("ascii", "replace")
    with (
        elf.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        # The match refers to the mapping, so it is used before that is closed.
        found = _BANNER.search(mapped)
        return found.group(1).decode("ascii", "replace") if found else ""


def _fingerprint(path: Path) -> str:
    facts = path.stat()
    text = f"{facts.st_size} {facts.st_mtime_ns} ".encode() + _head(path)
    return hashlib.sha256(text).hexdigest()[:40]


def _config_near(path: Path, release: str) -> KernelConfig | None:
    found = config_beside(path, release)
    return read_config(found) if found else None


def _bzimage(path: Path, head: bytes) -> KernelFile:
    sectors = head[0x1F1] or 4
    (paragraphs,) = struct.unpack_from("<I", head, 0x1F4)
    claimed = (sectors + 1) * 512 + paragraphs * 16
    if (size := path.stat().st_size) < claimed:
        raise ConfigError(
            f"{path}: truncated: the boot header speaks of {claimed} bytes, the file has "
            f"{size}; copy or build it again"
        )
    protocol, text_at, flags = (
        struct.unpack_from("<H", head, at)[0] for at in (0x206, 0x20E, 0x236)
    )
    payload_at, payload_size = struct.unpack_from("<II", head, 0x248)
    text = head[text_at + 0x200 : text_at + 0x200 + 256].split(b"\0")[0].split(b" ")[0]
    release = text.decode("ascii", "replace") if text_at else ""
    if not re.match(r"\d+\.\d+", release):
        raise ConfigError(f"{path}: boot header names no kernel release; build it again")
    build = _build_dir(path.parents[3]) if len(path.parents) > 3 else None
    return KernelFile(
        path=path,
        kind="bzImage",
        vmlinux=_symbols_for(build, release),
        arch="x86_64" if protocol >= 0x20C and flags & 1 else "i686",
        release=release,
        config=_config_near(path, release)
        or packed_config(path, start=(sectors + 1) * 512 + payload_at, size=payload_size),
        build_dir=build,
        source_tree=_source_tree(build),
        identity=_fingerprint(path),
    )


def _symbols_for(build: Path | None, release: str) -> Path | None:
    """The vmlinux that belongs to a bzImage, in its build directory or as Debian packs it."""
    places = [build / "vmlinux"] if build else []
    places += [
        Path("/usr/lib/debug/boot") / f"vmlinux-{release}",
        Path("/usr/lib/debug/lib/modules") / release / "vmlinux",
    ]
    for place in places:
        if place.is_file():
            with Elf(place) as elf:
                if _release(elf) == release:
                    return place
    return None


#: Without these built in, the guest cannot start the agent or answer.
_NEEDED_TO_BOOT = {
    "CONFIG_BLK_DEV_INITRD": "it cannot unpack the initramfs",
    "CONFIG_BINFMT_ELF": "it cannot start the agent",
    "CONFIG_VIRTIO_PCI": "it cannot reach the virtio-serial ports",
    "CONFIG_VIRTIO_CONSOLE": "it cannot reach the virtio-serial ports",
}


def _config_problem(kernel: KernelFile) -> str:
    """What the configuration says against booting; nothing if it is not known."""
    if kernel.config is None:
        return ""
    for name, effect in _NEEDED_TO_BOOT.items():
        value = kernel.config[name]
        if value != "y":
            state = "a module" if value == "m" else "not set"
            return (
                f"{kernel.path}: {name} is {state} ({kernel.config.source}), so {effect}; "
                f"build with {name}=y"
            )
    return ""
