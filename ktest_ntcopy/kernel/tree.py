# SPDX-License-Identifier: GPL-2.0-only
"""A kernel source tree: recognise it, bring the series into it, take them out again."""

from __future__ import annotations

import hashlib
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


#: What git leaves lying about while somebody is in the middle of something.
_UNFINISHED = (
    *("rebase-apply", "rebase-merge", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    "index.lock",
)


def require_idle(tree: Tree) -> None:
    """Raise SourceError if a rebase, am, merge or other git command is under way."""
    if not tree.is_git:
        return
    for name in _UNFINISHED:
        argv = ["git", "rev-parse", "--git-path", name]
        path = tree.path / output(argv, cwd=tree.path, error=SourceError).strip()
        if path.exists():
            raise SourceError(
                f"{tree.path}: git is in the middle of something ({name}); finish or abort it first"
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
    return str(stamp.get("series", "")) if isinstance(stamp, dict) else ""


def is_patched(tree: Tree) -> bool:
    """True if any of the series is in, wholly or in part: pristine means the base applies."""
    every = patches.read_series(tree.version)
    with patches.scratch_repository(tree.path, patches.touched(every)) as repo:
        try:
            patches.apply_in(repo, every, release=tree.release)
        except PatchError:
            return True
    return False


def apply(tree: Tree, *, dry_run: bool = False) -> tuple[str, ...]:
    """Bring all series into the tree; names of those that were not there yet.

    A git tree gets commits, a plain one changed files with the originals kept
    in :data:`STATE`.  Nothing is changed unless everything applies: raises
    PatchError if not, SourceError if there is somebody else's change.  A dry
    run changes nothing and returns, or raises, what the real one would.
    """
    require_idle(tree)
    require_clean(tree)
    if not tree.is_git and tree.state.exists():
        return _apply_again(tree, dry_run=dry_run)
    wanted = _missing(tree)
    if not wanted:
        return ()
    files = patches.touched(wanted)
    with patches.scratch_repository(tree.path, files) as repo:
        patches.apply_in(repo, wanted, release=tree.release)
        if dry_run:
            pass
        elif tree.is_git:
            patches.git_am(tree.path, wanted)
        else:
            _install(tree, repo, files)
    return tuple(s.name for s in wanted)


def _digest(path: Path) -> str:
    """Of a file's contents; empty if there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _recorded(tree: Tree) -> dict[str, list[str]]:
    """Files that we changed in a plain tree, each with what we may have left in it."""
    try:
        found = json.loads((tree.state / "files.json").read_text(encoding="utf-8"))
        return {str(file): [str(d) for d in digests] for file, digests in found.items()}
    except (OSError, ValueError, AttributeError, TypeError) as err:
        raise SourceError(
            f"{tree.state}: what was changed here cannot be read ({err}); unpack the tree again"
        ) from err


def _record(tree: Tree, files: dict[str, list[str]]) -> None:
    record = tree.state / "files.json"
    temporary = record.with_suffix(".new")
    temporary.write_text(json.dumps(files, sort_keys=True), encoding="utf-8")
    temporary.replace(record)


def _apply_again(tree: Tree, *, dry_run: bool) -> tuple[str, ...]:
    """Bring a plain tree that we changed before up to the series of today."""
    every = patches.read_series(tree.version)
    recorded = _recorded(tree)
    originals = tree.state / "orig"
    for file, digests in recorded.items():
        # A run that was stopped half way has left some files as they were.
        if _digest(tree.path / file) not in (*digests, _digest(originals / file)):
            raise SourceError(
                f"{tree.path}: {file} was changed after the series went in; "
                "take your change out first, or work in a git tree"
            )
    files = tuple(sorted({*patches.touched(every), *recorded}))
    # A file we once added has no original and must not be found in the tree either.
    ours = {f for f in recorded if not (originals / f).exists()}
    visible = tuple(f for f in files if f not in ours)
    with patches.scratch_repository(tree.path, visible, originals=originals) as repo:
        patches.apply_in(repo, every, release=tree.release)
        changed = _changed(tree, repo, files)
        if not dry_run:
            _install(tree, repo, files)
    return tuple(s.name for s in every) if changed else ()


def _changed(tree: Tree, repo: Path, files: tuple[str, ...]) -> list[str]:
    """Files of the tree that are not as they should be."""
    return [file for file in files if _digest(tree.path / file) != _digest(repo / file)]


def _install(tree: Tree, repo: Path, files: tuple[str, ...]) -> None:
    """Copy patched files over.

    Originals are kept and the record is written first, so that a stop half way
    can be undone and is not taken for somebody's change.
    """
    keep = tree.state / "orig"
    known = _recorded(tree) if (tree.state / "files.json").exists() else {}
    tree.state.mkdir(exist_ok=True)
    for file in files:
        original = tree.path / file
        if file not in known and original.exists():
            (keep / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(original, keep / file)
    wanted = {file: _digest(repo / file) for file in files}
    changed = _changed(tree, repo, files)
    _record(tree, {file: [wanted[file], *known.get(file, [])] for file in files})
    # Only these: a file that keeps its time stamp keeps its object.
    for file in changed:
        target, new = tree.path / file, repo / file
        if new.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(target.name + ".ktest")
            shutil.copy(new, temporary)
            temporary.replace(target)
        else:
            target.unlink(missing_ok=True)
    for file in files:
        if (repo / file).exists():
            shutil.copymode(repo / file, tree.path / file)
    _record(tree, {file: [wanted[file]] for file in files})


def restore(tree: Tree) -> None:
    """Undo :func:`apply` in a plain tree.  Raises SourceError for a git tree."""
    if tree.is_git:
        raise SourceError(f"{tree.path}: a git tree; `git reset` takes the commits out")
    if not tree.state.exists():
        return
    for file in _recorded(tree):
        kept, target = tree.state / "orig" / file, tree.path / file
        if kept.exists():
            shutil.copy(kept, target)
        else:
            target.unlink(missing_ok=True)
    shutil.rmtree(tree.state)
