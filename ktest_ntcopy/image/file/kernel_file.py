# SPDX-License-Identifier: GPL-2.0-only
"""What the caller's ``--kernel=PATH`` is, or one line that says what is wrong with it."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file import bootable
from ktest_ntcopy.image.file.bootable import SUPPORTED as SUPPORTED
from ktest_ntcopy.image.file.config import (
    DamagedConfig,
    KernelConfig,
    config_beside,
    embedded_config,
    is_file,
)
from ktest_ntcopy.image.file.container import HEAD, Container, recognise
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.reader import FileSource, kind_of_file

_BANNER = b"Linux version "
_RELEASE = re.compile(_BANNER + rb"(\d+\.\d+[^\s(]{0,64}) \(")
_BZIMAGE = Path("arch/x86/boot/bzImage")


@dataclass(frozen=True, kw_only=True)
class KernelFile:
    """A kernel that can be looked at and, unless ``boot_problem`` says why not, booted."""

    path: Path  #: what a machine boots
    #: Of ``path``: "vmlinux", "bzImage", "Image" (raw, as on arm64), "zboot" (vmlinuz.efi)
    #: or "packed" (any of these, compressed).
    kind: str
    #: What :class:`~ktest_ntcopy.image.file.elf.Elf` opens to look inside: the ELF file with
    #: symbols that belongs to ``path``, or ``path`` itself, which is unpacked then.  None
    #: if neither can be read; ``image_problem`` says why.
    vmlinux: Path | None
    arch: str  #: uname -m
    release: str  #: uname -r
    config: KernelConfig | None
    build_dir: Path | None
    source_tree: Path | None
    identity: str  #: stands for the content: equal only for equal kernels
    boot_problem: str = ""  #: one line, empty if nothing is known against booting it
    image_problem: str = ""  #: one line, empty if the kernel can be looked into
    config_problem: str = ""  #: one line: what was found but not used; empty if nothing was
    bits: int = 64  #: of an address
    order: str = "<"  #: of bytes: "<" little-endian, ">" big-endian

    @property
    def version(self) -> str:
        """Major and minor: "6.12"."""
        found = re.match(r"\d+\.\d+", self.release)
        return found.group() if found else self.release


def open_kernel(path: Path) -> KernelFile:
    """Recognise a vmlinux, a bzImage, an Image, one of these compressed, or a build directory.

    Raises ConfigError with one line that names the path and the fault.  What can be looked
    at but not booted is no error: ``boot_problem`` says why.
    """
    path = path.absolute()
    try:
        return _open(path)
    except OSError as err:  # gone, or changed to something else, while it was looked at
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err


def _open(path: Path) -> KernelFile:
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        return _directory(path)
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}: is a {kind_of_file(mode)}, not a kernel file")
    container = _container(path)
    kernel = _vmlinux(path) if container.kind == "vmlinux" else _wrapped(path, container)
    problem = (
        bootable.arch_problem(path, kernel.arch)
        or kernel.boot_problem
        or bootable.kind_problem(path, kernel.kind)
        or bootable.config_problem(kernel.path, kernel.config)
    )
    return replace(kernel, boot_problem=problem)


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


def _container(path: Path) -> Container:
    file = FileSource(path)
    try:
        return recognise(file)
    finally:
        file.close()


def _directory(path: Path) -> KernelFile:
    if not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"{path}: cannot be read: Permission denied")
    image = path / "vmlinux"
    if not is_file(image):
        hint = "finish the build there" if is_file(path / ".config") else "no kernel build"
        if packed := sorted(p.name for p in path.glob("vmlinuz*"))[:3]:
            hint = f"give one of the kernels in it: {', '.join(packed)}"
        raise ConfigError(f"{path}: directory without a vmlinux ({hint})")
    for needed in (".config", "include/config/kernel.release"):
        if not is_file(path / needed):
            raise ConfigError(
                f"{path}: has a vmlinux but no {needed}, so it is no build directory; "
                "give the vmlinux itself or finish the build"
            )
    return open_kernel(image)


def _build_dir(folder: Path) -> Path | None:
    wanted = (".config", "include/config/kernel.release")
    return folder if all(is_file(folder / f) for f in wanted) else None


def _source_tree(build: Path | None) -> Path | None:
    if build is None:
        return None
    for tree in (build / "source", build):
        if is_file(tree / "Kbuild") and is_file(tree / "MAINTAINERS"):
            return tree.resolve()
    return None


def _vmlinux(path: Path) -> KernelFile:
    with Elf(path) as elf:
        release = _checked_release(elf)
        problem = ""
        boot, kind = path, "vmlinux"
        build = _build_dir(path.parent)
        if any(s.name.startswith(".uml.") for s in elf.sections):
            problem = bootable.uml_problem(path)
        elif not elf.has_pvh_entry:
            packed = path.parent / _BZIMAGE
            if build and is_file(packed) and _same_build(packed, path, elf):
                boot, kind = packed, "bzImage"
            else:
                problem = bootable.pvh_problem(path)
        config, config_problem = _config(path, release, elf)
        return KernelFile(
            path=boot,
            kind=kind,
            vmlinux=path,
            arch=elf.arch,
            release=release,
            config=config,
            build_dir=build,
            source_tree=_source_tree(build),
            identity=elf.build_id or _fingerprint(path),
            boot_problem=problem,
            config_problem=config_problem,
            bits=elf.bits,
            order=elf.order,
        )


def _checked_release(elf: Elf) -> str:
    if elf.kind not in ("ET_EXEC", "ET_DYN"):
        names = {"ET_REL": "an object file", "ET_CORE": "a core dump"}
        raise ConfigError(
            f"{elf.path}: is {names.get(elf.kind, elf.kind)}, not a linked kernel; "
            "give the vmlinux at the top of the build directory"
        )
    if release := _release(elf):
        return release
    what = {"vmlinux": "an ELF program", "Image": "an image"}.get(elf.container.kind, "packed")
    raise ConfigError(f"{elf.path}: is {what}, but no Linux kernel")


def _release(elf: Elf) -> str:
    """The release in the kernel's own banner, or empty if there is none."""
    for text in elf.occurrences(_BANNER, size=256):
        if found := _RELEASE.match(text):
            return found.group(1).decode("ascii", "replace")
    return ""


def _fingerprint(path: Path) -> str:
    import hashlib

    facts = path.stat()
    file = FileSource(path)
    try:
        head = file.read(0, min(HEAD, file.size))
    finally:
        file.close()
    text = f"{facts.st_size} {facts.st_mtime_ns} ".encode() + head
    return hashlib.sha256(text).hexdigest()[:40]


def _config(path: Path, release: str, elf: Elf | None) -> tuple[KernelConfig | None, str]:
    """The configuration inside, else beside; and what was found but not used."""
    problems = []
    try:
        if elf and (config := embedded_config(elf)):
            return config, ""
    except DamagedConfig as err:
        problems.append(f"{path}: the configuration in it (IKCONFIG) is damaged: {err}")
    near, refused = config_beside(path, release)
    return near, "; ".join([*problems, *filter(None, [refused])])


def _wrapped(path: Path, container: Container) -> KernelFile:
    """A kernel that is no ELF file itself."""
    build = _build_dir(path.parents[3]) if len(path.parents) > 3 else None
    release, problem = container.release, ""
    elf = inner = None
    try:
        vmlinux = _symbols_for(path, build, release) if release else None
        try:
            elf = Elf(vmlinux or path)
            release = release or _checked_release(elf)
            inner = elf.path
        except ConfigError as err:
            # A machine may boot it all the same.
            if container.kind != "bzImage":
                raise
            problem = str(err)
        config, config_problem = _config(path, release, elf)
        return KernelFile(
            path=path,
            kind=container.kind,
            vmlinux=inner,
            arch=container.arch or (elf.arch if elf else ""),
            release=release,
            config=config,
            build_dir=build,
            source_tree=_source_tree(build),
            identity=_fingerprint(path),
            image_problem=problem,
            config_problem=config_problem,
            bits=elf.bits if elf else 64,
            order=elf.order if elf else "<",
        )
    finally:
        if elf:
            elf.source.close()


def _symbols_for(path: Path, build: Path | None, release: str) -> Path | None:
    """The vmlinux that belongs to a bzImage, in its build directory or as Debian packs it."""
    places = [build / "vmlinux"] if build else []
    places += [
        Path("/usr/lib/debug/boot") / f"vmlinux-{release}",
        Path("/usr/lib/debug/lib/modules") / release / "vmlinux",
    ]
    for place in places:
        if is_file(place):
            with Elf(place) as elf:
                if _release(elf) == release and _same_build(path, place, elf):
                    return place
    return None


def _same_build(packed: Path, vmlinux: Path, elf: Elf) -> bool:
    """Whether a bzImage was made of a vmlinux.

    make writes the vmlinux first, so a later bzImage in the same build directory is of it.
    Otherwise it is unpacked and the build ids are compared, as far as there are any.
    """
    same_tree = packed.parts[:-4] == vmlinux.parts[:-1]
    if same_tree and packed.stat().st_mtime_ns >= vmlinux.stat().st_mtime_ns:
        return True
    try:
        with Elf(packed) as inner:
            return not inner.build_id or inner.build_id == elf.build_id
    except ConfigError:
        return same_tree  # cannot be told; the release is the same
