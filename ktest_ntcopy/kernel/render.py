# SPDX-License-Identifier: GPL-2.0-only
"""Turn a program's template and its feature's data into C, and hold one against the other.

The data says which fixtures, variants and tests there are and what each test
proves; the template has the bodies.  A test that only one of them knows is an
error, so neither can lose one.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import Case, Feature, Fixture, Program, load_features

#: What the harness gives a test that says nothing, seconds.
HARNESS_TIMEOUT = 30

#: Kernel name of an architecture -> the compiler's macro, where they differ.
_MACROS = {"arm64": "aarch64", "riscv64": "riscv"}

#: What an expression in a template raises, besides the errors of Jinja, if it is wrong; bytes
#: that are no UTF-8 are a ValueError.
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_COLUMNS = 80
_TEST = re.compile(r"^TEST_F(?:_SIGNAL|_TIMEOUT)?\(\s*(\w+)\s*,\s*(\w+)", re.MULTILINE)
_BARE_TEST = re.compile(r"^TEST(?:_SIGNAL)?\(\s*(\w+)", re.MULTILINE)
_FIXTURE = re.compile(r"^FIXTURE\(\s*(\w+)\s*\)", re.MULTILINE)
_VARIANT = re.compile(r"^FIXTURE_VARIANT_ADD\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Rendered:
    """One program, ready to be written."""

    feature: Feature
    program: Program
    text: str
    headers: Mapping[str, str]  #: text of each file of ours that it includes, by name, sorted


def comment(text: str) -> str:
    """A C comment of at most 80 columns per line, on one line if it fits."""
    flat = " ".join(text.split())
    if "*/" in flat:
        raise ConfigError(f"text of a comment ends the comment: {flat!r}")
    if len(flat) + 6 <= _COLUMNS:
        return f"/* {flat} */"
    lines = textwrap.wrap(flat, _COLUMNS - 3, break_long_words=False, break_on_hyphens=False)
    return "\n".join(("/*", *(f" * {line}" for line in lines), " */"))


class _Template:
    """What a template can call, for one program and kernel version."""

    def __init__(self, feature: Feature, program: Program, version: str) -> None:
        self._feature = feature
        self._program = program
        self._version = version
        self.skipped: set[tuple[str, str]] = set()

    def _fixture(self, name: str) -> Fixture:
        for fixture in self._program.fixtures:
            if fixture.name == name:
                return fixture
        raise ConfigError(f"{self._feature.path}: program has no fixture {name!r}")

    def _case(self, fixture: str, name: str) -> Case:
        for case in self._fixture(fixture).cases:
            if case.name == name:
                return case
        raise ConfigError(f"{self._feature.path}: fixture {fixture!r} has no case {name!r}")

    def other(self, name: str) -> _Template:
        """The same questions, asked of another feature: the tests of one may use both."""
        for feature in load_features():
            if feature.name == name:
                return _Template(feature, self._program, self._version)
        raise ConfigError(f"{self._feature.path}: there is no feature {name!r}")

    def defines(self) -> str:
        """The feature's constants, for systems whose headers lack them."""
        blocks = []
        for define in self._feature.defines:
            block = f"#ifndef {define.name}\n#define {define.name}\t{define.value:#x}\n#endif"
            if note := define.comment:
                block = f"{comment(note[0].upper() + note[1:] + '.')}\n{block}"
            blocks.append(block)
        return "\n".join(blocks)

    def variants(self, fixture: str) -> str:
        """All FIXTURE_VARIANT_ADD blocks of a fixture."""
        blocks = []
        for variant in self._fixture(fixture).variants:
            fields = "".join(f"\t.{name} = {value},\n" for name, value in variant.fields.items())
            blocks.append(f"FIXTURE_VARIANT_ADD({fixture}, {variant.name}) {{\n{fields}}};")
        return "\n\n".join(blocks)

    def test(self, fixture: str, name: str) -> str:
        """The head of a test: what it proves, and its TEST_F line."""
        case = self._case(fixture, name)
        timeout = case.timeout or self._program.timeout
        head = f"TEST_F({fixture}, {name})"
        if timeout != HARNESS_TIMEOUT:
            head = f"TEST_F_TIMEOUT({fixture}, {name}, {timeout})"
        return f"{comment(case.about)}\n{head}"

    def skips(self, fixture: str, name: str) -> str:
        """Statements that end the test for the variants it does not apply to."""
        self.skipped.add((fixture, name))
        return "\n".join(
            f'\tif (variant == &_{fixture}_{variant}_variant)\n\t\tSKIP(return, "{reason}");'
            for variant, reason in self._case(fixture, name).skip.items()
        )

    def marker(self) -> str:
        """The symbol that alone tells whether a kernel has the feature."""
        found = [
            e.name
            for e in self._feature.expectations
            if e.kind == "symbol" and e.marker and (not e.versions or self._version in e.versions)
        ]
        if len(found) != 1:
            raise ConfigError(
                f"{self._feature.path}: Linux {self._version} needs one marker symbol, "
                f"has {len(found)}"
            )
        return found[0]

    def arch_symbols(self) -> tuple[tuple[str, str], ...]:
        """Compiler macro and symbol of each expectation that some architecture alone has."""
        return tuple(
            (_MACROS.get(arch, arch), e.name)
            for e in self._feature.expectations
            if e.kind == "symbol" and (not e.versions or self._version in e.versions)
            for arch in e.arches
        )


@dataclass(frozen=True)
class _Marker:
    """Looked up when a template says it: one that never does needs no marker symbol."""

    tools: _Template

    def __str__(self) -> str:
        return self.tools.marker()


def _twice(names: Iterable[object]) -> list[object]:
    return [name for name, count in Counter(names).items() if count > 1]


def _compare(where: str, what: str, data: Iterable[str], text: Iterable[str]) -> None:
    """Both must name the same things, each once."""
    in_data, in_text = list(data), list(text)
    for names, place in ((in_data, "the feature file"), (in_text, "the template")):
        if double := _twice(names):
            raise ConfigError(f"{where}: {what} {double[0]} is in {place} twice")
    if missing := sorted(set(in_data) - set(in_text)):
        raise ConfigError(f"{where}: {what} {missing[0]} is in the feature file only")
    if unknown := sorted(set(in_text) - set(in_data)):
        raise ConfigError(f"{where}: {what} {unknown[0]} is in the template only")


def verify(program: Program, text: str, *, where: str) -> None:
    """Raise ConfigError unless the C text has exactly the tests that the data names."""
    if bare := _BARE_TEST.search(text):
        raise ConfigError(f"{where}: test {bare[1]} belongs to no fixture; use TEST_F")
    _compare(where, "fixture", (f.name for f in program.fixtures), _FIXTURE.findall(text))
    _compare(
        where,
        "variant",
        (f"{f.name}.{v.name}" for f in program.fixtures for v in f.variants),
        (".".join(pair) for pair in _VARIANT.findall(text)),
    )
    _compare(
        where,
        "test",
        (f"{f.name}.{c.name}" for f in program.fixtures for c in f.cases),
        (".".join(pair) for pair in _TEST.findall(text)),
    )


def _own_headers(text: str, folder: Path) -> dict[str, str]:
    """Headers beside the template that the text includes, directly or through another."""
    found: dict[str, str] = {}
    queue = _INCLUDE.findall(text)
    while queue:
        name = queue.pop()
        path = folder / name
        if "/" in name or name in found or not path.is_file():
            continue
        try:
            found[name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise ConfigError(f"{path}: cannot be read ({err})") from err
        queue += _INCLUDE.findall(found[name])
    return dict(sorted(found.items()))


def render(feature: Feature, program: Program, version: str, templates: Path) -> Rendered:
    """One program as C for a kernel version ("6.12").

    ``templates`` is the folder that ``Program.template`` is relative to.
    Raises ConfigError if template and data disagree or the template is wrong.
    """
    where = f"{program.template} for Linux {version}"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is C
    )
    tools = _Template(feature, program, version)
    try:
        text = environment.get_template(program.template).render(
            feature=feature,
            version=version,
            marker=_Marker(tools),
            routines=tools.arch_symbols(),
            defines=tools.defines,
            other=tools.other,
            variants=tools.variants,
            test=tools.test,
            skips=tools.skips,
        )
    except jinja2.TemplateNotFound as err:
        raise ConfigError(f"{feature.path}: no template {templates / program.template}") from err
    except jinja2.TemplateSyntaxError as err:
        raise ConfigError(f"{templates / program.template}:{err.lineno}: {err.message}") from err
    except jinja2.TemplateError as err:
        raise ConfigError(f"{where}: {err.message}") from err
    except _WRONG as err:
        raise ConfigError(f"{where}: {type(err).__name__}: {err}") from err
    verify(program, text, where=where)
    for fixture in program.fixtures:
        for case in fixture.cases:
            if case.skip and (fixture.name, case.name) not in tools.skipped:
                raise ConfigError(
                    f"{where}: {fixture.name}.{case.name} has variants to skip, "
                    "and the template never says skips()"
                )
    headers = _own_headers(text, (templates / program.template).parent)
    return Rendered(feature, program, text, headers)
