# SPDX-License-Identifier: GPL-2.0-only
"""Enter names into the lists of a kselftest directory: Makefile, .gitignore, config.

Pure functions from text to text.  A name that is there already is left where
it is, so that a second pass changes nothing.  A list that is sorted stays so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from ktest_ntcopy.errors import ConfigError

_LIB_MK = re.compile(r"^include\s+\.\./(?:\.\./)*lib\.mk\s*$", re.MULTILINE)
_BLOCK = re.compile(r"^TEST_GEN_PROGS\s*[:+]?=\s*\\\n(?P<body>(?:.*\\\n)*.*\n)", re.MULTILINE)
_ASSIGNMENT = re.compile(r"^TEST_GEN_PROGS\s*[:+]?=(?P<names>(?:.*\\\n)*.*)$", re.MULTILINE)
_FLAGS_RULE = re.compile(r"^\$\(OUTPUT\)/[\w.-]+: *(?:LDLIBS|CFLAGS|LDFLAGS)\b.*$", re.MULTILINE)


def _lines(text: str) -> list[str]:
    """Lines without their ends.  Only a newline ends one: a form feed stays where it is."""
    return text.removesuffix("\n").split("\n") if text else []


def _is_sorted(names: Sequence[str]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(names))


def _insert(lines: list[str], new: str, *, key: str) -> None:
    """Put ``new`` before the first line that sorts behind it; comments keep their place."""
    for at, line in enumerate(lines):
        name = line.strip().rstrip("\\").strip()
        if name and not name.startswith("#") and name > key:
            lines.insert(at, new)
            return
    lines.append(new)


def _add_program(text: str, program: str) -> str:
    named = {
        name
        for match in _ASSIGNMENT.finditer(text)
        for name in match["names"].replace("\\\n", " ").split("#")[0].split()
    }
    if program in named:
        return text
    for match in _BLOCK.finditer(text):
        lines = _lines(match["body"])
        # "# end of TEST_GEN_PROGS" closes a list whose every entry has a backslash.
        end = next((i for i, line in enumerate(lines) if line.startswith("#")), None)
        if end is None or not lines[:end]:
            continue
        entries = lines[:end]
        _insert(entries, f"\t{program} \\", key=program)
        body = "\n".join((*entries, *lines[end:])) + "\n"
        return text[: match.start("body")] + body + text[match.end("body") :]
    lib = _LIB_MK.search(text)
    if lib is None:
        raise ConfigError("Makefile does not include lib.mk")
    before = [m for m in _ASSIGNMENT.finditer(text) if m.end() < lib.start()]
    line = f"TEST_GEN_PROGS += {program}\n"
    if before:
        at = before[-1].end() + 1
        return text[:at] + line + text[at:]
    # The directory has scripts only so far.
    return text[: lib.start()] + f"TEST_GEN_PROGS := {program}\n\n" + text[lib.start() :]


def _add_libs(text: str, program: str, libs: Sequence[str]) -> str:
    rule = f"$(OUTPUT)/{program}: LDLIBS += {' '.join(libs)}"
    if not libs or f"\n{rule}\n" in text:
        return text
    # A rule that lacks a library is ours from before: the data decides.  One with more
    # than it needs was added to.
    stale = re.compile(rf"^\$\(OUTPUT\)/{re.escape(program)}: LDLIBS \+= (.*)$", re.MULTILINE)
    if any(set(libs) <= set(match[1].split()) for match in stale.finditer(text)):
        return text
    if stale.search(text):
        return stale.sub(lambda _: rule, text, count=1)
    lib = _LIB_MK.search(text)
    if lib is None:
        raise ConfigError("Makefile does not include lib.mk")
    rules = [m for m in _FLAGS_RULE.finditer(text) if m.start() > lib.end()]
    if not rules:
        at = lib.end() + 1
        return f"{text[:at]}\n{rule}\n{text[at:]}"
    heads = [m[0] for m in rules]
    for match in rules if _is_sorted(heads) else ():
        if match[0] > rule:
            return f"{text[: match.start()]}{rule}\n{text[match.start() :]}"
    at = rules[-1].end() + 1
    return f"{text[:at]}{rule}\n{text[at:]}"


def add_programs(makefile: str, programs: Mapping[str, Sequence[str]]) -> str:
    """Makefile text with each program in TEST_GEN_PROGS and its libraries in LDLIBS.

    Understands one assignment per line and, as newer kernels have it, one
    sorted list with one name per line.  Raises ConfigError without lib.mk.
    """
    for program, libs in sorted(programs.items()):
        makefile = _add_libs(_add_program(makefile, program), program, libs)
    return makefile


def add_narrow_programs(makefile: str, programs: Mapping[str, Sequence[str]]) -> str:
    """Makefile text with each 32-bit program, built if the compiler makes such programs.

    The question is the one of the x86 selftests.  It can be asked behind lib.mk only,
    which chooses the compiler.  Raises ConfigError without lib.mk.
    """
    for program, libs in sorted(programs.items()):
        output = f"$(OUTPUT)/{program}"
        if f"\n{output}: CFLAGS += -m32\n" in makefile:
            continue
        lib = _LIB_MK.search(makefile)
        if lib is None:
            raise ConfigError("Makefile does not include lib.mk")
        block = (
            "\n# 32-bit programs, if the compiler has what they need\n"
            'ifeq ($(shell ../x86/check_cc.sh "$(CC)" ../x86/trivial_32bit_program.c -m32),1)\n'
            f"TEST_GEN_PROGS += {output}\n"
            f"all: {output}\n"
            "endif\n"
            f"{output}: CFLAGS += -m32\n"
        )
        if libs:
            block += f"{output}: LDLIBS += {' '.join(libs)}\n"
        at = lib.end() + 1
        makefile = makefile[:at] + block + makefile[at:]
    return makefile


def add_ignored(gitignore: str, names: Iterable[str]) -> str:
    """.gitignore text with each name, in sorted place."""
    lines = _lines(gitignore)
    for name in sorted(set(names) - {line.strip() for line in lines}):
        _insert(lines, name, key=name)
    return "\n".join(lines) + "\n"


def add_options(config: str, options: Mapping[str, str]) -> str:
    """config text with each option; one that is listed keeps its value.

    In a list that is not sorted the new ones follow at the end, sorted.
    """
    lines = _lines(config)
    listed = [line.split("=")[0] for line in lines if line.startswith("CONFIG_")]
    ordered = _is_sorted(listed)
    for name, value in sorted(options.items()):
        if name in listed:
            continue
        if ordered:
            _insert(lines, f"{name}={value}", key=f"{name}={value}")
        else:
            lines.append(f"{name}={value}")
    return "\n".join(lines) + "\n"
