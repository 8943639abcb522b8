# SPDX-License-Identifier: GPL-2.0-only
"""Obtain kernel source: Debian's source package, through the machine's own apt set-up."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import PatchError, SourceError
from ktest_ntcopy.kernel import selftests, tree
from ktest_ntcopy.kernel.process import Notify, capture, locked
from ktest_ntcopy.kernel.series import digest, read_series, source_package
from ktest_ntcopy.kernel.tree import STAMP
from ktest_ntcopy.paths import cache_root, data_root


@dataclass(frozen=True)
class Source:
    """A downloaded source package, checked."""

    deb: Path
    package: str  #: "linux-source-6.12"
    package_version: str  #: "6.12.117-1~deb12u1"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _free(folder: Path, needed: int, what: str) -> None:
    """Raise SourceError unless ``needed`` bytes are free where ``folder`` is or will be."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SourceError(
            f"{folder}: {what} needs {needed >> 20} MiB, {free >> 20} MiB are free; "
            "make room or set KTEST_CACHE"
        )


def _sound(deb: Path, record: Path) -> bool:
    """True if a cached package is the file that was put there, and a package."""
    # Not even opened unless it is a plain file: a FIFO would never end.
    if not deb.is_file() or not record.is_file():
        return False
    if record.read_text(encoding="utf-8", errors="replace").strip() != _sha256(deb):
        return False
    return capture(["dpkg-deb", "-f", deb, "Version"]).returncode == 0


def _cached(folder: Path, package: str, notify: Notify) -> list[Source]:
    """Sound packages in the cache, newest first; unsound ones are removed."""
    found = []
    for deb in folder.glob(f"{package}_*.deb"):
        record = deb.with_suffix(".sha256")
        if not _sound(deb, record):
            notify(f"{deb.name}: damaged in the cache, fetching it again")
            shutil.rmtree(deb) if deb.is_dir() else deb.unlink()
            record.unlink(missing_ok=True)
            continue
        fields = capture(["dpkg-deb", "-f", deb, "Version"])
        found.append((deb.stat().st_mtime, Source(deb, package, fields.stdout.decode().strip())))
    return [source for _, source in sorted(found, key=lambda f: f[0], reverse=True)]


def obtain(version: str, notify: Notify) -> Source:
    """Debian's source for a kernel version, from the cache or by ``apt-get download``.

    The newest package that apt knows is wanted; without a network the newest
    cached one serves.  Raises SourceError if there is neither.
    """
    package = source_package(version)
    folder = cache_root() / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / package, notify):
        cached = _cached(folder, package, notify)
        policy = capture(["apt-cache", "policy", package]).stdout.decode(errors="replace")
        candidate = next(
            (ln.split()[1] for ln in policy.splitlines() if ln.strip().startswith("Candidate:")),
            "(none)",
        )
        for source in cached:
            if candidate in (source.package_version, "(none)"):
                return source
        _free(folder, 400 << 20, "a kernel source package")
        notify(f"fetching {package} {candidate}")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            done = capture(
                ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package],
                cwd=Path(scratch),
            )
            debs = list(Path(scratch).glob("*.deb"))
            if done.returncode or not debs:
                if cached:
                    notify(f"cannot fetch {package} {candidate}, using {cached[0].package_version}")
                    return cached[0]
                said = done.stderr.decode(errors="replace").strip().splitlines()
                raise SourceError(
                    f"cannot fetch {package} and none is cached "
                    f"({said[-1] if said else 'apt-get failed'}); "
                    "check the network and run `apt-get update`"
                )
            target = folder / debs[0].name.replace("%3a", "_")
            (target.with_suffix(".sha256")).write_text(_sha256(debs[0]), encoding="utf-8")
            debs[0].replace(target)
        return Source(target, package, candidate)


def _unpack(source: Source, target: Path, notify: Notify) -> None:
    """Unpack the tar file inside the package as ``target``, all or nothing."""
    notify(f"unpacking {source.package} {source.package_version}")
    _free(target.parent, 6 << 30, "a kernel tree and its build")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        pipe = 'set -o pipefail; dpkg-deb --fsys-tarfile "$1" | tar -xO "$2" | tar -xJ -C "$3"'
        inside = f"./usr/src/{source.package}.tar.xz"
        done = capture(["bash", "-c", pipe, "unpack", source.deb, inside, scratch])
        roots = list(Path(scratch).iterdir())
        if done.returncode or len(roots) != 1:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise SourceError(
                f"{source.deb} cannot be unpacked in {target.parent}: "
                f"{said[0] if said else 'no kernel tree in it'}"
            )
        roots[0].replace(target)


def _inputs() -> str:
    """Identity of everything a prepared tree is made from, besides the source."""
    state = hashlib.sha256()
    for folder in (
        data_root() / "tools-testing-net",
        Path(selftests.__file__).parents[1] / "features",
    ):
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                state.update(file.name.encode() + file.read_bytes())
    for file in selftests.generator_files():
        state.update(file.read_bytes())
    return state.hexdigest()[:16]


def _tree_path(source: Source, suffix: str = "") -> Path:
    name = f"{source.package}_{source.package_version}".replace("~", "-")
    return cache_root() / "trees" / (f"{name}-{suffix}" if suffix else name)


def pristine(version: str, suffix: str, notify: Notify) -> tree.Tree:
    """An unpatched tree for a purpose of its own; the caller holds a lock on its path.

    The caller may change it; a mark says whether it was left as it was found.
    """
    source = obtain(version, notify)
    path = _tree_path(source, suffix)
    mark = path / STAMP
    if path.exists() and (not mark.exists() or tree.is_patched(tree.recognise(path))):
        notify(f"{path.name}: not as it was unpacked, unpacking it again")
        shutil.rmtree(path)
    if not path.exists():
        _unpack(source, path, notify)
        mark.write_text("{}", encoding="utf-8")
    return tree.recognise(path)


def prepared_from(path: Path) -> str:
    """Package and series of a tree in the cache, as one word; empty for other trees."""
    if not (path / STAMP).exists():
        return ""
    series = tree.patches_in(tree.recognise(path))
    return f"{path.name}+series-{series}" if series else path.name


def discard(found: tree.Tree) -> None:
    """Have a tree of the cache unpacked again next time."""
    (found.path / STAMP).unlink(missing_ok=True)


def unpatched(version: str, notify: Notify) -> tree.Tree:
    """An unpatched tree to build from: what the series is compared with."""
    with locked(cache_root() / "trees" / f"{source_package(version)}-unpatched", notify):
        return pristine(version, "unpatched", notify)


def _stamped(path: Path) -> object:
    """What a tree says it was prepared with; None if it is not whole, or not there."""
    try:
        stamp: object = json.loads((path / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stamp


def _bring_up(found: tree.Tree, programs: selftests.Programs, stamp: object) -> None:
    """Series and tests of today.  What cannot be leaves the tree and its stamp as they were."""
    tree.apply(found, dry_run=True)
    selftests.generate(found.path, found.version, programs=programs, dry_run=True)
    mark = found.path / STAMP
    mark.unlink(missing_ok=True)
    tree.apply(found)
    selftests.generate(found.path, found.version, programs=programs)
    mark.write_text(json.dumps(stamp), encoding="utf-8")


@contextlib.contextmanager
def _set_aside(path: Path) -> Iterator[None]:
    """Make room for another tree; the old one is back unless that other one succeeds."""
    # Hidden: who looks for a prepared tree must not find it.
    aside = path.with_name(f".{path.name}.old")
    for left in (aside, path) if _stamped(path) is None else (aside,):
        shutil.rmtree(left, ignore_errors=True)
    if path.exists():
        path.rename(aside)
    try:
        yield
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        if aside.exists():
            aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def prepare(version: str, notify: Notify) -> tree.Tree:
    """A tree in the cache with the series applied and the selftests generated.

    Made again from the package whenever it cannot be trusted; files that did
    not change keep their time stamps, so that a build stays incremental.  A
    template, feature or patch that is wrong raises ConfigError, SourceError or
    PatchError and costs no tree that there is.
    """
    source = obtain(version, notify)
    path = _tree_path(source)
    wanted = {"series": digest(read_series(version)), "inputs": _inputs()}
    with locked(path, notify):
        have = _stamped(path)
        if have == wanted:
            return tree.recognise(path)
        programs = selftests.render_all(version)
        if have is not None:
            try:
                found = tree.recognise(path)
                _bring_up(found, programs, wanted)
                return found
            except (SourceError, PatchError) as err:
                # Somebody may have changed what is ours to change; it can be had again.
                notify(f"{err}; unpacking it again")
        elif path.exists():
            notify(f"{path.name}: incomplete in the cache, unpacking it again")
        with _set_aside(path):
            _unpack(source, path, notify)
            found = tree.recognise(path)
            _bring_up(found, programs, wanted)
        return found
