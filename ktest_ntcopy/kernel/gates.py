# SPDX-License-Identifier: GPL-2.0-only
"""Hold the series to what netdev's acceptance tests ask of a posting.

Each gate is a generator of complaints; no complaint means passed.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ktest_ntcopy.errors import BuildError
from ktest_ntcopy.features.model import kconfig
from ktest_ntcopy.kernel import build, source, style
from ktest_ntcopy.kernel import kconfig as kconfig_files
from ktest_ntcopy.kernel import series as patches
from ktest_ntcopy.kernel.process import Notify, capture, locked, run_logged
from ktest_ntcopy.kernel.tree import Tree, recognise
from ktest_ntcopy.paths import cache_root

#: Types of message that netdev's checkpatch run leaves out.
CHECKPATCH_IGNORED = (
    "COMMIT_LOG_LONG_LINE",
    "MACRO_ARG_REUSE",
    "ALLOC_SIZEOF_STRUCT",
    "NO_AUTHOR_SIGN_OFF",
    "GIT_COMMIT_ID",
    "CAMELCASE",
    "FILE_PATH_CHANGES",
    "BAD_REPORTED_BY_LINK",
    # Not netdev's: a tree from a package has no history in which a commit could be known.
    "UNKNOWN_COMMIT_ID",
)
#: Netdev takes at most this many patches at once.
MOST_PATCHES = 15
#: Other machines that touched files compile for, and what make needs to be told.
FOREIGN = {
    "arm64": ("ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"),  # has no non-temporal copy
    "i386": ("ARCH=i386",),  # flags have to fit into 32 bits
}


@dataclass(frozen=True)
class Workbench:
    """A tree and a build folder of our own, so that nobody else's objects are made stale."""

    tree: Tree
    out: Path
    notify: Notify


def shape(every: tuple[patches.Series, ...]) -> Iterator[str]:
    """Cover letter, subjects, number of patches, sign-offs."""
    for series in every:
        if not series.cover.exists():
            yield f"{series.name}: no cover letter"
        elif "BLURB" in series.cover.read_text(encoding="utf-8"):
            yield f"{series.name}: the cover letter has no text"
        if len(series.patches) > MOST_PATCHES:
            yield f"{series.name}: {len(series.patches)} patches, at most {MOST_PATCHES} are taken"
        for number, patch in enumerate(series.patches, 1):
            wanted = f"[{series.prefix} {number}/{len(series.patches)}] "
            if not patch.subject.startswith(wanted):
                yield f"{series.name}/{patch.path.name}: subject does not begin with {wanted}"
            if re.search(rb"^Signed-off-by:", patch.text, re.MULTILINE):
                yield f"{series.name}/{patch.path.name}: signed off; that is for git am -s"


def round_trip(tree: Tree, every: tuple[patches.Series, ...]) -> Iterator[str]:
    """Apply as commits, format again: the files must come out byte for byte."""
    with patches.scratch_repository(tree.path, patches.touched(every)) as repo:
        for series in every:
            start = capture(["git", "rev-parse", "HEAD"], cwd=repo).stdout.decode().strip()
            patches.apply_in(repo, (series,), release=tree.release)
            with tempfile.TemporaryDirectory() as name:
                again = Path(name) / series.name
                shutil.copytree(series.folder, again)
                patches.format_series(repo, f"{start}..HEAD", again, series.prefix)
                for file in sorted({p.name for f in (again, series.folder) for p in f.iterdir()}):
                    old, new = series.folder / file, again / file
                    if not (old.exists() and new.exists()):
                        yield f"{series.name}/{file}: only there before or only after formatting"
                    elif old.read_bytes() != new.read_bytes():
                        yield f"{series.name}/{file}: formatting gives other bytes"


def checkpatch(tree: Tree, every: tuple[patches.Series, ...]) -> Iterator[str]:
    """``checkpatch --strict`` as netdev runs it, the missing sign-off aside."""
    for patch in (p for s in every for p in s.patches):
        options = ("--no-signoff", f"--ignore={','.join(CHECKPATCH_IGNORED)}", "-")
        yield from style.complaints(tree.path, patch.path.name, *options, text=patch.text)


def _objects(tree: Tree, files: tuple[str, ...]) -> list[str]:
    """Kernel objects of C files among touched paths, as far as the tree has these by now."""
    sources = [f for f in files if f.endswith(".c") and not f.startswith("tools/")]
    return [f[:-2] + ".o" for f in sources if (tree.path / f).exists()]


def _warnings(bench: Workbench, objects: list[str], *extra: str) -> set[str]:
    """What compiler (W=1) and sparse (C=2) say about objects, without line numbers."""
    for name in objects:
        (bench.out / name).unlink(missing_ok=True)
    log = bench.out / "gate.log"
    argv = build.make(bench.tree, bench.out, *extra, *objects)
    if run_logged(argv, log=log, title="compiling", notify=bench.notify):
        raise BuildError(f"does not compile: {build.first_error(log)}")
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.findall(r"^(\S+?):\d+(?::\d+)?: ((?:warning|error): .*)$", text, re.MULTILINE)
    tree = f"{bench.tree.path}/"
    return {f"{file.removeprefix(tree)}: {message}" for file, message in found}


def _states(tree: Tree, every: tuple[patches.Series, ...]) -> Iterator[patches.Patch | None]:
    """Walk a pristine tree through the patches: first as it is, then after each one.

    Afterwards the tree is pristine again, so that the next walk starts where this did.
    """
    files = patches.touched(every)
    with (
        patches.scratch_repository(tree.path, files) as pristine,
        patches.scratch_repository(tree.path, files) as repo,
    ):

        def put(source: Path, names: tuple[str, ...]) -> None:
            for name in names:
                if (source / name).exists():
                    shutil.copyfile(source / name, tree.path / name)
                else:
                    (tree.path / name).unlink(missing_ok=True)

        try:
            yield None
            for series in every:
                for patch in series.patches:
                    patches.apply_one(repo, series, patch, release=tree.release)
                    put(repo, patch.files)
                    yield patch
        finally:
            put(pristine, files)


def compiles(bench: Workbench, every: tuple[patches.Series, ...], *, bisect: bool) -> Iterator[str]:
    """At every patch the touched files compile and say nothing new under W=1 and sparse.

    With ``bisect`` the whole kernel is built at every patch, too.
    """
    known: set[str] = set()
    for patch in _states(bench.tree, every):
        name = patch.path.name if patch else "before the first patch"
        headers = patch is None or any(f.endswith(".h") for f in patch.files)
        changed = patches.touched(every) if headers or not patch else patch.files
        objects = _objects(bench.tree, changed)
        if not objects and not bisect:
            continue
        bench.notify(f"{name}: {len(objects)} objects, W=1 and sparse")
        try:
            said = _warnings(bench, objects, "W=1", "C=2") if objects else set()
            if patch is None:
                known = said
                # sparse says no more about a file in which it meets what it takes for an error.
                for line in sorted(x for x in known if ": error: " in x):
                    bench.notify(
                        f"sparse cannot judge this file, before the series or after: {line}"
                    )
            yield from (f"{name}: new: {line}" for line in sorted(said - known))
            if bisect:
                _build_all(bench, name)
        except BuildError as err:
            yield f"{name}: {err}"


def _build_all(bench: Workbench, name: str) -> None:
    log = bench.out / "bisect.log"
    argv = build.make(bench.tree, bench.out, "vmlinux")
    if run_logged(argv, log=log, title=f"building at {name}", notify=bench.notify):
        raise BuildError(f"does not build: {build.first_error(log)}")


def foreign(
    tree: Tree, every: tuple[patches.Series, ...], arch: str, notify: Notify
) -> Iterator[str]:
    """The touched files, patched, compile for another architecture."""
    target = FOREIGN[arch]
    out = cache_root() / "builds" / f"{tree.path.name}-{arch}"
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, notify):
        fragment = "\n".join(f"{o.name}={o.value}" for o in kconfig())
        (out / "fragment").write_text(fragment, encoding="utf-8")
        merge = [str(tree.path / "scripts/kconfig/merge_config.sh"), "-m", "-O", str(out)]
        steps = (
            build.make(tree, out, *target, "tinyconfig"),
            [*merge, str(out / ".config"), str(out / "fragment")],
            build.make(tree, out, *target, "olddefconfig"),
            build.make(tree, out, *target, "prepare"),
            build.make(tree, out, *target, *_objects(tree, patches.touched(every))),
        )
        log = out / "gate.log"
        for argv in steps:
            if run_logged(argv, log=log, title=f"compiling for {arch}", notify=notify, cwd=out):
                yield f"{arch}: {build.first_error(log)}"
                return


def _workbench(version: str, notify: Notify) -> Workbench:
    """An unpatched tree beside the prepared one, configured like it."""
    pristine = source.pristine(version, "gates", notify)
    out = cache_root() / "builds" / pristine.path.name
    out.mkdir(parents=True, exist_ok=True)
    kconfig_files.configure(pristine, out, kconfig_files.render(kconfig()), notify)
    bench = Workbench(pristine, out, notify)
    log = out / "prepare.log"
    if run_logged(build.make(pristine, out, "prepare"), log=log, title="preparing", notify=notify):
        raise BuildError(f"make prepare: {build.first_error(log)}")
    return bench


def check(version: str, *, bisect: bool, cross: bool, notify: Notify) -> int:
    """Run all gates and say what was found; 0 if nothing, else 1."""
    every = patches.read_series(version)
    count = sum(len(s.patches) for s in every)
    prepared = source.prepare(version, notify)
    with locked(cache_root() / "trees" / f"{prepared.path.name}-gates", notify):
        bench = _workbench(version, notify)
        pristine = recognise(bench.tree.path)
        gates: list[tuple[str, Callable[[], Iterator[str]]]] = [
            (f"shape of {count} patches", lambda: shape(every)),
            ("formats byte for byte", lambda: round_trip(pristine, every)),
            ("checkpatch --strict", lambda: checkpatch(pristine, every)),
            ("generated C, checkpatch --strict", lambda: style.generated(prepared.path)),
            ("other C, checkpatch --strict", lambda: style.own(prepared.path)),
            ("compiles, W=1, sparse", lambda: compiles(bench, every, bisect=bisect)),
        ]
        for arch in FOREIGN if cross else ():
            one = partial(foreign, prepared, every, arch, notify)
            gates.append((f"compiles for {arch}", one))
        failed = 0
        for title, gate in gates:
            complaints = list(gate())
            failed += len(complaints)
            notify(f"{'FAIL' if complaints else 'ok  '} {title}")
            for line in complaints:
                notify(f"     {line}")
        return 1 if failed else 0
