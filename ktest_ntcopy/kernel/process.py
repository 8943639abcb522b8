# SPDX-License-Identifier: GPL-2.0-only
"""Run a tool and say in one line what went wrong."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ktest_ntcopy.errors import ConfigError, KtestError

#: Told what is going on, one short line at a time.
Notify = Callable[[str], None]


def silent(_: str) -> None:
    """A :data:`Notify` that says nothing."""


def clean_env(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """This process's environment in the C locale, without make's and git's own variables.

    A make above us would hand down its job server, a git hook its repository.
    """
    dropped = ("MAKE", "MFLAGS", "GIT_", "KBUILD_", "LANGUAGE")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {**env, "LC_ALL": "C", **extra}


def capture(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] = {},
    stdin: bytes | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run to the end with the output kept.  Raises ConfigError if the tool is not there."""
    try:
        return subprocess.run(
            [str(a) for a in argv],
            cwd=cwd,
            env=clean_env(env),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as err:
        raise ConfigError(f"{argv[0]} is not installed; `make setup` installs it") from err


def output(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] = {},
    error: type[KtestError] = KtestError,
    stdin: bytes | None = None,
) -> str:
    """Standard output of a tool.  Raises ``error`` with its first complaint if it fails."""
    done = capture(argv, cwd=cwd, env=env, stdin=stdin)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise error(f"{' '.join(map(str, argv[:3]))}: {said[0] if said else done.returncode}")
    return done.stdout.decode(errors="replace")


def run_logged(
    argv: Sequence[str | Path],
    *,
    log: Path,
    title: str,
    notify: Notify,
    cwd: Path | None = None,
    every: float = 10.0,
) -> int:
    """Run with all output in ``log``; report progress every so many seconds.

    The progress line says how many lines the tool has printed, which for a
    kernel build is the number of files.
    """
    start = time.monotonic()
    with log.open("wb") as sink:
        try:
            child = subprocess.Popen(
                [str(a) for a in argv],
                cwd=cwd,
                env=clean_env(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        except FileNotFoundError as err:
            raise ConfigError(f"{argv[0]} is not installed; `make setup` installs it") from err
        try:
            while True:
                try:
                    return child.wait(timeout=every)
                except subprocess.TimeoutExpired:
                    with log.open("rb") as lines:
                        steps = sum(1 for _ in lines)
                    notify(f"{title}: {steps} steps, {time.monotonic() - start:.0f} s")
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()


@contextmanager
def locked(path: Path, notify: Notify) -> Iterator[None]:
    """Hold an exclusive lock on ``path``.lock; says so if someone else holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:  # noqa: PTH123 (the name only gains a suffix)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notify(f"waiting for another run that uses {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
