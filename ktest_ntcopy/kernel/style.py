# SPDX-License-Identifier: GPL-2.0-only
"""Hold the generated C to the kernel's own style, as :mod:`.gates` holds the patches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ktest_ntcopy.kernel.manifest import NAME, load_manifest
from ktest_ntcopy.kernel.process import capture

#: codespell's dictionary where Debian keeps it; spelling goes unchecked without it.
_DICTIONARY = Path("/usr/lib/python3/dist-packages/codespell_lib/data/dictionary.txt")
_SPOTLESS = "total: 0 errors, 0 warnings, 0 checks"


def _argv(tree: Path, file: Path) -> list[str]:
    # With a tree it would want git and python3-ply to check the licence lines.
    argv = ["perl", str(tree / "scripts/checkpatch.pl"), "--no-tree", "--strict"]
    argv += ["--max-line-length=80"]
    if _DICTIONARY.is_file():
        argv += ["--codespell", f"--codespellfile={_DICTIONARY}"]
    # --terse together with -q prints the last line even if there is nothing to say.
    return [*argv, "--terse", "-q", "-f", str(file.relative_to(tree))]


def generated(tree: Path) -> Iterator[str]:
    """What ``checkpatch --strict`` says of each generated file of a tree; nothing is good.

    Raises ConfigError if a manifest cannot be read.
    """
    found = sorted((tree / "tools/testing/selftests").glob(f"*/{NAME}"))
    if not found:
        yield f"{tree.name}: no generated tests to check"
    for manifest in found:
        programs = load_manifest(manifest).programs
        for name in sorted({source for program in programs for source in program.sources}):
            file = manifest.parent / name
            done = capture(_argv(tree, file), cwd=tree)
            said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
            clean = said and said[-1].startswith(_SPOTLESS)
            if done.returncode or not clean:
                yield from (f"checkpatch: {name}: {line}" for line in said or ["said nothing"])
