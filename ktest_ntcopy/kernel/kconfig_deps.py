# SPDX-License-Identifier: GPL-2.0-only
"""Why an option did not stick: its dependencies, read from the Kconfig files.

kconfiglib would be the library for this, but cannot read Linux 6.12 (it does
not know the ``modules`` attribute).  Only what an error message needs is read
here: an option's own ``depends on`` lines and the ``if`` and ``menu`` blocks
around it in the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.kernel.tree import Tree

_TOKEN = re.compile(r"\s*(&&|\|\||!=|!|=|\(|\)|\"[^\"]*\"|\$\([^)]*\)|[\w./-]+)")
_OPENS = re.compile(r"(if|menu|choice)\b\s*(.*)")


@dataclass(frozen=True)
class Definition:
    """Where an option is defined and what it depends on there."""

    file: str
    line: int
    depends: tuple[str, ...]  #: expressions, all of which must hold


def split(expression: str) -> list[str]:
    """Conjuncts at the top level of an expression."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"[()]|&&", expression):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth -= 1
        elif depth == 0:
            parts.append(expression[start : match.start()])
            start = match.end()
    return [p.strip() for p in (*parts, expression[start:]) if p.strip()]


def holds(expression: str, config: Mapping[str, str]) -> bool:
    """Evaluate a dependency; modules count as set, shell macros as true."""
    tokens = _TOKEN.findall(expression)
    position = 0

    def value(token: str) -> str:
        if token.startswith("$("):
            return "y"
        if token[:1] == '"':
            return token.strip('"')
        return token if token in ("y", "m", "n") else config.get(f"CONFIG_{token}", "n")

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def take() -> str:
        nonlocal position
        position += 1
        return str(tokens[position - 1]) if position <= len(tokens) else ""

    def atom() -> bool:
        token = take()
        if token == "!":
            return not atom()
        if token == "(":
            inner = either()
            take()
            return inner
        if peek() in ("=", "!="):
            equal = take() == "="
            return (value(token) == value(take())) is equal
        return value(token) not in ("n", "")

    def both() -> bool:
        result = atom()
        while peek() == "&&":
            take()
            result = atom() and result
        return result

    def either() -> bool:
        result = both()
        while peek() == "||":
            take()
            result = both() or result
        return result

    return either()


def definitions(text: str, file: str, names: Iterable[str]) -> dict[str, list[Definition]]:
    """Definitions of options (without CONFIG_) in one Kconfig file."""
    wanted = set(names)
    found: dict[str, list[Definition]] = {}
    blocks: list[list[str]] = []
    current: tuple[str, int] | None = None
    depends: list[str] = []
    in_menu = False

    def finish() -> None:
        if current and current[0] in wanted:
            outer = [e for block in blocks for e in block]
            found.setdefault(current[0], []).append(
                Definition(file, current[1], tuple(split(" && ".join([*outer, *depends]))))
            )

    lines = text.replace("\\\n", " ").splitlines()
    for number, line in enumerate(lines, 1):
        word = line.strip()
        if match := re.match(r"(?:menu)?config\s+(\w+)", word):
            finish()
            current, depends, in_menu = (match[1], number), [], False
        elif word.split("#")[0].strip() in ("endif", "endmenu", "endchoice"):
            finish()
            current = None
            if blocks:
                blocks.pop()
        elif not line[:1].isspace() and (match := _OPENS.match(word)):
            finish()
            current, in_menu = None, match[1] != "if"
            blocks.append([f"({match[2]})"] if match[1] == "if" else [])
        elif match := re.match(r"depends on\s+(.*)", word):
            expression = f"({match[1].split('#')[0].strip()})"
            if current:
                depends.append(expression)
            elif in_menu and blocks:
                blocks[-1].append(expression)
    finish()
    return found


def explain(tree: Tree, out: Path, names: tuple[str, ...]) -> dict[str, str]:
    """For each lost option (with CONFIG_) a short reason: the unmet dependency, or unknown."""
    from ktest_ntcopy.kernel.kconfig import parse

    config = parse((out / ".config").read_text(encoding="utf-8"))
    short = {n.removeprefix("CONFIG_"): n for n in names}
    reasons: dict[str, str] = {}
    for file in sorted(tree.path.rglob("Kconfig*")):
        relative = file.relative_to(tree.path)
        if not file.is_file() or (relative.parts[0] == "arch" and "x86" not in relative.parts):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        for name, places in definitions(text, str(relative), short).items():
            for place in places:
                unmet = [e.strip("()") for e in place.depends if not holds(e, config)]
                lacks = f"needs {' and '.join(unmet)}" if unmet else "a dependency is not met"
                reasons.setdefault(short[name], f"{lacks}, {place.file}:{place.line}")
    for name in names:
        reasons.setdefault(name, "no such option in this kernel")
    return reasons
