# SPDX-License-Identifier: GPL-2.0-only
"""The patch series: read them, apply them to file contents, format them from commits."""

from __future__ import annotations

import email
import email.policy
import hashlib
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ktest_ntcopy.errors import ConfigError, PatchError, SourceError
from ktest_ntcopy.kernel.process import capture, output
from ktest_ntcopy.paths import data_root

COVER = "0000-cover-letter.patch"

#: A person's settings must not change what we format or how we apply.
_NO_SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
#: Nor may those of the repository, as far as they matter here.
_GIT = (
    "git",
    *("-c", "core.autocrlf=false", "-c", "core.abbrev=12", "-c", "diff.algorithm=myers"),
    *("-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false", "-c", "gc.auto=0"),
)
_IDENTITY = ("-c", "user.name=ktest_ntcopy", "-c", "user.email=ktest-ntcopy@localhost")


def _git(repo: Path, *args: str | Path) -> str:
    """Run git in a repository with nobody's settings; its output."""
    return output([*_GIT, *_IDENTITY, *args], cwd=repo, env=_NO_SETTINGS, error=PatchError)


@dataclass(frozen=True)
class Patch:
    """One file of a series."""

    path: Path

    @cached_property
    def text(self) -> bytes:
        return self.path.read_bytes()

    @property
    def subject(self) -> str:
        message = email.message_from_bytes(self.text, policy=email.policy.default)
        return re.sub(r"\s+", " ", str(message["subject"]))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Paths it touches, new ones included, in order of appearance."""
        found = re.findall(rb"^diff --git a/(\S+) b/\S+$", self.text, re.MULTILINE)
        return tuple(dict.fromkeys(p.decode() for p in found))

    def hunk_at(self, file: str, line: int) -> int:
        """Number (from 1) of the hunk of ``file`` that begins at old line ``line``; 0 if none."""
        section = self.text.split(f"diff --git a/{file} ".encode(), 1)[-1]
        section = section.split(b"\ndiff --git ", 1)[0]
        starts = [int(n) for n in re.findall(rb"^@@ -(\d+)", section, re.MULTILINE)]
        return starts.index(line) + 1 if line in starts else 0


@dataclass(frozen=True, kw_only=True)
class Series:
    """Patches on one subject, posted together."""

    name: str
    folder: Path
    version: str
    base: str  #: release it was made for, e.g. "6.12.117"
    prefix: str  #: of the subject, e.g. "PATCH net-next"
    patches: tuple[Patch, ...]

    @property
    def cover(self) -> Path:
        return self.folder / COVER


def versions() -> tuple[str, ...]:
    """Kernel versions that have a folder of series."""
    return tuple(sorted(p.parent.name for p in (data_root() / "linux-patches").glob("*/*.toml")))


def _settings(version: str) -> dict[str, object]:
    path = data_root() / "linux-patches" / version / "series.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        known = ", ".join(versions())
        raise SourceError(f"no series for Linux {version}; there are some for {known}") from err


def source_package(version: str) -> str:
    """Debian package that holds the source, e.g. "linux-source-6.12"."""
    return str(_settings(version)["package"])


def read_series(version: str, *, complete: bool = True) -> tuple[Series, ...]:
    """All series for a kernel version, in the order they apply.

    Unless ``complete``, a series may still have no patches.
    """
    settings = _settings(version)
    order = settings["order"]
    assert isinstance(order, list)
    found = []
    for name in order:
        folder = data_root() / "linux-patches" / version / name
        patches = tuple(Patch(p) for p in sorted(folder.glob("*.patch")) if p.name != COVER)
        if not patches and complete:
            raise ConfigError(f"{folder}: no patches, but series.toml lists it")
        found.append(
            Series(
                name=name,
                folder=folder,
                version=version,
                base=str(settings["base"]),
                prefix=str(settings["prefix"]),
                patches=patches,
            )
        )
    return tuple(found)


def digest(series: tuple[Series, ...]) -> str:
    """Identity of the patches' contents."""
    state = hashlib.sha256()
    for patch in (p for s in series for p in s.patches):
        state.update(patch.path.name.encode() + b"\0" + patch.text)
    return state.hexdigest()[:16]


def touched(series: tuple[Series, ...]) -> tuple[str, ...]:
    """Paths that the series touch, sorted."""
    return tuple(sorted({f for s in series for p in s.patches for f in p.files}))


@contextmanager
def scratch_repository(
    tree: Path, files: tuple[str, ...], *, originals: Path | None = None
) -> Iterator[Path]:
    """A throw-away git repository that holds just these files of a tree, committed.

    A file that exists in ``originals`` is taken from there.  Applying to the
    repository costs milliseconds and changes nothing that anyone keeps.
    """
    with tempfile.TemporaryDirectory(prefix="ktest-series-") as name:
        repo = Path(name)
        for file in files:
            kept = originals / file if originals else tree / file
            source = kept if kept.is_file() else tree / file
            if source.is_file():
                (repo / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, repo / file)  # with its mode: scripts are executable
        _git(repo, "init", "-q")
        _git(repo, "add", "-A", "-f")
        _git(repo, "commit", "-q", "-m", "base", "--allow-empty")
        yield repo


def try_apply(repo: Path, patch: Patch, *options: str) -> str:
    """Apply to work tree and index; git's complaint, empty if there is none."""
    argv = [*_GIT, "apply", "--index", *options, "-"]
    done = capture(argv, cwd=repo, env=_NO_SETTINGS, stdin=patch.text)
    return (done.stderr.decode(errors="replace") or "failed") if done.returncode else ""


def _failure(series: Series, patch: Patch, stderr: str, release: str) -> PatchError:
    """Turn git's complaint into file, hunk and the version the patch was made for."""
    where = re.search(r"patch failed: (\S+):(\d+)", stderr)
    missing = re.search(r"error: (\S+): (does not exist|already exists|No such file)", stderr)
    if where:
        hunk = patch.hunk_at(where[1], int(where[2]))
        place = f"{where[1]}, hunk {hunk} (line {where[2]})"
    elif missing:
        place = f"{missing[1]} {missing[2].lower()}"
    else:
        place = stderr.strip().splitlines()[0] if stderr.strip() else "unknown place"
    return PatchError(
        f"{series.name}/{patch.path.name} does not apply to Linux {release}: {place}; "
        f"it was made for {series.base}"
    )


def apply_one(repo: Path, series: Series, patch: Patch, *, release: str) -> None:
    """Apply one patch exactly (offsets allowed, no fuzz) in a scratch repository, as a commit.

    Raises PatchError naming patch, file, hunk and the version it was made for.
    """
    if complaint := try_apply(repo, patch):
        if not try_apply(repo, patch, "--check", "-R"):
            raise PatchError(
                f"{series.name}/{patch.path.name} is in this tree already, but not all of its "
                "series is; take it out first"
            )
        raise _failure(series, patch, complaint, release)
    _git(repo, "reset", "-q", "--hard")
    _git(repo, "am", "-q", "--keep-cr", patch.path.absolute())


def apply_in(repo: Path, series: tuple[Series, ...], *, release: str) -> None:
    """Apply whole series, patch by patch; see :func:`apply_one`."""
    for one in series:
        for patch in one.patches:
            apply_one(repo, one, patch, release=release)


def undo_in(repo: Path, series: Series) -> bool:
    """Take a series out of a scratch repository; False, and no change, if it is not in."""
    for patch in reversed(series.patches):
        if try_apply(repo, patch, "-R"):
            _git(repo, "reset", "-q", "--hard")
            return False
    _git(repo, "commit", "-q", "-a", "-m", f"without {series.name}")
    return True


def git_am(tree: Path, series: tuple[Series, ...]) -> None:
    """Apply to a real git tree as commits; on failure the tree is as it was."""
    before = output(["git", "rev-parse", "HEAD"], cwd=tree, error=PatchError).strip()
    named = capture(["git", "config", "user.email"], cwd=tree).returncode == 0
    paths = [str(p.path.absolute()) for s in series for p in s.patches]
    done = capture([*_GIT, *(() if named else _IDENTITY), "am", "-q", *paths], cwd=tree)
    if done.returncode:
        capture([*_GIT, "am", "--abort"], cwd=tree)
        capture([*_GIT, "reset", "-q", "--keep", before], cwd=tree)
        raise PatchError(f"git am in {tree}: {done.stderr.decode(errors='replace').strip()}")


def format_series(repo: Path, commits: str, series_folder: Path, prefix: str) -> None:
    """Write the patches of a commit range, byte for byte the same each time.

    Subject and text of the cover letter are kept from the one that is there.
    """
    subject, blurb = _cover_text(series_folder / COVER)
    with tempfile.TemporaryDirectory(prefix="ktest-format-") as name:
        target = Path(name)
        argv = ["--zero-commit", "--no-signature", "--no-attach", "--no-thread", "--no-base"]
        argv += ["--no-to", "--no-cc", "--no-renames", f"--subject-prefix={prefix}"]
        argv += ["--cover-letter", "--cover-from-description=none", "-o", name]
        _git(repo, "format-patch", "-q", *argv, commits)
        cover = (target / COVER).read_text(encoding="utf-8")
        last = _git(repo, "log", "-1", "--format=%aD%n%an <%ae>", commits.split("..")[-1])
        date, author = last.splitlines()
        # git dates a cover letter by the clock and signs it with whoever runs the command.
        cover = re.sub(r"^Date: .*$", f"Date: {date}", cover, count=1, flags=re.MULTILINE)
        cover = re.sub(r"^From: .*$", f"From: {author}", cover, count=1, flags=re.MULTILINE)
        cover = cover.replace("*** SUBJECT HERE ***", subject).replace("*** BLURB HERE ***", blurb)
        (target / COVER).write_text(cover, encoding="utf-8")
        series_folder.mkdir(parents=True, exist_ok=True)
        for old in series_folder.glob("*.patch"):
            old.unlink()
        for new in sorted(target.iterdir()):
            shutil.copyfile(new, series_folder / new.name)


def _cover_text(path: Path) -> tuple[str, str]:
    if not path.exists():
        return "SUBJECT", "BLURB"
    text = path.read_text(encoding="utf-8")
    header, body = text.split("\n\n", 1)
    subject = re.search(r"^Subject: (.*(?:\n[ \t].*)*)", header, re.MULTILINE)
    plain = re.sub(r"^\[[^\]]*\]\s*", "", re.sub(r"\s+", " ", subject[1])) if subject else ""
    # The text ends where git's own part begins: author (count): list of subjects.
    blurb = re.split(r"^\S.* \(\d+\):\n", body, maxsplit=1, flags=re.MULTILINE)[0]
    return plain, blurb.strip("\n")
