# SPDX-License-Identifier: GPL-2.0-only
"""Write an initramfs: a cpio archive in the "newc" format, the same bytes every time.

The archive is not compressed: QEMU hands it over in memory, so unpacking would
only cost time, and the kernel needs no decompressor.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.machine.base import AGENT

#: The format keeps sizes in eight hexadecimal digits.
_SIZE_MAX = 0xFFFFFFFF
_TRAILER = "TRAILER!!!"
_AGENT = AGENT.removeprefix("/")

#: Folders every guest has.
FOLDERS = ("dev", "proc", "sys", "tmp", "run", "root", "etc")
#: Folders the agent mounts on: a file below one would never be seen.
_COVERED = frozenset({"dev", "proc", "sys", "tmp", "host", "stage"})


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One member of the archive; ``name`` is relative to the root."""

    name: str
    mode: int  #: type and permission bits
    data: bytes = b""
    device: tuple[int, int] = (0, 0)  #: major, minor of a device node


def folder(name: str) -> Entry:
    return Entry(name=name, mode=stat.S_IFDIR | 0o755)


def program(name: str, data: bytes) -> Entry:
    return Entry(name=name, mode=stat.S_IFREG | 0o755, data=data)


def console() -> Entry:
    """``/dev/console``: the kernel opens it for the first process before any mount."""
    return Entry(name="dev/console", mode=stat.S_IFCHR | 0o600, device=(5, 1))


def _header(entry: Entry, number: int) -> bytes:
    name = entry.name.encode() + b"\0"
    if len(entry.data) > _SIZE_MAX:
        raise ConfigError(f"{entry.name}: {len(entry.data)} bytes do not fit an initramfs")
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (
        number,
        entry.mode,
        0,  # owner
        0,  # group
        links,
        0,  # time of change: none, for the same bytes every time
        len(entry.data),
        0,  # device the file lay on
        0,
        *entry.device,
        len(name),
        0,  # checksum, unused in this format
    )
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + name
    return head + bytes(-len(head) % 4)


def write(entries: Iterable[Entry], out: BinaryIO) -> None:
    """Write the archive.  Folders must come before what lies in them."""
    trailer = Entry(name=_TRAILER, mode=0)
    number = 0
    for number, entry in enumerate(entries, start=1):
        out.write(_header(entry, number))
        out.write(entry.data)
        out.write(bytes(-len(entry.data) % 4))
    out.write(_header(trailer, number + 1))
    # Some boot loaders round up to this; do it for them.
    out.write(bytes(-out.tell() % 512))


def _inside(guest_path: str) -> str:
    path = PurePosixPath(guest_path)
    if not path.is_absolute() or ".." in path.parts or path == PurePosixPath("/"):
        raise ConfigError(f"{guest_path!r}: a guest path is absolute and names a file")
    if path.parts[1] in _COVERED:
        raise ConfigError(f"{guest_path}: the guest mounts something on /{path.parts[1]}")
    return str(path.relative_to("/"))


def plan(agent: bytes, files: Mapping[str, Path]) -> list[Entry]:
    """Everything a guest's initramfs holds: folders, console, agent, the caller's files.

    ``files`` maps absolute guest paths to host files, which become executable
    if the host's are.  Raises ConfigError for a bad path or an unreadable file.
    """
    wanted = {_inside(guest): host for guest, host in files.items()}
    folders = dict.fromkeys(FOLDERS)
    for name in sorted(wanted):
        if name == _AGENT:
            raise ConfigError(f"{AGENT}: the guest agent has this path")
        for parent in reversed(PurePosixPath(name).parents[:-1]):
            folders.setdefault(str(parent))
    if clash := sorted(set(wanted) & set(folders)):
        raise ConfigError(f"/{clash[0]}: both a file and a folder of the guest")
    entries = [*map(folder, folders), console(), program(_AGENT, agent)]
    for name, host in sorted(wanted.items()):
        try:
            data = host.read_bytes()
            bits = host.stat().st_mode & 0o111
        except OSError as err:
            raise ConfigError(f"{host}: cannot put it into the guest: {err.strerror}") from err
        entries.append(Entry(name=name, mode=stat.S_IFREG | (0o755 if bits else 0o644), data=data))
    return entries
