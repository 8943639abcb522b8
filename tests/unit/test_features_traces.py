# SPDX-License-Identifier: GPL-2.0-only
"""The quick reading of feature files says what the full one says."""

from __future__ import annotations

import subprocess
import sys

from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.features.traces import load_traces


def test_same_as_the_whole_feature() -> None:
    whole = [(f.name, f.title, f.expectations) for f in load_features()]
    assert [(t.name, t.title, t.expectations) for t in load_traces()] == whole
    lines = [[e.source for e in f.expectations] for f in load_features()]
    assert [[e.source for e in t.expectations] for t in load_traces()] == lines


def test_asking_a_kernel_imports_nothing_that_it_does_not_need() -> None:
    code = "import sys, ktest_ntcopy.image.check_command as c, ktest_ntcopy.image.check; " + (
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ktest_ntcopy.features.traces" in loaded
    unwanted = {"pytest", "jinja2", "junitparser", "elftools", "ktest_ntcopy.features.model"}
    assert not loaded & unwanted
