# SPDX-License-Identifier: GPL-2.0-only
"""Memory of a chosen kind of page, and whether the kernel got a page back."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from conformance.protocols import Lacking
from conformance.sockets import Segment

#: In the order of their size, or nearly.
KINDS = ("base", "thp", "hugetlb")
_MAP_HUGETLB = 0x40000
_MADV_COLLAPSE = 25  # since Linux 6.1
_POOL = Path("/proc/sys/vm/nr_hugepages")
_THP_SIZE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_BASE_BLOCK = 256 * mmap.PAGESIZE
# Of /proc/self/pagemap and /proc/kpageflags.
_PRESENT, _FRAME, _ANON = 1 << 63, (1 << 55) - 1, 1 << 12
_PATIENCE = 5.0  # seconds
_POLL = 0.01


class Block:
    """Memory that is one page of its kind, or many base pages in a row."""

    def __init__(self, kind: str, area: mmap.mmap, start: int, size: int) -> None:
        self.kind = kind
        self.start = start  #: address, aligned to its size unless the pages are base pages
        self.size = size  #: bytes
        self._area: mmap.mmap | None = area

    def segment(self, offset: int, length: int) -> Segment:
        """Part of the block."""
        if not 0 <= offset <= offset + length <= self.size:
            raise ValueError(f"{length} bytes at {offset} are not within {self.size}")
        return Segment(self.start + offset, length, self)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Fill part of the block."""
        ctypes.memmove(self.segment(offset, len(data)).address, data, len(data))

    def frame(self, offset: int = 0) -> int:
        """Number of the page frame at an offset.  Raises Lacking if that is a secret."""
        entry = _word("/proc/self/pagemap", (self.start + offset) // mmap.PAGESIZE)
        if not entry & _PRESENT or not entry & _FRAME:
            raise Lacking("page frame numbers need CAP_SYS_ADMIN")
        return entry & _FRAME

    def unmap(self) -> None:
        """Give the memory back, as far as this process is concerned."""
        if self._area is not None:
            self._area.close()
            self._area = None


@contextlib.contextmanager
def block(kind: str) -> Iterator[Block]:
    """Memory of that kind, filled with zeros.  Raises Lacking."""
    with _pool() if kind == "hugetlb" else contextlib.nullcontext():
        made = {"base": _base, "thp": _thp, "hugetlb": _hugetlb}[kind]()
        try:
            yield made
        finally:
            made.unmap()


def _address(area: mmap.mmap) -> int:
    # A ctypes object that lives on would keep the mapping from being closed.
    return ctypes.addressof(ctypes.c_char.from_buffer(area))


def _base() -> Block:
    area = mmap.mmap(-1, _BASE_BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # EINVAL: the kernel has no huge pages
        area.madvise(mmap.MADV_NOHUGEPAGE)
    area.write(bytes(_BASE_BLOCK))
    return Block("base", area, _address(area), _BASE_BLOCK)


def _thp() -> Block:
    if not _THP_SIZE.exists():
        raise Lacking("CONFIG_TRANSPARENT_HUGEPAGE is not set")
    size = int(_THP_SIZE.read_text())
    area = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    offset = -_address(area) % size
    # Both calls may fail where the other one is enough: what became of it counts.
    for advice in (mmap.MADV_HUGEPAGE, _MADV_COLLAPSE):
        with contextlib.suppress(OSError):
            area.madvise(advice, offset, size)
        area[offset : offset + size] = bytes(size)
    start = _address(area) + offset
    if not _is_huge(start):
        area.close()
        raise Lacking("the kernel gave no transparent huge page")
    return Block("thp", area, start, size)


def _is_huge(address: int) -> bool:
    """Whether the mapping at an address has transparent huge pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word, *rest = line.split()
        if not word.endswith(":"):
            low, high = (int(part, 16) for part in word.split("-"))
            inside = low <= address < high
        elif inside and word == "AnonHugePages:":
            return int(rest[0]) > 0
    return False


def _hugetlb() -> Block:
    size = _meminfo("Hugepagesize") * 1024
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_HUGETLB
    try:
        area = mmap.mmap(-1, size, flags=flags)
    except OSError as err:
        raise Lacking(f"the pool has no huge page ({err.strerror})") from err
    area[:] = bytes(size)
    return Block("hugetlb", area, _address(area), size)


@contextlib.contextmanager
def _pool() -> Iterator[None]:
    """See to it that the pool has a free huge page; others that ask here wait."""
    if _meminfo("HugePages_Free") < 0:
        raise Lacking("CONFIG_HUGETLBFS is not set")
    with _POOL.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = int(_POOL.read_text())
        if _meminfo("HugePages_Free") > 0:
            yield
            return
        try:
            _POOL.write_text(str(before + 1))
        except PermissionError as err:
            raise Lacking(f"no free huge page, and {_POOL} may not be written") from err
        try:
            yield
        finally:
            _POOL.write_text(str(before))


def free_huge_pages() -> int:
    """Huge pages of the pool that nobody has."""
    return _meminfo("HugePages_Free")


def _meminfo(name: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        found, _, value = line.partition(":")
        if found == name:
            return int(value.split()[0])
    return -1


def _word(path: str, index: int) -> int:
    try:
        with Path(path).open("rb", buffering=0) as file:
            return int(struct.unpack("=Q", os.pread(file.fileno(), 8, index * 8))[0])
    except PermissionError as err:
        raise Lacking(f"{path} needs CAP_SYS_ADMIN") from err
    except FileNotFoundError as err:
        raise Lacking("CONFIG_PROC_PAGE_MONITOR is not set") from err


def _lingers(frame: int) -> bool:
    """Whether somebody holds an anonymous page that nobody has mapped."""
    return bool(_word("/proc/kpageflags", frame) & _ANON) and not _word("/proc/kpagecount", frame)


def still_held(frames: list[int]) -> list[int]:
    """Those page frames that the kernel has not got back within 5 seconds."""
    end = time.monotonic() + _PATIENCE
    while (left := [f for f in frames if _lingers(f)]) and time.monotonic() < end:
        time.sleep(_POLL)
    return left


@contextlib.contextmanager
def one_cpu() -> Iterator[None]:
    """Stay on one CPU: each keeps a list of pages that it looks at later, and holds them."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
