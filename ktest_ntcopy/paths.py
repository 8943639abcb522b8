# SPDX-License-Identifier: GPL-2.0-only
"""Where the project's data lies, in a checkout or in an installed wheel, and the cache."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_root() -> Path:
    """Folder that holds ``linux-patches``, ``tools-testing-net``, ``Kconfig.fragment``.

    A wheel carries them in ``ktest_ntcopy/_data``; in a checkout they lie beside the package.
    """
    bundled = _PACKAGE / "_data"
    return bundled if bundled.is_dir() else _PACKAGE.parent


def cache_root() -> Path:
    """Folder for everything that can be made again: sources, builds, verdicts.

    ``KTEST_CACHE`` wins, then ``XDG_CACHE_HOME``, then ``~/.cache``.
    """
    if explicit := os.environ.get("KTEST_CACHE"):
        return Path(explicit).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ktest-ntcopy"


def is_plain(path: Path) -> bool:
    """True for a regular file or none.  /dev/stdout is neither, whatever it leads to."""
    for _ in range(40):
        if path.parent.resolve().is_relative_to("/proc"):
            return False
        if not path.is_symlink():
            return not path.exists() or path.is_file()
        path = path.parent / path.readlink()
    return False
