# SPDX-License-Identifier: GPL-2.0-only
"""A pytest run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(
    *words: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    within: Sequence[str] = (),
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, at most ``timeout`` seconds; it does not know of the run it is part of.

    ``env`` is added to the environment, ``within`` is a command that starts what follows it.
    """
    mine = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [*within, sys.executable, "-m", "pytest", *words],
        cwd=cwd,
        env={**mine, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
