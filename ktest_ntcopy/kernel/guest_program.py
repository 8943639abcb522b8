# SPDX-License-Identifier: GPL-2.0-only
"""Compile a test program into one static file that runs in an empty guest."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ktest_ntcopy.compiler import find_compiler, find_compiler_32
from ktest_ntcopy.errors import BuildError

#: As lib.mk has them, and what makes the result independent of the guest.
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-D_GNU_SOURCE", "-static")

_INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_KEPT_LINES = 3


class Compilable(Protocol):
    """What a program of a feature file and one of a manifest have in common."""

    @property
    def name(self) -> str: ...

    @property
    def libs(self) -> tuple[str, ...]: ...


def _inputs(source: Path) -> dict[Path, bytes]:
    """The source and every quoted include that exists, followed down."""
    found: dict[Path, bytes] = {}
    queue = [source]
    while queue:
        path = queue.pop().resolve()
        if path in found:
            continue
        found[path] = path.read_bytes()
        for name in _INCLUDE.findall(found[path]):
            included = path.parent / name.decode(errors="replace")
            if included.is_file():
                queue.append(included)
    return found


def compile_command(program: Compilable, out: Path, *, cc: Sequence[str] = ("gcc",)) -> list[str]:
    """The command that makes the static program, run in the folder of its source.

    Run there because assertions print the name of the source as it is given.
    """
    return [*cc, *FLAGS, "-I..", "-o", str(out), f"{program.name}.c", *program.libs]


def _complaint(text: str) -> str:
    """What says most about a failure, in one line."""
    lines = text.splitlines()
    # "ld returned 1 exit status" is true as well, and helps nobody.
    full = [line for line in lines if "No space left on device" in line]
    errors = [line for line in lines if "error" in line.lower()]
    return " | ".join((full or errors or lines or ["no message"])[:_KEPT_LINES])


def build_static(
    program: Compilable,
    source_dir: Path,
    out_dir: Path,
    *,
    cc: str | None = None,
    bits: int = 0,
) -> Path:
    """The program as a static executable below ``out_dir``; compiled if its inputs changed.

    ``source_dir`` is the target's folder in a kernel tree, with the generated
    sources.  The file's name carries a digest of sources, headers of the tree,
    flags and compiler.  ``bits`` is 32 for a 32-bit program.  Raises BuildError with
    the compiler's first complaints, ConfigError without a compiler.
    """
    compiler = find_compiler_32(cc) if bits == 32 else find_compiler(cc)
    source = source_dir / f"{program.name}.c"
    try:
        inputs = _inputs(source)
    except OSError as err:
        raise BuildError(f"{program.name}: {err}; generate the tests first") from err
    digest = hashlib.sha256("\0".join((compiler.identity, *FLAGS, *program.libs)).encode())
    for path in sorted(inputs):
        digest.update(b"\0" + path.name.encode() + b"\0" + inputs[path])
    out = out_dir / f"{program.name}-{digest.hexdigest()[:16]}"
    if out.is_file():
        return out
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_dir, prefix=f".{program.name}-") as scratch:
        made = Path(scratch) / program.name
        done = subprocess.run(
            compile_command(program, made.absolute(), cc=compiler.argv),
            cwd=source_dir,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not made.is_file():
            raise BuildError(f"{program.name} does not compile: {_complaint(done.stderr)}")
        # Whole or not at all: another run may look for it at this moment.
        made.replace(out)
    return out
