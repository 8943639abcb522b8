# SPDX-License-Identifier: GPL-2.0-only
"""Where an option is found in the configuration menus, read from a tree's Kconfig files.

A menu of ``make menuconfig`` is what the files nest explicitly (``menu``) and what they
nest by dependency: an entry that depends on the one before it is shown below it.
Expressions are those of :mod:`ktest_ntcopy.kernel.kconfig_deps`, and why no library reads
the files is said there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.kernel.kconfig_deps import split

_FILES = 20_000  # that one tree may include; 6.12 has 1,700
_NESTED = 64  # files that include each other

#: Folder below arch/ for `uname -m`.
_ARCHES = {"x86_64": "x86", "i686": "x86", "aarch64": "arm64", "s390x": "s390", "riscv64": "riscv"}

_BLOCK = re.compile(r"(menu|choice|comment|menuconfig|config|mainmenu)\b\s*(.*)")
_PROMPT = re.compile(
    r"(?:bool|tristate|string|hex|int|prompt)\s+([\"'])((?:\\.|(?!\1).)*)\1(?:\s+if\s+(.*))?"
)
_SOURCE = re.compile(r"(o?r?source|ro?source)\s+\"([^\"]+)\"")


@dataclass(frozen=True)
class Place:
    """One definition of an option."""

    name: str  #: without CONFIG_
    menus: tuple[str, ...]  #: titles from the top, without the option's own
    prompt: str  #: empty if it cannot be set by hand
    depends: tuple[str, ...]  #: expressions, all of which must hold
    visible: str  #: expression that must hold for the prompt to be shown; empty: always
    file: str  #: below the tree
    line: int

    @property
    def path(self) -> str:
        """Way through the menus, as a person follows it."""
        return " > ".join((*self.menus, self.prompt or f"({self.name})"))


@dataclass
class _Open:
    """An entry whose attributes are being read."""

    kind: str  #: "config", "menu", "choice", "comment"
    name: str
    file: str
    line: int
    prompt: str = ""
    visible: str = ""
    depends: list[str] = field(default_factory=list)


@dataclass
class _Menu:
    """A menu, a choice or the root; ``chain`` is what an entry may be shown below."""

    menus: tuple[str, ...]
    depends: tuple[str, ...] = ()
    chain: list[tuple[str, str]] = field(default_factory=list)  #: symbol, prompt
    conditions: list[tuple[str, ...]] = field(default_factory=list)  #: of the ifs around


def require_kconfig(tree: Path) -> None:
    """Raise ConfigError if there is no kernel source tree."""
    if not (tree / "Kconfig").is_file():
        raise ConfigError(f"{tree}: no kernel source tree (no Kconfig in it)")


class Menus:
    """All options of a tree.  Raises ConfigError if its top file cannot be read."""

    def __init__(self, tree: Path, arch: str) -> None:
        self._tree = tree
        self._arch = _ARCHES.get(arch, arch)
        self.places: dict[str, list[Place]] = {}
        self.selected_by: dict[str, list[str]] = {}  #: option -> those that select it
        self._open: _Open | None = None
        self._stack = [_Menu(())]
        self._left = _FILES
        require_kconfig(tree)
        self._file("Kconfig", 0)
        self._close()

    def find(self, name: str) -> tuple[Place, ...]:
        """Definitions of an option, with or without CONFIG_; those with a prompt first."""
        found = self.places.get(name.removeprefix("CONFIG_"), [])
        return tuple(sorted(found, key=lambda p: not p.prompt))

    def _file(self, name: str, depth: int) -> None:
        name = name.replace("$(SRCARCH)", self._arch).replace("$SRCARCH", self._arch)
        self._left -= 1
        if depth > _NESTED or self._left < 0:
            raise ConfigError(f"{self._tree}: Kconfig files include each other without end")
        file = self._tree / name
        try:
            if not file.is_file():  # generated ones are not there before a build
                return
            text = file.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return
        for number, line in _statements(text):
            if source := _SOURCE.match(line):
                self._close()
                folder = f"{Path(name).parent}/" if "r" in source[1].replace("source", "") else ""
                self._file(folder + source[2], depth + 1)
            else:
                self._statement(line, name, number)

    def _statement(self, line: str, file: str, number: int) -> None:
        if block := _BLOCK.match(line):
            self._close()
            kind, rest = block[1], block[2].strip()
            if kind == "mainmenu":
                return
            kind = "config" if kind == "menuconfig" else kind
            self._open = _Open(kind, rest, file, number)
            if kind in ("menu", "comment"):
                self._open.prompt = rest.strip("\"'")
            elif kind == "choice":
                self._open.name = ""
        elif line.startswith("if "):
            self._close()
            self._stack[-1].conditions.append(tuple(split(line[3:])))
        elif line in ("endif", "endmenu", "endchoice"):
            self._close()
            if line == "endif":
                if self._stack[-1].conditions:
                    self._stack[-1].conditions.pop()
            elif len(self._stack) > 1:
                self._stack.pop()
        elif self._open:
            self._attribute(line, self._open)

    def _attribute(self, line: str, entry: _Open) -> None:
        if line.startswith("depends on "):
            entry.depends += split(line[len("depends on ") :])
        elif match := _PROMPT.match(line):
            entry.prompt = match[2]
            entry.visible = (match[3] or "").strip()
        elif line.startswith("select "):
            chosen = line.split()[1]
            self.selected_by.setdefault(chosen, []).append(entry.name)

    def _close(self) -> None:
        """Place the entry whose attributes are complete now."""
        entry, self._open = self._open, None
        if entry is None:
            return
        menu = self._stack[-1]
        conditions = [c for group in menu.conditions for c in group]
        depends = (*menu.depends, *conditions, *entry.depends)
        known = {re.sub(r"=[ym]$", "", d.strip("() ")) for d in depends}
        while menu.chain and menu.chain[-1][0] not in known:
            menu.chain.pop()
        menus = (*menu.menus, *(prompt for _, prompt in menu.chain if prompt))
        if entry.kind == "config":
            self.places.setdefault(entry.name, []).append(
                Place(
                    name=entry.name,
                    menus=menus,
                    prompt=entry.prompt,
                    depends=tuple(dict.fromkeys(depends)),
                    visible=entry.visible,
                    file=entry.file,
                    line=entry.line,
                )
            )
            menu.chain.append((entry.name, entry.prompt))
        elif entry.kind in ("menu", "choice"):
            below = (*menus, entry.prompt) if entry.prompt else menus
            self._stack.append(_Menu(below, depends))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, indentation and help texts, continued ones joined."""
    help_indent: int | None = None  # None: not in a help text; -1: its first line is to come
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.expandtabs(8)
        indent = len(line) - len(line.lstrip())
        if help_indent is not None and line.strip():
            if help_indent < 0 < indent:
                help_indent = indent
            if 0 < help_indent <= indent:
                continue
            help_indent = None
        if help_indent is not None:
            continue
        start = start if joined else number
        joined += line.strip()
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        word = _uncommented(joined)
        joined = ""
        if word in ("help", "---help---"):
            help_indent = -1
        elif word:
            yield start, word


def _uncommented(line: str) -> str:
    """Without a comment, which no quotes enclose."""
    if "#" not in line:
        return line
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#":
            return line[:at].strip()
    return line
