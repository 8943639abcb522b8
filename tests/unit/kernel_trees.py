# SPDX-License-Identifier: GPL-2.0-only
"""Tiny kernel trees and series for tests: the same shapes, a few lines each."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOCKET = "".join(f"line {n}\n" for n in range(1, 41))


def git(repo: Path, *args: str) -> str:
    """Run git with an identity; its output."""
    argv = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *args]
    return subprocess.run(argv, cwd=repo, check=True, capture_output=True, text=True).stdout


def make_tree(
    path: Path, *, version: str = "6.12", sublevel: int = 1, is_git: bool = False
) -> Path:
    """A folder that passes for a kernel source tree."""
    major, minor = version.split(".")
    (path / "net").mkdir(parents=True)
    (path / "Makefile").write_text(
        f"VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = {sublevel}\n", encoding="utf-8"
    )
    (path / "net/socket.c").write_text(SOCKET, encoding="utf-8")
    if is_git:
        git(path, "init", "-q")
        git(path, "add", "-A")
        git(path, "commit", "-q", "-m", "base")
    return path


def make_series(root: Path, edits: dict[str, list[dict[str, str]]]) -> None:
    """Write ``linux-patches/6.12`` below root: series name -> commits -> file -> new text."""
    work = make_tree(root / "work", is_git=True)
    folder = root / "linux-patches/6.12"
    for name, commits in edits.items():
        start = git(work, "rev-parse", "HEAD").strip()
        for number, files in enumerate(commits, 1):
            for file, text in files.items():
                (work / file).parent.mkdir(parents=True, exist_ok=True)
                (work / file).write_text(text, encoding="utf-8")
            git(work, "add", "-A")
            git(work, "commit", "-q", "-m", f"net: {name} change {number}\n\nBecause.")
        target = folder / name
        git(work, "format-patch", "-q", "--zero-commit", "--no-signature", "--cover-letter",
            "--subject-prefix=PATCH net-next", "-o", str(target), f"{start}..HEAD")  # fmt: skip
    order = ", ".join(f'"{name}"' for name in edits)
    (folder / "series.toml").write_text(
        f'package = "linux-source-6.12"\nbase = "6.12.1"\norder = [{order}]\n'
        'prefix = "PATCH net-next"\n',
        encoding="utf-8",
    )


def changed(text: str, **lines: str) -> str:
    """``text`` with some lines replaced: ``changed(text, l5="other")``."""
    rows = text.splitlines()
    for key, value in lines.items():
        rows[int(key[1:]) - 1] = value
    return "\n".join(rows) + "\n"
