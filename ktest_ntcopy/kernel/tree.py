# SPDX-License-Identifier: GPL-2.0-only
"""A kernel source tree: recognise it, bring the series into it, take them out again."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import PatchError, SourceError
from ktest_ntcopy.kernel import series as patches
from ktest_ntcopy.kernel.process import output

#: In a plain (not git) tree: which series were applied, and the files as they were before.
STATE = ".ktest_ntcopy"
#: In a tree of the cache: what it was prepared with.
STAMP = ".ktest_ntcopy.json"


@dataclass(frozen=True)
class Tree:
    """A source tree of a version we have series for."""

    path: Path
    version: str  #: "6.12", chooses the series
    release: str  #: "6.12.117"
    is_git: bool

    @property
    def state(self) -> Path:
        return self.path / STATE


def recognise(path: Path) -> Tree:
    """Look at a folder.  Raises SourceError if it is no kernel tree we know."""
    makefile = path / "Makefile"
    try:
        head = makefile.read_text(encoding="utf-8", errors="replace")[:1000]
    except OSError as err:
        raise SourceError(
            f"{path}: not a kernel source tree ({makefile.name}: {err.strerror})"
        ) from err
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", head, re.MULTILINE))
    if not {"VERSION", "PATCHLEVEL"} <= found.keys() or not (path / "net/socket.c").is_file():
        raise SourceError(f"{path}: not a kernel source tree (no version in Makefile)")
    version = f"{found['VERSION']}.{found['PATCHLEVEL']}"
    if version not in patches.versions():
        known = ", ".join(patches.versions())
        raise SourceError(f"{path}: Linux {version} is not supported; supported: {known}")
    release = f"{version}.{found.get('SUBLEVEL', '0')}"
    return Tree(path.absolute(), version, release, (path / ".git").exists())


def _generated(tree: Tree) -> set[str]:
    """Paths that the generator wrote or edits; they may differ from what git has."""
    from ktest_ntcopy.kernel import selftests

    return selftests.owned_paths(tree.path)


def require_clean(tree: Tree) -> None:
    """Raise SourceError if a git tree has changes that are not the generator's."""
    if not tree.is_git:
        return
    status = output(
        ["git", "status", "--porcelain", "--untracked-files=no"],
        cwd=tree.path,
        error=SourceError,
    )
    changed = {line[3:].split(" -> ")[-1].strip('"') for line in status.splitlines()}
    foreign = sorted(changed - _generated(tree))
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise SourceError(
            f"{tree.path}: uncommitted changes ({foreign[0]}{more}); commit or stash them first"
        )


def _missing(tree: Tree) -> tuple[patches.Series, ...]:
    """Series that are not in the tree yet, by whether their patches apply backwards."""
    every = patches.read_series(tree.version)
    files = patches.touched(every)
    present = set()
    with patches.scratch_repository(tree.path, files) as repo:
        for one in reversed(every):
            if patches.undo_in(repo, one):
                present.add(one.name)
    return tuple(s for s in every if s.name not in present)


def patches_in(tree: Tree) -> str:
    """Identity of the series that a tree of the cache was prepared with; empty for none."""
    try:
        stamp = json.loads((tree.path / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(stamp.get("series", ""))


def is_patched(tree: Tree) -> bool:
    """True if any of the series is in, wholly or in part: pristine means the base applies."""
    every = patches.read_series(tree.version)
    with patches.scratch_repository(tree.path, patches.touched(every)) as repo:
        try:
            patches.apply_in(repo, every, release=tree.release)
        except PatchError:
            return True
    return False


def apply(tree: Tree) -> tuple[str, ...]:
    """Bring all series into the tree; names of those that were not there yet.

    A git tree gets commits, a plain one changed files with the originals kept
    in :data:`STATE`.  Nothing is changed unless everything applies.
    """
    require_clean(tree)
    if not tree.is_git and tree.state.exists():
        return _apply_again(tree)
    wanted = _missing(tree)
    if not wanted:
        return ()
    files = patches.touched(wanted)
    with patches.scratch_repository(tree.path, files) as repo:
        patches.apply_in(repo, wanted, release=tree.release)
        if tree.is_git:
            patches.git_am(tree.path, wanted)
        else:
            _install(tree, repo, files)
    return tuple(s.name for s in wanted)


def _apply_again(tree: Tree) -> tuple[str, ...]:
    """Bring a plain tree that we changed before up to the series of today."""
    every = patches.read_series(tree.version)
    recorded = json.loads((tree.state / "files.json").read_text(encoding="utf-8"))
    files = tuple(sorted({*patches.touched(every), *recorded}))
    # A file we once added has no original and must not be found in the tree either.
    originals = tree.state / "orig"
    ours = {f for f in recorded if not (originals / f).exists()}
    visible = tuple(f for f in files if f not in ours)
    with patches.scratch_repository(tree.path, visible, originals=originals) as repo:
        patches.apply_in(repo, every, release=tree.release)
        _install(tree, repo, files)
    return tuple(s.name for s in every)


def _install(tree: Tree, repo: Path, files: tuple[str, ...]) -> None:
    """Copy patched files over, originals first, so that a stop half way can be undone."""
    keep = tree.state / "orig"
    recorded = tree.state / "files.json"
    known = set(json.loads(recorded.read_text("utf-8"))) if recorded.exists() else set()
    tree.state.mkdir(exist_ok=True)
    for file in files:
        original = tree.path / file
        if file not in known and original.exists():
            (keep / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(original, keep / file)
    recorded.write_text(json.dumps(sorted({*files, *known})), encoding="utf-8")
    for file in files:
        target, new = tree.path / file, repo / file
        if not new.exists():
            target.unlink(missing_ok=True)
        # A file that already has the wanted text keeps its time stamp, and make its object.
        elif not target.exists() or target.read_bytes() != new.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(target.name + ".ktest")
            shutil.copyfile(new, temporary)
            temporary.replace(target)


def restore(tree: Tree) -> None:
    """Undo :func:`apply` in a plain tree.  Raises SourceError for a git tree."""
    if tree.is_git:
        raise SourceError(f"{tree.path}: a git tree; `git reset` takes the commits out")
    record = tree.state / "files.json"
    if not record.exists():
        return
    for file in json.loads(record.read_text(encoding="utf-8")):
        kept, target = tree.state / "orig" / file, tree.path / file
        if kept.exists():
            shutil.copyfile(kept, target)
        else:
            target.unlink(missing_ok=True)
    shutil.rmtree(tree.state)
