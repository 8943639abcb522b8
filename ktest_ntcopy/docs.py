# SPDX-License-Identifier: GPL-2.0-only
"""Files and passages that are generated from the feature data, and whether they are stale."""

from __future__ import annotations

from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import Feature, debug_kconfig, kconfig, load_features
from ktest_ntcopy.features.traces import TRACES, render_traces
from ktest_ntcopy.kernel.kconfig import render
from ktest_ntcopy.paths import data_root

_BEGIN = "<!-- generated: {name} (ktest-ntcopy docs) -->"
_END = "<!-- end: {name} -->"


def features_table(features: tuple[Feature, ...]) -> str:
    """Markdown: what each kernel version has, and from whom."""
    versions = sorted({v for f in features for v in f.support})
    lines = [
        f"| Feature | {' | '.join(f'Linux {v}' for v in versions)} | Tests | Cases |",
        f"|---|{'---|' * len(versions)}---|---|",
    ]
    for f in features:
        states = [
            (f"`{s.series}`" if s.state == "series" else s.state) if s else "-"
            for s in (f.support.get(v) for v in versions)
        ]
        tests = [f"`{p.name}`" for p in f.programs] + [f"KUnit `{s.name}`" for s in f.kunit]
        cases = [len(p.points()) for p in f.programs] + [len(s.cases) for s in f.kunit]
        counts = " + ".join(map(str, cases)) or "0"
        lines.append(f"| {f.title} | {' | '.join(states)} | {', '.join(tests)} | {counts} |")
    return "\n".join(lines)


#: In the order of cost, and what several of a kind are called.
_KINDS = {
    "symbol": "symbols",
    "export": "exports",
    "member": "members",
    "struct": "structures",
    "enumerator": "enumerators",
    "prototype": "prototypes",
    "config": "options",
    "initial": "initial values",
    "pointer": "pointers",
    "call": "calls",
}


def expectations_table(features: tuple[Feature, ...]) -> str:
    """Markdown: by what each feature is told, and how much more of it is looked for."""
    lines = ["| Feature | Told by | Looked for |", "|---|---|---|"]
    for f in features:
        markers = ", ".join(f"{e.kind} `{e.name}`" for e in f.expectations if e.marker)
        counts = {k: sum(e.kind == k for e in f.expectations) for k in _KINDS}
        found = ", ".join(
            f"{n} {kind if n == 1 else _KINDS[kind]}" for kind, n in counts.items() if n
        )
        lines.append(f"| {f.name} | {markers} | {found} |")
    return "\n".join(lines)


def packages_table(text: str, group: str) -> str:
    """Markdown: the Debian packages of one group of ``setup/debian-packages.txt``."""
    rows = [line.split(None, 2) for line in text.splitlines() if line.startswith(f"{group} ")]
    return "\n".join(["| Package | For |", "|---|---|", *(f"| `{p}` | {w} |" for _, p, w in rows)])


def _replace(text: str, name: str, passage: str, path: Path) -> str:
    begin, end = _BEGIN.format(name=name), _END.format(name=name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ConfigError(f"{path}: the marks of the generated passage {name} are not there once")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{passage}\n{end}{rest.split(end)[1]}"


def rendered() -> dict[Path, str]:
    """Every generated file with the text it should have."""
    features = load_features()
    readme = data_root() / "README.md"
    text = readme.read_text(encoding="utf-8")
    text = _replace(text, "features", features_table(features), readme)
    text = _replace(text, "expectations", expectations_table(features), readme)
    listed = (data_root() / "setup/debian-packages.txt").read_text(encoding="utf-8")
    text = _replace(text, "packages", packages_table(listed, "net"), readme)
    return {
        data_root() / "Kconfig.fragment": render(kconfig()),
        data_root() / "Kconfig.debug.fragment": render(debug_kconfig(), debug=True),
        readme: text,
        TRACES: render_traces(features),
    }


def write(*, check: bool) -> list[Path]:
    """Bring generated files up to date; the ones that were stale.  ``check`` changes nothing."""
    stale = []
    for path, text in rendered().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                path.write_text(text, encoding="utf-8")
    return stale
