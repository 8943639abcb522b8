# SPDX-License-Identifier: GPL-2.0-only
"""The cpio writer, read back by a reader that knows only the format."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.machine import initramfs
from ktest_ntcopy.machine.initramfs import Entry


def read_back(data: bytes) -> list[tuple[str, int, bytes, tuple[int, int]]]:
    """Members up to the trailer: name, mode, content, device."""
    members: list[tuple[str, int, bytes, tuple[int, int]]] = []
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, device, name_size = fields[1], fields[6], (fields[9], fields[10]), fields[11]
        name = data[at + 110 : at + 110 + name_size]
        assert name[-1] == 0
        at += 110 + name_size
        at += -at % 4
        content = data[at : at + size]
        assert len(content) == size
        at += size
        at += -at % 4
        if name == b"TRAILER!!!\0":
            assert not data[at:].strip(b"\0")
            return members
        members.append((name[:-1].decode(), mode, content, device))


def archive(entries: list[Entry]) -> bytes:
    out = io.BytesIO()
    initramfs.write(entries, out)
    return out.getvalue()


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=30)


@given(st.lists(st.tuples(names, st.binary(max_size=50), st.integers(0, 0o777)), max_size=8))
def test_round_trip(files: list[tuple[str, bytes, int]]) -> None:
    files = [file for file in files if file[0] != "TRAILER!!!"]
    entries = [Entry(name=n, data=d, mode=stat.S_IFREG | m) for n, d, m in files]
    data = archive(entries)
    assert len(data) % 512 == 0
    assert [(n, d, m & 0o777) for n, m, d, _ in read_back(data)] == files


def test_plan(tmp_path: Path) -> None:
    program, text = tmp_path / "program", tmp_path / "text"
    program.write_bytes(b"#!x")
    program.chmod(0o700)
    text.write_bytes(b"hello")
    files = {"/usr/lib/t/prog": program, "/etc/text": text}
    members = read_back(archive(initramfs.plan(b"agent", files)))
    order = [name for name, *_ in members]
    for name in order:
        if "/" in name:
            assert order.index(name.rpartition("/")[0]) < order.index(name)
    assert {"dev", "proc", "sys", "tmp", "usr", "usr/lib", "usr/lib/t"} <= set(order)
    by_name = {name: (mode, data, device) for name, mode, data, device in members}
    assert by_name["init"] == (stat.S_IFREG | 0o755, b"agent", (0, 0))
    assert by_name["dev/console"] == (stat.S_IFCHR | 0o600, b"", (5, 1))
    assert by_name["usr/lib/t/prog"][:2] == (stat.S_IFREG | 0o755, b"#!x")
    assert by_name["etc/text"][:2] == (stat.S_IFREG | 0o644, b"hello")


def test_same_bytes_whatever_the_order_and_the_dates(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"a")
    b.write_bytes(b"b")
    first = archive(initramfs.plan(b"agent", {"/a/x": a, "/b/y": b}))
    os.utime(a, (1, 1))
    assert archive(initramfs.plan(b"agent", {"/b/y": b, "/a/x": a})) == first


@pytest.mark.parametrize("path", ["relative", "/", "/../x", "/a/../../x", "", "/init"])
def test_bad_guest_paths(tmp_path: Path, path: str) -> None:
    file = tmp_path / "f"
    file.touch()
    with pytest.raises(ConfigError):
        initramfs.plan(b"agent", {path: file})


def test_file_where_a_folder_must_be(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    with pytest.raises(ConfigError, match="both a file and a folder"):
        initramfs.plan(b"agent", {"/a": file, "/a/b": file})
    with pytest.raises(ConfigError, match="both a file and a folder"):
        initramfs.plan(b"agent", {"/etc": file})


@pytest.mark.parametrize("path", ["/proc", "/tmp/x", "/dev/shm/x", "/host/x", "/sys/x/y"])
def test_file_below_a_mount(tmp_path: Path, path: str) -> None:
    file = tmp_path / "f"
    file.touch()
    with pytest.raises(ConfigError, match="the guest mounts something on /"):
        initramfs.plan(b"agent", {path: file})


def test_missing_host_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: cannot put it into the guest: No such file"):
        initramfs.plan(b"agent", {"/a": tmp_path / "nowhere"})
