# SPDX-License-Identifier: GPL-2.0-only
"""The text of a feature file, for tests to add to and to damage."""

from __future__ import annotations

from collections.abc import Mapping

HEAD = """
name = "demo"
title = "A title"
summary = "A summary"
seed = "A seed"
[kernel."6.12"]
state = "series"
series = "20-demo"
"""


def with_kunit(suite: str, cases: Mapping[str, str], more: str = "") -> str:
    """The head and a KUnit suite whose cases are names and what they are about.

    ``more`` is further lines of the suite.
    """
    text = HEAD + '[[kconfig]]\nname = "CONFIG_DEMO_TEST"\nwhy = "because"\n'
    text += f'[[kunit]]\nsuite = "{suite}"\nwhy = "because"\noption = "CONFIG_DEMO_TEST"\n{more}'
    for name, about in cases.items():
        text += f'[[kunit.cases]]\nname = "{name}"\nabout = "{about}"\n'
    return text
