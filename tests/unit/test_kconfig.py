# SPDX-License-Identifier: GPL-2.0-only
"""Fragments: rendered, parsed, compared, and lost options explained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.features.model import KconfigOption
from ktest_ntcopy.kernel import kconfig, kconfig_deps

TEXT = """\
if TRACING_SUPPORT

menuconfig FTRACE
\tbool "Tracers"
\tdepends on TRACING_SUPPORT

if FTRACE

config KPROBE_EVENTS_ON_NOTRACE
\tbool "Do NOT protect notrace function from kprobe events"
\tdepends on KPROBE_EVENTS
\tdepends on DYNAMIC_FTRACE || \\
\t\t   SOMETHING_ELSE
\tdefault n
\thelp
\t  if you say so

endif # FTRACE

endif

menu "Other"
\tdepends on NET

config INNER
\tbool "x"
\tdepends on !UML && HZ = 100

endmenu
"""


def test_what_is_rendered_parses_back() -> None:
    options = (
        KconfigOption(name="CONFIG_A", why="a"),
        KconfigOption(name="CONFIG_B", why="b", value="17"),
    )
    assert kconfig.parse(kconfig.render(options)) == {"CONFIG_A": "y", "CONFIG_B": "17"}


def test_unset_and_absent_options_are_unmet() -> None:
    config = kconfig.parse('CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_S="text"\n')
    wanted = {"CONFIG_A": "y", "CONFIG_B": "y", "CONFIG_C": "m"}
    assert kconfig.unmet(wanted, config) == {"CONFIG_B": "n", "CONFIG_C": "n"}


def test_dependencies_come_from_the_option_and_the_blocks_around_it() -> None:
    found = kconfig_deps.definitions(TEXT, "K", ["KPROBE_EVENTS_ON_NOTRACE", "INNER"])
    (option,) = found["KPROBE_EVENTS_ON_NOTRACE"]
    assert [e.strip("()") for e in option.depends][:3] == [
        "TRACING_SUPPORT",
        "FTRACE",
        "KPROBE_EVENTS",
    ]
    (inner,) = found["INNER"]
    assert inner.depends == ("(NET)", "(!UML && HZ = 100)")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("A", True),
        ("B", False),
        ("!B && A", True),
        ("A && B", False),
        ("(A || B) && !C", True),
        ("A = y", True),
        ("A != y", False),
        ('S = "x"', True),
        ("M", True),
        ("$(cc-option,-m32) && A", True),
    ],
)
def test_expressions(expression: str, expected: bool) -> None:
    config = {"CONFIG_A": "y", "CONFIG_M": "m", "CONFIG_S": "x"}
    assert kconfig_deps.holds(expression, config) is expected


@given(st.text(alphabet='AB()!&|= ny"$', max_size=40))
def test_evaluation_never_raises(expression: str) -> None:
    kconfig_deps.holds(expression, {"CONFIG_A": "y"})


@given(st.text(max_size=400))
def test_reading_never_raises(text: str) -> None:
    kconfig_deps.definitions(text, "K", ["A"])
