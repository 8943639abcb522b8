# SPDX-License-Identifier: GPL-2.0-only
"""What is known against booting a kernel, before any machine is started."""

from __future__ import annotations

from pathlib import Path

from ktest_ntcopy.image.file.config import KernelConfig

#: Architectures that a machine of this project can boot.
SUPPORTED = ("x86_64",)

#: Without these built in, the guest cannot start the agent or answer.
_NEEDED = {
    "CONFIG_BLK_DEV_INITRD": "it cannot unpack the initramfs",
    "CONFIG_BINFMT_ELF": "it cannot start the agent",
    "CONFIG_VIRTIO_PCI": "it cannot reach the virtio-serial ports",
    "CONFIG_VIRTIO_CONSOLE": "it cannot reach the virtio-serial ports",
}


def arch_problem(path: Path, arch: str) -> str:
    """Empty if a machine of this project has the architecture."""
    if arch in SUPPORTED:
        return ""
    return (
        f"{path}: is built for {arch}, but the machine runs {' or '.join(SUPPORTED)}; "
        "it can be looked at but not booted"
    )


def kind_problem(path: Path, kind: str) -> str:
    """Empty for the kinds of files that QEMU starts."""
    if kind in ("vmlinux", "bzImage"):
        return ""
    if kind == "packed":
        return f"{path}: is compressed, and QEMU starts no such kernel; unpack it"
    return f"{path}: is an {kind} file, which QEMU cannot start on {' or '.join(SUPPORTED)}"


def uml_problem(path: Path) -> str:
    """Of a kernel that is a program for user space."""
    return (
        f"{path}: is a User Mode Linux program, which QEMU cannot start; "
        "it can be looked at but not booted here"
    )


def pvh_problem(path: Path) -> str:
    """Of a vmlinux that QEMU cannot start and that has no bzImage of the same build."""
    return (
        f"{path}: has no PVH entry, without which QEMU cannot start a vmlinux; "
        "set CONFIG_PVH=y or give the bzImage"
    )


def config_problem(path: Path, config: KernelConfig | None) -> str:
    """What the configuration says against booting; nothing if it is not known."""
    if config is None:
        return ""
    for name, effect in _NEEDED.items():
        value = config[name]
        if value != "y":
            state = "a module" if value == "m" else "not set"
            return f"{path}: {name} is {state} ({config.source}), so {effect}; build with {name}=y"
    return ""
