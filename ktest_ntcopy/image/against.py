# SPDX-License-Identifier: GPL-2.0-only
"""``ktest-ntcopy check --against FRAGMENT``: options a kernel lacks, and where to set them.

JSON adds one key to the object of :mod:`ktest_ntcopy.image.check`, in place of "features"::

    "against": {"fragment", "tree",
                "options": [{"name", "wanted", "found", "menu", "defined",
                             "blocked_by": [], "note"}]}

Only options that differ are listed.  "menu" is the way through the menus and "defined" is
"FILE:LINE", both null if it is not known; "tree" is null if there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.check import envelope, head
from ktest_ntcopy.image.file.config import KernelConfig, parse_config, text_of
from ktest_ntcopy.image.file.kernel_file import KernelFile
from ktest_ntcopy.image.screen import safe_line
from ktest_ntcopy.kernel.kconfig_deps import holds
from ktest_ntcopy.kernel.kconfig_menu import Menus, require_kconfig

_UNSET = re.compile(r"^# (CONFIG_\w+) is not set$", re.MULTILINE)
_NO_OPTION = re.compile(r"^(?!#|\s*$|CONFIG_[A-Za-z0-9_]+=).*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One option that is not as the fragment says."""

    name: str
    wanted: str  #: "n" for one that must not be set
    found: str
    menu: str = ""  #: way through the menus, empty if it is not known
    defined: str = ""  #: FILE:LINE
    blocked_by: tuple[str, ...] = ()  #: dependencies that do not hold with this configuration
    note: str = ""  #: why it cannot be set there


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A kernel's configuration held against a fragment."""

    kernel: KernelFile
    fragment: Path
    wanted: int  #: options in the fragment
    tree: Path | None
    differences: tuple[Difference, ...]

    @property
    def status(self) -> int:
        """Exit status: 0 all as wanted, 1 not."""
        return 1 if self.differences else 0


def compare(kernel: KernelFile, fragment: Path, tree: Path | None = None) -> Comparison:
    """Find out what a kernel lacks.

    ``tree`` is the source tree that menus are looked up in, by default the one the kernel
    was built from.  Raises ConfigError, also if the kernel's configuration is not known.
    """
    wanted = _fragment(fragment)
    if kernel.config is None:
        raise ConfigError(
            f"{kernel.path}: no configuration in it or beside it, so nothing can be compared; "
            "give the build directory, or build with CONFIG_IKCONFIG=y"
        )
    if tree is not None:
        require_kconfig(tree)
    tree = tree or kernel.source_tree
    different = {n: v for n, v in wanted.items() if kernel.config[n] != v}
    menus = Menus(tree, kernel.arch) if tree and different else None
    return Comparison(
        kernel=kernel,
        fragment=fragment,
        wanted=len(wanted),
        tree=tree,
        differences=tuple(
            _difference(name, value, kernel.config, menus) for name, value in different.items()
        ),
    )


def _fragment(path: Path) -> dict[str, str]:
    text = text_of(path).replace("\r\n", "\n")
    if "\0" in text:
        raise ConfigError(f"{path}: is no text; give a fragment with lines like CONFIG_NAME=y")
    if wrong := _NO_OPTION.search(text):
        number = text.count("\n", 0, wrong.start()) + 1
        raise ConfigError(
            f"{path}:{number}: neither CONFIG_NAME=VALUE nor a comment: {safe_line(wrong[0][:80])}"
        )
    wanted = {**dict.fromkeys(_UNSET.findall(text), "n"), **parse_config(text).values}
    if not wanted:
        raise ConfigError(f"{path}: states no option; a line is CONFIG_NAME=y")
    return wanted


def _difference(name: str, wanted: str, config: KernelConfig, menus: Menus | None) -> Difference:
    found = config[name]
    if menus is None:
        return Difference(name=name, wanted=wanted, found=found)
    places = menus.find(name)
    if not places:
        note = "this tree has no such option"
        return Difference(name=name, wanted=wanted, found=found, note=note)
    # Of several definitions, the one that least is in the way of.
    unmet = {p: tuple(d for d in p.depends if not holds(d, config.values)) for p in places}
    place = min(places, key=lambda p: (not p.prompt, len(unmet[p])))
    note = ""
    if not place.prompt:
        selectors = sorted(set(menus.selected_by.get(place.name, ())))
        by = f"; selected by {', '.join(selectors[:5])}" if selectors else ""
        note = f"has no prompt, so it follows from its default{by}"
    elif place.visible and not holds(place.visible, config.values):
        note = f"is shown only if {place.visible}"
    return Difference(
        name=name,
        wanted=wanted,
        found=found,
        menu=place.path,
        defined=f"{place.file}:{place.line}",
        blocked_by=unmet[place] if wanted != "n" else (),
        note=note,
    )


def to_text(comparison: Comparison) -> str:
    """For people."""
    count = len(comparison.differences)
    lines = [head(comparison.kernel), ""]
    if not count:
        return "\n".join(
            [*lines, f"all {comparison.wanted} options are as in {comparison.fragment}"]
        )
    lines.append(f"{count} of {comparison.wanted} options are not as in {comparison.fragment}:")
    for one in comparison.differences:
        found = "not set" if one.found == "n" else f"is {one.found}"
        lines += ["", f"{one.name}={one.wanted}: {found}"]
        if one.menu:
            lines.append(f"  {one.menu}  ({one.defined})")
        if one.blocked_by:
            lines.append(f"  first needs {' and '.join(one.blocked_by)}")
        if one.note:
            lines.append(f"  {one.note}")
    if comparison.tree is None:
        lines += [
            "",
            "No source tree is known for this kernel, so menus and dependencies are not shown; "
            "give --tree=DIR.",
        ]
    return "\n".join(lines)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """For scripts.  See the module for its shape."""
    return {
        **envelope(comparison.kernel, comparison.status),
        "against": {
            "fragment": str(comparison.fragment),
            "tree": str(comparison.tree) if comparison.tree else None,
            "options": [
                {
                    "name": one.name,
                    "wanted": one.wanted,
                    "found": one.found,
                    "menu": one.menu or None,
                    "defined": one.defined or None,
                    "blocked_by": list(one.blocked_by),
                    "note": one.note,
                }
                for one in comparison.differences
            ],
        },
    }
