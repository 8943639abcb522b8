# SPDX-License-Identifier: GPL-2.0-only
"""Files with chosen bytes, and the one line that refuses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError


def put(folder: Path, data: bytes, name: str = "vmlinux") -> Path:
    """A file of that name, whose own folders are made as well."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def refused(read: Callable[[Path], object], path: Path) -> str:
    """What ``read`` says of a file that it must not take: one line with the file's name."""
    with pytest.raises(ConfigError) as caught:
        read(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text
