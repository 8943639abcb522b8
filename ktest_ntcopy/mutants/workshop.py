# SPDX-License-Identifier: GPL-2.0-only
"""A tree and a build of their own, in which kernels are broken and mended again.

Both are copies, so that nobody else's kernel is ever a broken one.  The copy of
the build starts from finished objects: each mutant compiles what it touches.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import BuildError, PatchError
from ktest_ntcopy.kernel import build
from ktest_ntcopy.kernel import series as patches
from ktest_ntcopy.kernel.process import Notify, output, run_logged
from ktest_ntcopy.kernel.tree import Tree, recognise
from ktest_ntcopy.mutants.mutant import Mutant

#: In the copied build: the stamp of the build it was copied from.
ORIGIN = ".ktest_ntcopy-origin.json"
#: There while files are broken: their names.  A killed run leaves it to the next one.
BROKEN = ".ktest_ntcopy-broken"


@dataclass(frozen=True)
class Workshop:
    """Where mutants are made.  ``original`` is the prepared tree, which is only read."""

    original: Tree
    tree: Tree
    out: Path
    notify: Notify

    def build(self, title: str) -> Path:
        """Compile what has changed.  Raises BuildError with the first error."""
        log = self.out / "mutant.log"
        argv = build.make(self.tree, self.out, "vmlinux")
        if run_logged(argv, log=log, title=title, notify=self.notify):
            raise BuildError(f"does not build: {build.first_error(log)}")
        return self.out / "vmlinux"

    def mend(self, files: Iterable[str]) -> None:
        """Have these files as they are in the prepared tree; those that are so keep their time."""
        for file in files:
            good, here = self.original.path / file, self.tree.path / file
            if not good.exists():
                here.unlink(missing_ok=True)
            elif not here.exists() or here.read_bytes() != good.read_bytes():
                shutil.copyfile(good, here)

    @contextmanager
    def broken(self, mutant: Mutant) -> Iterator[None]:
        """The tree with a mutant in it; mended afterwards.  Raises PatchError."""
        files = mutant.patch.files
        changed = apply(self.original.path, mutant)
        note = self.out / BROKEN
        note.write_text("\n".join(files), encoding="utf-8")
        try:
            for file, content in changed.items():
                (self.tree.path / file).write_bytes(content)
            yield
        finally:
            self.mend(files)
            note.unlink()


def apply(tree: Path, mutant: Mutant) -> dict[str, bytes]:
    """The contents that a mutant gives to files of a tree, which is not touched.

    Raises PatchError if the mutant does not fit.
    """
    with patches.scratch_repository(tree, mutant.patch.files) as repo:
        if complaint := patches.try_apply(repo, mutant.patch):
            first = complaint.strip().splitlines()[0]
            raise PatchError(f"{mutant.path}: does not apply to {tree}: {first}")
        return {file: (repo / file).read_bytes() for file in mutant.patch.files}


def _copy(source: Path, target: Path) -> None:
    """Copy a folder with its time stamps, without its contents where the file system can."""
    shutil.rmtree(target, ignore_errors=True)
    output(["cp", "-a", "--reflink=auto", source, target], error=BuildError)


def _move_paths(out: Path, old: Path, new: Path) -> None:
    """Make a copied build believe that it was made from the copied tree.

    kbuild compiles anew what was compiled with another command, and the path of
    the tree is in each command.
    """
    before, after = str(old).encode(), str(new).encode()
    for record in out.rglob(".*.cmd"):
        text = record.read_bytes()
        if before in text:
            record.write_bytes(text.replace(before, after))


def open_workshop(original: Tree, built: Path, notify: Notify) -> Workshop:
    """Copies of a prepared tree and its finished build, made if there are none of today's.

    The caller holds a lock.  Raises BuildError.
    """
    path = original.path.with_name(f"{original.path.name}-mutants")
    out = built.with_name(f"{built.name}-mutants")
    stamp = (built / build.STAMP).read_text(encoding="utf-8")
    try:
        fresh = (out / ORIGIN).read_text(encoding="utf-8") == stamp and path.exists()
    except OSError:
        fresh = False
    if not fresh:
        notify(f"copying the tree and its build to {path.name}")
        (out / ORIGIN).unlink(missing_ok=True)
        _copy(original.path, path)
        _copy(built, out)
        _move_paths(out, original.path, path)
        (out / ORIGIN).write_text(stamp, encoding="utf-8")
    shop = Workshop(original, recognise(path), out, notify)
    if (note := out / BROKEN).exists():
        shop.mend(note.read_text(encoding="utf-8").split())
        note.unlink()
    return shop
