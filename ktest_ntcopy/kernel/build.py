# SPDX-License-Identifier: GPL-2.0-only
"""Configure and compile a kernel, incrementally, and say what went wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.compiler import find_compiler
from ktest_ntcopy.errors import BuildError
from ktest_ntcopy.kernel import kconfig
from ktest_ntcopy.kernel.process import Notify, capture, locked, run_logged
from ktest_ntcopy.kernel.tree import Tree, patches_in

#: In a build folder: what it was built from, so that an unchanged build is not even looked at.
STAMP = ".ktest_ntcopy-build.json"


@dataclass(frozen=True)
class Build:
    """A finished build."""

    folder: Path
    vmlinux: Path
    config: Path
    seconds: float  #: spent now; 0 if nothing had to be done


def make(tree: Tree, out: Path, *targets: str) -> list[str]:
    """The make command line for targets in a build folder.  ``CC`` is taken from the caller."""
    argv = ["make", "-C", str(tree.path), f"O={out}", f"-j{os.cpu_count() or 1}"]
    if compiler := os.environ.get("CC"):
        argv.append(f"CC={compiler}")
    # Build user, host and time would make two builds of the same source differ.
    argv += ["KBUILD_BUILD_USER=ktest", "KBUILD_BUILD_HOST=ktest"]
    return [*argv, *targets]


def _compiler_version() -> str:
    """What kbuild looks at as well: a wrapper around the same compiler changes nothing."""
    said = capture([*find_compiler().argv, "--version"]).stdout.decode(errors="replace")
    return said.partition("\n")[0]


def _stamp(tree: Tree, fragment: str) -> dict[str, str]:
    return {
        "tree": f"{tree.path} {patches_in(tree)}",
        "fragment": hashlib.sha256(fragment.encode()).hexdigest()[:16],
        "compiler": _compiler_version(),
    }


def _unchanged(out: Path, stamp: dict[str, str]) -> bool:
    """True if the finished build is from these inputs and its vmlinux is what make wrote."""
    try:
        have = json.loads((out / STAMP).read_text(encoding="utf-8"))
        with (out / "vmlinux").open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        return False
    if not isinstance(have, dict):
        return False
    return {**have, "seconds": ""} == {**stamp, "vmlinux": found, "seconds": ""}


def first_error(log: Path) -> str:
    """The line of a build log that a person would look for."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(
        r"^.*(?:error:|undefined reference|No space left|\*\*\* ).*$", text, re.MULTILINE
    )
    return found[0].strip() if found else text.strip().rsplit("\n", 1)[-1]


def build(tree: Tree, out: Path, fragment: str, notify: Notify) -> Build:
    """Compile ``vmlinux`` of ``tree`` in ``out`` with tinyconfig and a fragment.

    The tree of the cache is only changed by us, so a build from the same
    inputs is taken as it is.  Raises BuildError naming the first error and the
    log, or the options that did not stick.
    """
    out.mkdir(parents=True, exist_ok=True)
    result = Build(out, out / "vmlinux", out / ".config", 0.0)
    stamp = _stamp(tree, fragment)
    with locked(out, notify):
        if _unchanged(out, stamp):
            return result
        start = time.monotonic()
        if (out / "vmlinux").exists() and not (out / STAMP).exists():
            # The last build was stopped, or the file was damaged: let make link it again.
            (out / "vmlinux").unlink()
        (out / STAMP).unlink(missing_ok=True)
        kconfig.configure(tree, out, fragment, notify)
        notify(f"building Linux {tree.release} in {out}")
        log = out / "build.log"
        if run_logged(make(tree, out, "vmlinux"), log=log, title="building", notify=notify):
            raise BuildError(f"Linux {tree.release} does not build: {first_error(log)}; see {log}")
        with result.vmlinux.open("rb") as file:
            stamp["vmlinux"] = hashlib.file_digest(file, "sha256").hexdigest()
        seconds = time.monotonic() - start
        stamp["seconds"] = f"{seconds:.1f}"
        (out / STAMP).write_text(json.dumps(stamp), encoding="utf-8")
        return Build(out, result.vmlinux, result.config, seconds)
