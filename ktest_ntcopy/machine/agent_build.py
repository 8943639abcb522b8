# SPDX-License-Identifier: GPL-2.0-only
"""Compile the guest agent once per source and compiler, and keep it in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from ktest_ntcopy.compiler import Compiler, find_compiler
from ktest_ntcopy.errors import ConfigError, MachineError
from ktest_ntcopy.paths import cache_root

_SOURCES = Path(__file__).resolve().parent / "guest"
_FLAGS = ("-std=gnu11", "-static", "-Os", "-s", "-Wall", "-Wextra")
_DIGEST = hashlib.sha256
_DIGEST_SIZE = _DIGEST().digest_size


def _key(identity: str) -> str:
    digest = _DIGEST()
    for part in (identity, *_FLAGS):
        digest.update(part.encode() + b"\0")
    for source in sorted(_SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def _load(entry: Path) -> bytes | None:
    """The program if the entry is whole: it ends with a digest of what comes before."""
    try:
        data = entry.read_bytes()
    except OSError:
        return None
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    return body if body and _DIGEST(body).digest() == digest else None


def _store(entry: Path, body: bytes) -> None:
    """Write beside and rename: others see the old entry or the new one, never a part."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=entry.parent, prefix=".agent-", delete=False) as new:
        try:
            new.write(body + _DIGEST(body).digest())
            new.close()
            os.replace(new.name, entry)  # noqa: PTH105
        except OSError:
            Path(new.name).unlink(missing_ok=True)
            raise


def _compile(compiler: Compiler) -> bytes:
    with tempfile.TemporaryDirectory(prefix="ktest-agent-") as scratch:
        out = Path(scratch) / "agent"
        command = [*compiler.argv, *_FLAGS, "-o", str(out), *map(str, sorted(_SOURCES.glob("*.c")))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not out.is_file():
            lines = done.stderr.strip().splitlines() or ["no message"]
            why = next((line for line in lines if "error" in line), lines[-1])
            raise MachineError(
                f"cannot compile the guest agent: {why} (it needs gcc and the static C "
                "library: install gcc and libc6-dev)"
            )
        return out.read_bytes()


def agent_program(*, cc: str | None = None, cache: Path | None = None) -> bytes:
    """The agent as a static executable.

    ``cc`` defaults to the environment's ``CC``, then ``gcc``.  An unusable cache
    costs the time to compile but is no error.  Raises MachineError.
    """
    try:
        compiler = find_compiler(cc)
    except ConfigError as err:
        raise MachineError(f"the guest agent cannot be compiled: {err}") from err
    entry = (cache or cache_root()) / "agent" / _key(compiler.identity)
    if (body := _load(entry)) is not None:
        return body
    try:
        body = _compile(compiler)
    except OSError as err:
        raise MachineError(f"cannot compile the guest agent: {err}") from err
    with contextlib.suppress(OSError):
        _store(entry, body)
    return body
