# SPDX-License-Identifier: GPL-2.0-only
"""Kconfig.fragment: written from the feature data, merged into a tree, checked afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ktest_ntcopy.errors import BuildError
from ktest_ntcopy.features.model import KconfigOption
from ktest_ntcopy.kernel import kconfig_deps
from ktest_ntcopy.kernel.process import Notify, run_logged
from ktest_ntcopy.kernel.tree import Tree

_HEADER = """\
# SPDX-License-Identifier: GPL-2.0-only
# Options the tests need, on top of any configuration:
#   scripts/kconfig/merge_config.sh .config Kconfig.fragment
# Generated from ktest_ntcopy/features/*.toml by `ktest-ntcopy docs`; edit those.
"""

_DEBUG_HEADER = """\
# SPDX-License-Identifier: GPL-2.0-only
# Options of a kernel that watches itself, on top of those the tests need:
#   scripts/kconfig/merge_config.sh .config Kconfig.fragment Kconfig.debug.fragment
# Generated from ktest_ntcopy/features/kernels/debug.toml by `ktest-ntcopy docs`; edit that.
"""


def render(options: tuple[KconfigOption, ...], *, debug: bool = False) -> str:
    """The text of Kconfig.fragment, or of Kconfig.debug.fragment."""
    lines = [_DEBUG_HEADER if debug else _HEADER]
    for option in options:
        lines.append(f"# {option.why}")
        lines.append(f"{option.name}={option.value}\n")
    return "\n".join(lines).rstrip("\n") + "\n"


def parse(text: str) -> dict[str, str]:
    """Options of a .config or fragment; "is not set" becomes "n"."""
    found = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", text, re.MULTILINE))
    unset = re.findall(r"^# (CONFIG_\w+) is not set$", text, re.MULTILINE)
    return {**dict.fromkeys(unset, "n"), **found}


def unmet(wanted: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Options whose value is not the wanted one, with the value found ("n" if absent)."""
    return {
        name: config.get(name, "n")
        for name, value in wanted.items()
        if config.get(name, "n") != value
    }


def configure(tree: Tree, out: Path, fragment: str, notify: Notify) -> None:
    """Write ``out/.config``: tinyconfig plus the fragment.

    Raises BuildError naming each option that did not stick and what it lacks.
    make compares contents, so an unchanged configuration rebuilds nothing.
    """
    wanted = parse(fragment)
    (out / "Kconfig.fragment").write_text(fragment, encoding="utf-8")
    log = out / "config.log"
    base = ["make", "-C", str(tree.path), f"O={out}"]
    merge = [str(tree.path / "scripts/kconfig/merge_config.sh"), "-m", "-O", str(out)]
    steps = (
        [*base, "tinyconfig"],
        [*merge, str(out / ".config"), str(out / "Kconfig.fragment")],
        [*base, "olddefconfig"],
    )
    for argv in steps:
        if run_logged(argv, log=log, title="configuring", notify=notify, cwd=out):
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise BuildError(f"configuring Linux {tree.release}: {said[-1] if said else argv[0]}")
    after = (out / ".config").read_text(encoding="utf-8")
    lost = unmet(wanted, parse(after))
    if lost:
        reasons = kconfig_deps.explain(tree, out, tuple(lost))
        listed = "; ".join(f"{name} ({reasons[name]})" for name in sorted(lost))
        raise BuildError(f"options of the fragment did not stick: {listed}")
