# SPDX-License-Identifier: GPL-2.0-only
"""The quick reading of feature files says what the full one says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.features.traces import TRACES, load_traces, read_traces, render_traces


def test_same_as_the_whole_feature() -> None:
    whole = [(f.name, f.title, f.expectations) for f in load_features()]
    assert [(t.name, t.title, t.expectations) for t in load_traces()] == whole
    lines = [[e.source for e in f.expectations] for f in load_features()]
    assert [[e.source for e in t.expectations] for t in load_traces()] == lines


def test_generated_file_is_up_to_date() -> None:
    assert TRACES.read_text(encoding="utf-8") == render_traces(load_features())


def test_generated_file_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktest_ntcopy.features.traces.expectations", lambda *_: pytest.fail("read"))
    assert read_traces(TRACES.parent, TRACES) == load_traces()


def test_changed_feature_file_is_read_itself(tmp_path: Path) -> None:
    for path in TRACES.parent.glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        changed = text.replace('title = "', 'title = "Not ', 1)
        (tmp_path / path.name).write_text(changed, encoding="utf-8")
    (tmp_path / "extra.toml").write_text('name = "extra"\ntitle = "Extra"\n', encoding="utf-8")
    read = {t.name: t for t in read_traces(tmp_path, TRACES)}
    assert read.pop("extra").title == "Extra"
    for known in load_traces():
        assert read[known.name].title == f"Not {known.title}"
        assert read[known.name].expectations == known.expectations


@pytest.mark.parametrize("generated", [None, "", "[]", "{", "\udcff"])
def test_works_without_the_generated_file(tmp_path: Path, generated: str | None) -> None:
    kept = tmp_path / "traces.json"
    if generated is not None:
        kept.write_bytes(generated.encode("utf-8", "surrogateescape"))
    assert read_traces(TRACES.parent, kept) == load_traces()


def test_asking_a_kernel_imports_nothing_that_it_does_not_need() -> None:
    code = "import sys, ktest_ntcopy.image.check_command as c, ktest_ntcopy.image.check; " + (
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ktest_ntcopy.features.traces" in loaded
    unwanted = {"pytest", "jinja2", "junitparser", "elftools", "ktest_ntcopy.features.model"}
    unwanted |= {"tomllib", "lzma", "bz2"}
    assert not loaded & unwanted
