# SPDX-License-Identifier: GPL-2.0-only
"""What the caller asked of the plugin, checked."""

from __future__ import annotations

import difflib
import math
import os
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.file.kernel_file import KernelFile, open_kernel
from ktest_ntcopy.image.screen import safe_line
from ktest_ntcopy.paths import is_plain


@dataclass(frozen=True, kw_only=True)
class Options:
    """The ``--ktest-*`` options.  Paths are absolute."""

    kernel: KernelFile
    given: str  #: --kernel as an absolute path, for reproducers
    tree: Path | None
    accel: str
    qemu: str | None
    require: frozenset[str]
    require_all: bool  #: a test that is skipped for whatever reason fails
    journal: Path
    junit: Path | None
    table: bool
    memory_mib: int
    cpus: int
    timeout_scale: float

    def command(self, nodeid: str) -> str:
        """A shell line that runs one test again the same way."""
        words = ["pytest", f"--kernel={self.given}"]
        if self.tree:
            words.append(f"--ktest-tree={self.tree}")
        if self.accel != "auto":
            words.append(f"--ktest-accel={self.accel}")
        if self.qemu:
            words.append(f"--ktest-qemu={self.qemu}")
        if self.require_all:
            words.append("--ktest-require-all")
        elif self.require:
            words.append(f"--ktest-require={','.join(sorted(self.require))}")
        if self.memory_mib != 512:
            words.append(f"--ktest-memory={self.memory_mib}")
        if self.cpus != 2:
            words.append(f"--ktest-cpus={self.cpus}")
        if self.timeout_scale != 1:
            words.append(f"--ktest-timeout-scale={self.timeout_scale:g}")
        return shlex.join([*words, nodeid])


def parse_options(config: pytest.Config) -> Options:
    """Check the command line.  Raises pytest.UsageError with one line."""
    option = config.option
    here = config.invocation_params.dir
    given = here / Path(option.ktest_kernel).expanduser()
    if not option.ktest_kernel:
        raise pytest.UsageError("--kernel: give a vmlinux, a bzImage or a build directory")
    try:
        str(given).encode()
    except UnicodeEncodeError as err:
        # Neither the journal nor a report could name it.
        raise pytest.UsageError(f"--kernel: {str(given)!a}: is not UTF-8; rename it") from err
    try:
        kernel = open_kernel(given)
    except ConfigError as err:
        raise pytest.UsageError(safe_line(f"--kernel: {err}")) from err
    junit = getattr(option, "xmlpath", None)
    junit = here / Path(os.path.expandvars(junit)).expanduser() if junit else None
    journal = _journal(config, junit)
    _check_reports(junit, journal)
    return Options(
        kernel=kernel,
        given=str(given),
        tree=_tree(here, option.ktest_tree),
        accel=option.ktest_accel,
        qemu=_qemu(here, option.ktest_qemu),
        require=_required("all" if option.ktest_require_all else option.ktest_require),
        require_all=option.ktest_require_all,
        journal=journal,
        junit=junit,
        table=option.ktest_table,
        memory_mib=_between("--ktest-memory", option.ktest_memory, 64, 1 << 20),
        cpus=_between("--ktest-cpus", option.ktest_cpus, 1, 255),
        timeout_scale=_scale(option.ktest_timeout_scale),
    )


def _tree(here: Path, given: str | None) -> Path | None:
    if given is None:
        return None
    tree = here / Path(given).expanduser()
    if not (tree / "Kbuild").is_file() or not (tree / "tools/testing/selftests").is_dir():
        raise pytest.UsageError(f"--ktest-tree: {tree}: is no kernel source tree")
    return tree


def _qemu(here: Path, given: str | None) -> str | None:
    if given is None:
        return None
    # A name is looked up as a shell would; a path is relative to where pytest was started.
    program = str(here / Path(given).expanduser()) if "/" in given else given
    if shutil.which(program) is None:
        raise pytest.UsageError(f"--ktest-qemu: {given}: no such program, or not executable")
    return program


def _required(given: str | None) -> frozenset[str]:
    if given is None:
        return _require("KTEST_REQUIRE", os.environ.get("KTEST_REQUIRE", ""))
    return _require("--ktest-require", given)


def _require(option: str, given: str) -> frozenset[str]:
    known = [f.name for f in load_features()]
    names = [n.strip() for n in given.split(",") if n.strip()]
    for name in names:
        if name not in (*known, "all"):
            alike = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {alike[0]}?" if alike else f"known: {', '.join(known)}, all"
            raise pytest.UsageError(f"{option}: no feature {name}; {hint}")
    return frozenset(known if "all" in names else names)


def _journal(config: pytest.Config, junit: Path | None) -> Path:
    here = config.invocation_params.dir
    if worker := getattr(config, "workerinput", None):
        return Path(worker["ktest_journal"])
    if config.option.ktest_journal:
        return here / Path(config.option.ktest_journal).expanduser()
    if junit:
        return junit.with_suffix(".ndjson")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return here / "reports" / f"ktest-{stamp}-{os.getpid()}.ndjson"


def _check_reports(junit: Path | None, journal: Path) -> None:
    """Both are replaced or emptied, so neither may be a device or the other."""
    for name, path in (("--junitxml", junit), ("--ktest-journal", journal)):
        if path is None:
            continue
        if not is_plain(path):
            raise pytest.UsageError(f"{name}: {path}: is no regular file")
    if junit is not None and junit.resolve() == journal.resolve():
        raise pytest.UsageError(
            f"--junitxml: {junit}: is the journal's file too; give it another suffix than "
            ".ndjson, or give --ktest-journal"
        )


def _between(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise pytest.UsageError(f"{name}: {value} is not between {low} and {high}")
    return value


def _scale(value: float) -> float:
    if not (math.isfinite(value) and 0.01 <= value <= 1000):
        raise pytest.UsageError(f"--ktest-timeout-scale: {value} is not between 0.01 and 1000")
    return value
