# SPDX-License-Identifier: GPL-2.0-only
"""The compiled test programs of a run: made once by the controller, found by the workers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from ktest_ntcopy.compiler import cannot_compile
from ktest_ntcopy.errors import ConfigError, KtestError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.image.file.kernel_file import KernelFile
from ktest_ntcopy.paths import cache_root
from ktest_ntcopy.session import guest_path

_SELFTESTS = Path("tools/testing/selftests")


class Programs:
    """Which files go into the guest.

    The controller knows before its workers start where it is going to write
    that down, and writes it before they get their first test.
    """

    def __init__(self, config: pytest.Config, record: str | None) -> None:
        self._config = config
        self._memory = -1
        self._record = record

    @property
    def record(self) -> str:
        """Path of what tells the workers: a file in memory, so that a killed run leaves none."""
        if self._record is None:
            self._memory = os.memfd_create("ktest-programs", os.MFD_CLOEXEC)
            self._record = f"/proc/{os.getpid()}/fd/{self._memory}"
        return self._record

    def build(self, kernel: KernelFile) -> None:
        """Make them, by the hook pytest_ktest_build_programs.  Raises KtestError."""
        made = self._config.hook.pytest_ktest_build_programs(config=self._config, kernel=kernel)
        self._write({"files": {there: str(here) for there, here in made.items()}})

    def fail(self, error: KtestError) -> None:
        """Let whoever asks for them learn why there are none."""
        self._write({"error": str(error)})

    def _write(self, content: Mapping[str, object]) -> None:
        Path(self.record).write_text(json.dumps(content), encoding="utf-8")

    def files(self) -> Mapping[str, Path]:
        """Path in the guest -> file here.  Raises ConfigError if they could not be made."""
        try:
            told = json.loads(Path(self.record).read_text(encoding="utf-8"))
        except (OSError, ValueError) as err:
            raise ConfigError(f"the test programs were not made ({err})") from err
        if "error" in told:
            raise ConfigError(told["error"])
        return {there: Path(here) for there, here in told["files"].items()}

    def close(self) -> None:
        """Forget them.  A second call does nothing."""
        memory, self._memory = self._memory, -1
        if memory >= 0:
            os.close(memory)


def build_programs(kernel: KernelFile, tree: Path | None) -> Mapping[str, Path]:
    """Generate and compile the C tests of all features for this kernel.

    ``tree`` is the source tree whose harness they are compiled with; by default
    the one the kernel was built from, else the prepared one in the cache.  The tree
    is only read: the tests are generated beside a copy of what they need of it.
    Raises KtestError.
    """
    try:
        return _build_programs(kernel, tree)
    except OSError as err:
        # Of two names the second is the one that was to be made.
        file = err.filename2 or err.filename or cache_root()
        raise ConfigError(
            f"cannot make the test programs: {file}: {err.strerror or err}; KTEST_CACHE names "
            "a folder for them that can be written"
        ) from err


def _build_programs(kernel: KernelFile, tree: Path | None) -> Mapping[str, Path]:
    from ktest_ntcopy.kernel import selftests

    tree = tree or kernel.source_tree or _cached_tree(kernel)
    folder = cache_root() / "programs" / kernel.version
    made: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="ktest-programs-") as scratch:
        shadow = Path(scratch)
        programs = selftests.render_all(kernel.version)
        for target in programs:
            _copy_harness(tree, shadow, target)
        report = selftests.generate(shadow, kernel.version, programs=programs)
        for path in report.manifests:
            manifest = selftests.load_manifest(path)
            for program in manifest.programs:
                if cannot_compile(program.bits):
                    continue  # its cases are skipped, and say why
                build = partial(
                    selftests.build_static, program, path.parent, folder, bits=program.bits
                )
                made[guest_path(manifest.target, program.name)] = checked(build, folder)
    return made


def checked(build: Callable[[], Path], folder: Path) -> Path:
    """What ``build`` gives, a file in ``folder``; made again if it is not as it was made.

    A file that a full disk or a crash cut short would fail every test with it.
    """
    for path in folder.glob("*"):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            shutil.rmtree(path)  # only files belong here; it may be where one is to go
    known = {path.name for path in folder.glob("*")}
    binary = build()
    record = binary.with_name(f"{binary.name}.sha256")
    if binary.name in known and _recorded(record) != _digest(binary):
        binary.unlink()
        binary = build()
    if _recorded(record) != (digest := _digest(binary)):
        scratch = record.with_name(f".{record.name}.{os.getpid()}")
        scratch.write_text(digest, encoding="ascii")
        scratch.replace(record)
    return binary


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _recorded(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _cached_tree(kernel: KernelFile) -> Path:
    """The newest tree of that version that `ktest-ntcopy fetch` or `build` prepared."""
    found = [
        path
        for path in (cache_root() / "trees").glob(f"linux-source-{kernel.version}_*")
        if (path / _SELFTESTS / "kselftest_harness.h").is_file()
    ]
    if not found:
        supported = sorted({version for f in load_features() for version in f.support})
        if kernel.version not in supported:
            raise ConfigError(
                f"{kernel.path}: Linux {kernel.version} is not supported; supported: "
                f"{', '.join(supported)}"
            )
        raise ConfigError(
            f"no source tree of Linux {kernel.version} to compile the tests with: give "
            f"--ktest-tree=DIR, or run `ktest-ntcopy fetch --linux {kernel.version}`"
        )
    return max(found, key=lambda path: path.stat().st_mtime)


def _copy_harness(tree: Path, shadow: Path, target: str) -> None:
    """Copy the harness's headers and the lists that the generator enters programs in."""
    source, copy = tree / _SELFTESTS, shadow / _SELFTESTS
    needed = [source / "kselftest_harness.h", source / target / "Makefile"]
    for path in needed:
        if not path.is_file():
            raise ConfigError(f"{tree}: is no kernel tree with selftests ({path} is missing)")
    (copy / target).mkdir(parents=True, exist_ok=True)
    lists = [source / target / name for name in (".gitignore", "config")]
    for path in [*source.glob("*.h"), needed[1], *filter(Path.is_file, lists)]:
        shutil.copyfile(path, copy / path.relative_to(source))
