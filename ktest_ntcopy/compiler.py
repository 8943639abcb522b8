# SPDX-License-Identifier: GPL-2.0-only
"""The C compilers: which ones, and whether they are still the same."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
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


#: Makes 32-bit programs where the compiler itself does not; the two exclude each other's
#: packages in Debian.
_CROSS_32 = "i686-linux-gnu-gcc"
#: Asks for a header and a library of the C library: either may be missing.
_TRIAL = '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n'


def _makes_programs(argv: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory(prefix="ktest-compiler-") as folder:
        command = [*argv, "-static", "-x", "c", "-", "-o", f"{folder}/trial"]
        try:
            done = subprocess.run(
                command, input=_TRIAL.encode(), capture_output=True, check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and Path(folder, "trial").is_file()


@cache
def find_compiler_32(cc: str | None = None) -> Compiler:
    """A compiler of static 32-bit programs: the usual one with ``-m32``, or a cross compiler.

    Raises ConfigError if neither makes one.
    """
    usual = find_compiler(cc)
    candidates = [Compiler((*usual.argv, "-m32"), f"{usual.identity} -m32")]
    if shutil.which(_CROSS_32):
        candidates.append(find_compiler(_CROSS_32))
    for candidate in candidates:
        if _makes_programs(candidate.argv):
            return candidate
    raise ConfigError(
        f"no compiler of 32-bit programs: neither `{shlex.join(usual.argv)} -m32` nor {_CROSS_32} "
        "makes one; install the packages gcc-i686-linux-gnu and libc6-dev-i386-cross"
    )


def cannot_compile(bits: int) -> str:
    """Why there are no programs of that word size, in one line; empty if there are."""
    if bits != 32:
        return ""
    try:
        find_compiler_32()
    except ConfigError as err:
        return str(err)
    return ""
