# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own style, asked of checkpatch: patches, generated C, our other C."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ktest_ntcopy.kernel.manifest import NAME, load_manifest
from ktest_ntcopy.kernel.process import capture
from ktest_ntcopy.paths import data_root

#: codespell's dictionary where Debian keeps it; spelling goes unchecked without it.
_DICTIONARY = Path("/usr/lib/python3/dist-packages/codespell_lib/data/dictionary.txt")
_SPOTLESS = "total: 0 errors, 0 warnings, 0 checks"


def complaints(
    tree: Path, name: str, *options: str | Path, text: bytes | None = None
) -> Iterator[str]:
    """What ``checkpatch --strict`` of a tree says of one thing; nothing is good.

    ``options`` end with the file, or ``-`` for ``text``.
    """
    argv = ["perl", str(tree / "scripts/checkpatch.pl"), "--strict", "--max-line-length=80"]
    if _DICTIONARY.is_file():
        argv += ["--codespell", f"--codespellfile={_DICTIONARY}"]
    # --terse together with -q prints the last line even if there is nothing to say.
    done = capture([*argv, "--terse", "-q", *options], cwd=tree, stdin=text)
    said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
    clean = said and said[-1].startswith(_SPOTLESS)
    if done.returncode or not clean:
        yield from (f"checkpatch: {name}: {line}" for line in said or ["said nothing"])


def _file(tree: Path, file: Path) -> Iterator[str]:
    # With a tree it would want git and python3-ply to check the licence lines.
    yield from complaints(tree, file.name, "--no-tree", "-f", file)


def generated(tree: Path) -> Iterator[str]:
    """Complaints about the generated files of a tree.

    Raises ConfigError if a manifest cannot be read.
    """
    found = sorted((tree / "tools/testing/selftests").glob(f"*/{NAME}"))
    if not found:
        yield f"{tree.name}: no generated tests to check"
    for manifest in found:
        programs = load_manifest(manifest).programs
        for name in sorted({source for program in programs for source in program.sources}):
            yield from _file(tree, (manifest.parent / name).relative_to(tree))


def own(tree: Path) -> Iterator[str]:
    """Complaints about the C that runs in a guest and is not generated."""
    folders = (
        Path(__file__).parents[1] / "machine/guest",
        data_root() / "tools-testing-net/bench",
    )
    for folder in folders:
        for file in sorted(folder.glob("*.[ch]")):
            yield from _file(tree, file)
