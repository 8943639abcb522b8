# SPDX-License-Identifier: GPL-2.0-only
"""The C compiler: which one, and whether it is still the same."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import ConfigError


@dataclass(frozen=True)
class Compiler:
    """A compiler command and a text that changes when its program does."""

    argv: tuple[str, ...]
    identity: str


def find_compiler(cc: str | None = None) -> Compiler:
    """``cc``, else the environment's ``CC``, else gcc.

    May be several words, such as ``ccache gcc``.  Raises ConfigError if there
    is no such program.
    """
    wanted = cc or os.environ.get("CC") or "gcc"
    argv = tuple(shlex.split(wanted))
    parts = []
    # A wrapper's first operand is the compiler itself; options are not programs.
    for word in argv[:1] + tuple(w for w in argv[1:2] if not w.startswith("-")):
        path = shutil.which(word)
        if path is None:
            raise ConfigError(f"no C compiler {wanted!r}: install the packages gcc and libc6-dev")
        real = Path(path).resolve()
        status = real.stat()
        parts.append(f"{real} {status.st_size} {status.st_mtime_ns}")
    if not parts:
        raise ConfigError(f"CC={wanted!r} names no compiler")
    return Compiler(argv, " ".join((*parts, *argv)))
