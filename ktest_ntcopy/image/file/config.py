# SPDX-License-Identifier: GPL-2.0-only
"""The configuration a kernel was built with: inside it, else beside it, never by guess."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.reader import FileSource

_START, _END = b"IKCFG_ST", b"IKCFG_ED"
_LIMIT = 8 << 20  # bytes; a full configuration is about 300 KiB
_TRIES = 16  # places with the mark; reading 1 MiB at each
_PACKED_LIMIT = 1 << 20  # bytes; packed it is about 60 KiB
_LINE = re.compile(r"^(CONFIG_[A-Za-z0-9_]+)=(.*)$", re.MULTILINE)
_TITLE = re.compile(r"^# Linux/\S+ (\S+) Kernel Configuration$", re.MULTILINE)
_TITLE_WITHIN = 1024  # characters from a file's begin


class DamagedConfig(ValueError):
    """The configuration inside a kernel cannot be unpacked; one line says why."""


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
        import hashlib

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
    """The configuration that CONFIG_IKCONFIG embeds; None if ``data`` have none.

    Raises DamagedConfig if there is one that cannot be unpacked.
    """
    start = data.find(_START)
    if start < 0:
        return None
    end = data.find(_END, start)
    packed = data[start + len(_START) : end if end >= 0 else len(data)]
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(packed, _LIMIT)
    except zlib.error as err:
        raise DamagedConfig(str(err)) from err
    if not unpacker.eof:
        what = "more than 8 MiB" if len(text) >= _LIMIT else "it ends early"
        raise DamagedConfig(what)
    return text.decode("utf-8", "replace")


def embedded_config(elf: Elf) -> KernelConfig | None:
    """The configuration inside an open kernel, if it was built with CONFIG_IKCONFIG.

    Raises DamagedConfig if it is there but cannot be unpacked.  The mark alone may also be
    in the text of a program that looks for it, so the first that can be unpacked counts.
    """
    damage: DamagedConfig | None = None
    for data in islice(elf.occurrences(_START, size=_PACKED_LIMIT), _TRIES):
        try:
            text = unpack_ikconfig(data)
        except DamagedConfig as err:
            damage = damage or err
            continue
        if text is not None:
            return parse_config(text, f"IKCONFIG in {elf.path}")
    if damage:
        raise damage
    return None


def config_beside(path: Path, release: str) -> tuple[KernelConfig | None, str]:
    """The configuration that builds and distributions put beside a kernel.

    Taken only if the file's name, ``include/config/kernel.release`` or its first lines say
    that it is of this release.  Gives the configuration or None, and one line for each file
    that was refused, joined by "; ".  Raises ConfigError for one that cannot be read.
    """
    refused = []
    for candidate, named in _candidates(path, release):
        text = text_of(candidate)
        if not named and (why := _mismatch(candidate, text, release)):
            refused.append(f"{candidate}: not used: {why}")
            continue
        return parse_config(text, str(candidate)), "; ".join(refused)
    return None, "; ".join(refused)


def _candidates(path: Path, release: str) -> Iterator[tuple[Path, bool]]:
    """Files to look at, the best first, and whether the name alone proves the match."""
    folders = [path.parent]
    if path.parent.name == "boot" and len(path.parts) > 4:
        folders.append(path.parents[3])  # arch/x86/boot/bzImage of a build directory
    for folder in folders:
        if release:
            yield from ((p, True) for p in [folder / f"config-{release}"] if is_file(p))
            if folder.name == release:  # /lib/modules/RELEASE of some distributions
                yield from ((p, True) for p in [folder / "config"] if is_file(p))
        options, used = folder / ".config", folder / "include/config/auto.conf"
        if is_file(options) and is_file(used) and _edited(options, used, path):
            options, used = used, options
        yield from ((p, False) for p in (options, used) if is_file(p))


def _edited(options: Path, used: Path, image: Path) -> bool:
    """Whether .config was changed after the build; auto.conf is what the build read."""
    built = image.stat().st_mtime_ns
    return used.stat().st_mtime_ns <= built < options.stat().st_mtime_ns


def is_file(path: Path) -> bool:
    """Like Path.is_file, but what cannot be reached is no file either."""
    try:
        return path.is_file()
    except OSError:
        return False


def _mismatch(candidate: Path, text: str, release: str) -> str:
    """Why the file is not of this release, or empty."""
    build = candidate.parents[2] if candidate.name == "auto.conf" else candidate.parent
    note = build / "include/config/kernel.release"
    if is_file(note):
        of = text_of(note).strip()
        if of != release:
            return f"its build is of Linux {of[:64]} ({note.name}), the kernel is {release}"
        return ""
    found = _TITLE.search(text[:_TITLE_WITHIN])
    if not found:
        return f"it does not say that it is of Linux {release}"
    version = found.group(1)
    if release == version or re.match(re.escape(version) + r"[^\d.]", release):
        return ""
    return f"it is of Linux {version[:64]}, the kernel is {release}"


def read_config(path: Path) -> KernelConfig:
    """Read a configuration file.  Raises ConfigError."""
    return parse_config(text_of(path), str(path))


def text_of(path: Path) -> str:
    """What a configuration file says.  Raises ConfigError, also for a FIFO or a huge file."""
    file = FileSource(path)
    try:
        if file.size > _LIMIT:
            raise ConfigError(f"{path}: is no kernel configuration: {file.size >> 20} MiB")
        return file.read(0, file.size).decode("utf-8", "replace")
    finally:
        file.close()
