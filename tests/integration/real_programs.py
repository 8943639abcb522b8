# SPDX-License-Identifier: GPL-2.0-only
"""A pytest plugin that puts the programs named by REAL_PROGRAMS into the guest.

The variable holds JSON: path in the guest -> file here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def pytest_ktest_build_programs() -> Mapping[str, Path]:
    named: dict[str, str] = json.loads(os.environ["REAL_PROGRAMS"])
    return {there: Path(here) for there, here in named.items()}
