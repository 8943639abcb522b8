# SPDX-License-Identifier: GPL-2.0-only
"""Run pytest as a user would, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_pytest(kernel: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """``pytest --kernel=…`` in the project's folder."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--kernel={kernel}"]
    if tree := os.environ.get("KTEST_TREE"):
        argv.append(f"--ktest-tree={tree}")
    # Not an inner process of the pytest-xdist that may run this test.
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [*argv, *args], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
