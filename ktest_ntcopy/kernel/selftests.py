# SPDX-License-Identifier: GPL-2.0-only
"""Write the features' C tests into a kernel tree.

Everything is rendered before anything is written, and a write that fails half
way is taken back: a tree has all of the tests or is as it was.  A file that is
not as we generated it is someone's work and is never overwritten.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import ConfigError, SourceError
from ktest_ntcopy.features.model import Feature, load_features
from ktest_ntcopy.kernel.guest_program import build_static
from ktest_ntcopy.kernel.kbuild_lists import (
    add_ignored,
    add_narrow_programs,
    add_options,
    add_programs,
)
from ktest_ntcopy.kernel.manifest import (
    NAME,
    Manifest,
    ManifestCase,
    ManifestProgram,
    dump_manifest,
    load_manifest,
    manifest_path,
    sha256,
)
from ktest_ntcopy.kernel.render import Rendered, render
from ktest_ntcopy.paths import data_root

__all__ = [
    "GenerateReport",
    "Manifest",
    "ManifestCase",
    "ManifestProgram",
    "Programs",
    "build_static",
    "generate",
    "generator_files",
    "load_manifest",
    "manifest_path",
    "owned_paths",
    "render_all",
]

SELFTESTS = Path("tools/testing/selftests")

#: Rendered programs by their kselftest target.
Programs = Mapping[str, tuple[Rendered, ...]]

#: Files of a target's folder that are edited, not owned.
_LISTS = ("Makefile", ".gitignore", "config")


@dataclass(frozen=True, kw_only=True)
class GenerateReport:
    """What :func:`generate` did."""

    tree: Path
    version: str  #: "6.12"
    written: tuple[Path, ...]  #: absolute, sorted
    unchanged: tuple[Path, ...]
    manifests: tuple[Path, ...]  #: one per kselftest target


def templates() -> Path:
    """Folder that the programs' templates are named relative to."""
    return data_root() / "tools-testing-net"


def _features(version: str, features: Sequence[Feature] | None) -> Iterator[Feature]:
    for feature in load_features() if features is None else features:
        if version in feature.support:
            yield feature


def render_all(
    version: str,
    *,
    features: Sequence[Feature] | None = None,
    folder: Path | None = None,
) -> Programs:
    """Every program for a kernel version, in memory: no tree is touched.

    ``features`` and ``folder`` replace the shipped data and templates.  Raises
    ConfigError if data and template disagree or one of them is wrong.
    """
    by_target: dict[str, list[Rendered]] = {}
    for feature in _features(version, features):
        for program in feature.programs:
            same = by_target.setdefault(program.target, [])
            if any(r.program.name == program.name for r in same):
                raise ConfigError(
                    f"{feature.path}: {program.target} has a program {program.name} already"
                )
            same.append(render(feature, program, version, folder or templates()))
    return {target: tuple(by_target[target]) for target in sorted(by_target)}


def _read(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise SourceError(f"{path}: cannot be read ({err}); is this a kernel tree?") from err
    if "\r" in text:
        # Its lines would get our ends, or the file both kinds.
        raise SourceError(f"{path}: has carriage returns (CRLF line ends); convert it to LF first")
    return text


def _options(rendered: Sequence[Rendered]) -> dict[str, str]:
    options: dict[str, str] = {}
    for feature in {r.feature.name: r.feature for r in rendered}.values():
        for option in feature.kconfig:
            if option.selftest:
                options.setdefault(option.name, option.value)
    return options


def _content(path: Path) -> bytes | None:
    """Bytes of a regular file, None for anything else."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as err:
        raise SourceError(f"{path}: cannot be read ({err.strerror})") from err


def _recorded(manifest: Path) -> Mapping[str, str]:
    """SHA-256 of each file as it was generated; empty for a source that has no record.

    A manifest that cannot be read records nothing: :func:`generate` replaces it.
    """
    try:
        return load_manifest(manifest).sha256
    except ConfigError:
        return {}


def _is_ours(path: Path, recorded: Mapping[str, str]) -> bool:
    """True if no work is lost with the file: it is as generated, or not there."""
    if not path.exists() and not path.is_symlink():
        return True
    content = _content(path)
    return content is not None and recorded.get(path.name) == sha256(content)


def _require_ours(folder: Path, sources: Mapping[str, str]) -> None:
    """Raise SourceError if a source would replace what someone else wrote."""
    recorded = _recorded(folder / NAME)
    for name, text in sorted(sources.items()):
        path = folder / name
        if _content(path) != text.encode() and not _is_ours(path, recorded):
            raise SourceError(f"{path}: differs from what was generated; move it away or delete it")


def _target_files(
    folder: Path, version: str, target: str, rendered: Sequence[Rendered]
) -> dict[Path, str]:
    """All files of one target's folder, as they have to be."""
    sources = {f"{r.program.name}.c": r.text for r in rendered}
    for one in rendered:
        sources |= one.headers
    _require_ours(folder, sources)
    files = {folder / name: text for name, text in sources.items()}
    makefile, ignored, config = (folder / name for name in _LISTS)
    try:
        listed = {r.program.name: r.program.libs for r in rendered if not r.program.bits}
        narrow = {r.program.name: r.program.libs for r in rendered if r.program.bits}
        files[makefile] = add_narrow_programs(add_programs(_read(makefile), listed), narrow)
    except ConfigError as err:
        raise SourceError(f"{makefile}: {err}") from err
    files[ignored] = add_ignored(
        _read(ignored) if ignored.exists() else "# SPDX-License-Identifier: GPL-2.0-only\n",
        [r.program.name for r in rendered],
    )
    files[config] = add_options(_read(config) if config.exists() else "", _options(rendered))
    manifest = dump_manifest(target, version, rendered, sources)
    files[folder / NAME] = manifest
    return files


def _stage(path: Path, text: str) -> Path:
    """The new content beside the old; renaming it is all that is left to do."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", delete=False
    ) as new:
        staged = Path(new.name)
        try:
            new.write(text)
            staged.chmod(path.stat().st_mode & 0o7777 if path.exists() else 0o644)
        except OSError:
            staged.unlink()
            raise
    return staged


def _write_all(files: Mapping[Path, str]) -> None:
    """Write all files or none.  Raises OSError."""
    staged: dict[Path, Path] = {}
    before: dict[Path, bytes | None] = {}
    try:
        for path, text in files.items():
            staged[path] = _stage(path, text)
        for path, new in staged.items():
            before[path] = path.read_bytes() if path.exists() else None
            new.replace(path)
    except OSError:
        for path, old in before.items():
            with suppress(OSError):
                if old is None:
                    path.unlink(missing_ok=True)
                else:
                    path.write_bytes(old)
        raise
    finally:
        for new in staged.values():
            new.unlink(missing_ok=True)


def generate(
    tree: Path,
    version: str,
    *,
    programs: Programs | None = None,
    dry_run: bool = False,
) -> GenerateReport:
    """Write the tests of all features into a tree of that version ("6.12").

    Enters them into the target's Makefile, .gitignore and config and writes a
    manifest.  A second run changes nothing.  ``programs`` are what
    :func:`render_all` gave for that version, which is asked if there are none.
    Raises ConfigError if data and template disagree, SourceError if the tree
    cannot take the tests or has a source of theirs that is not as it was
    generated.  A dry run writes nothing and reports, or raises, what the real
    one would.
    """
    if programs is None:
        programs = render_all(version)
    files: dict[Path, str] = {}
    manifests = []
    for target, rendered in programs.items():
        place = tree / SELFTESTS / target
        if not place.is_dir():
            raise SourceError(f"{tree}: no kselftest target {target} ({place} is missing)")
        files |= _target_files(place, version, target, rendered)
        manifests.append(manifest_path(tree, target))
    if not files:
        raise ConfigError(f"no feature has tests for Linux {version}")
    # Manifests last: stopped before that, what lies there is the new text or as recorded.
    ordered = sorted(files.items(), key=lambda item: (item[0].name == NAME, item[0]))
    changed = {path: text for path, text in ordered if _content(path) != text.encode()}
    try:
        if not dry_run:
            _write_all(changed)
    except OSError as err:
        raise SourceError(f"{tree}: nothing was written: {err}") from err
    return GenerateReport(
        tree=tree,
        version=version,
        written=tuple(sorted(changed)),
        unchanged=tuple(sorted(files.keys() - changed.keys())),
        manifests=tuple(manifests),
    )


def generator_files() -> tuple[Path, ...]:
    """The modules that decide what :func:`generate` writes, besides data and templates."""
    modules = ("kbuild_lists", "manifest", "render", "selftests")
    return tuple(Path(__file__).with_name(f"{name}.py") for name in modules)


def owned_paths(tree: Path) -> set[str]:
    """Paths relative to ``tree`` that a generated tree may differ in from a pristine one.

    Empty before the first :func:`generate`: then any difference is someone else's.
    A source that is there and not as it was generated is someone's, too; lists are
    always among them, for generating keeps the lines it did not enter.
    """
    paths: set[str] = set()
    for found in sorted((tree / SELFTESTS).glob(f"*/{NAME}")):
        recorded = _recorded(found)
        sources = {name for name in recorded if _is_ours(found.with_name(name), recorded)}
        names = {*_LISTS, found.name, *sources}
        paths |= {str((found.parent / name).relative_to(tree)) for name in names}
    return paths
