# SPDX-License-Identifier: GPL-2.0-only
"""Templates and data held against each other; what the shipped ones render to."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import (
    Case,
    Define,
    Expectation,
    Feature,
    Fixture,
    Program,
    Support,
    Variant,
    load_features,
)
from ktest_ntcopy.features.versions import Versions
from ktest_ntcopy.kernel.render import comment, render
from ktest_ntcopy.kernel.selftests import render_all

TEMPLATE = """\
{{ defines() }}
#include "own.h"
#include "../kselftest_harness.h"
#define MARKER "{{ marker }}"
FIXTURE(pair) {
};
{{ variants("pair") }}

{{ test("pair", "send") }}
{
}

{{ test("pair", "slow") }}
{
{{ skips("pair", "slow") }}
}
"""


def feature(path: Path) -> Feature:
    """A feature small enough to spell out."""
    program = Program(
        name="toy",
        target="net",
        template="net/toy.c.j2",
        timeout=30,
        fixtures=(
            Fixture(
                name="pair",
                variants=(
                    Variant(name="tcp4", fields={"domain": "AF_INET", "on": "true"}),
                    Variant(name="tcp6", fields={"domain": "AF_INET6"}),
                ),
                cases=(
                    Case(name="send", about="It sends."),
                    Case(name="slow", about="Slow.", timeout=90, skip={"tcp6": "no IPv6"}),
                ),
            ),
        ),
    )
    return Feature(
        name="toy",
        title="t",
        summary="s",
        seed="s",
        path=path / "toy.toml",
        support={"6.12": Support(version="6.12", state="series")},
        defines=(Define(name="MSG_TOY", value=0x40, comment="toy"),),
        expectations=(Expectation(kind="symbol", name="toy_fn", why="w", marker=True),),
        programs=(program,),
    )


def templates(path: Path, text: str = TEMPLATE) -> Path:
    """A folder of templates with one of them."""
    (path / "net").mkdir(parents=True, exist_ok=True)
    (path / "net/toy.c.j2").write_text(text, encoding="utf-8")
    (path / "net/own.h").write_text('#include "deeper.h"\n', encoding="utf-8")
    (path / "net/deeper.h").write_text("#define DEEP\n", encoding="utf-8")
    (path / "net/unused.h").write_text("", encoding="utf-8")
    return path


def text_of(path: Path, text: str = TEMPLATE, of: Feature | None = None) -> str:
    one = of or feature(path)
    return render(one, one.programs[0], "6.12", templates(path, text)).text


def test_data_becomes_c(tmp_path: Path) -> None:
    text = text_of(tmp_path)
    assert "/* Toy. */\n#ifndef MSG_TOY\n#define MSG_TOY\t0x40\n#endif\n" in text
    assert (
        "FIXTURE_VARIANT_ADD(pair, tcp4) {\n\t.domain = AF_INET,\n\t.on = true,\n};\n\n"
        "FIXTURE_VARIANT_ADD(pair, tcp6) {" in text
    )
    assert "/* It sends. */\nTEST_F(pair, send)\n" in text
    assert "/* Slow. */\nTEST_F_TIMEOUT(pair, slow, 90)\n" in text
    assert '\tif (variant == &_pair_tcp6_variant)\n\t\tSKIP(return, "no IPv6");\n' in text
    assert '"toy_fn"' in text


def test_headers_are_followed_but_only_ours(tmp_path: Path) -> None:
    one = feature(tmp_path)
    rendered = render(one, one.programs[0], "6.12", templates(tmp_path))
    assert list(rendered.headers) == ["deeper.h", "own.h"]
    assert rendered.headers["deeper.h"] == "#define DEEP\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('{{ test("pair", "send") }}\n{\n}\n', "", "test pair.send is in the feature file only"),
        (
            '{{ test("pair", "send") }}',
            "TEST_F(pair, send)\n{\n}\n\nTEST_F(pair, extra)",
            "test pair.extra is in the template only",
        ),
        (
            '{{ test("pair", "send") }}',
            "TEST_F(pair, send)\n{\n}\n\nTEST_F_SIGNAL(pair, send, 11)",
            "test pair.send is in the template twice",
        ),
        ('{{ variants("pair") }}', "", "variant pair.tcp4 is in the feature file only"),
        ("FIXTURE(pair)", "FIXTURE(other)", "fixture pair is in the feature file only"),
        ('{{ test("pair", "send") }}', "TEST(send)", "test send belongs to no fixture"),
        ('{{ skips("pair", "slow") }}\n', "", "never says skips"),
        ('test("pair", "send")', 'test("pair", "sent")', "has no case 'sent'"),
        ('test("pair", "send")', 'test("peer", "send")', "has no fixture 'peer'"),
        ("{{ marker }}", "{{ markre }}", "markre"),
        ("{{ marker }}", "{{ marker", "net/toy.c.j2:4"),
    ],
)
def test_disagreement_is_one_clear_error(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert TEMPLATE.count(old) == 1
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        text_of(tmp_path, TEMPLATE.replace(old, new))
    assert "\n" not in str(caught.value)


def test_missing_template_names_itself(tmp_path: Path) -> None:
    one = feature(tmp_path)
    with pytest.raises(ConfigError, match=r"no template .*toy\.c\.j2"):
        render(one, one.programs[0], "6.12", tmp_path)


def test_marker_must_be_one(tmp_path: Path) -> None:
    one = replace(feature(tmp_path), expectations=())
    with pytest.raises(ConfigError, match="needs one marker symbol, has 0"):
        text_of(tmp_path, of=one)
    text_of(tmp_path, TEMPLATE.replace("{{ marker }}", "none"), of=one)


def test_a_template_may_ask_about_another_feature(tmp_path: Path) -> None:
    line = '{{ other("msg_ntcopy").defines() }}\n{{ other("msg_ntcopy").marker() }}\n'
    text = text_of(tmp_path, TEMPLATE + line)
    assert "#define MSG_NTCOPY\t0x10000000\n#endif\ncopy_from_iter_nontemporal\n" in text
    with pytest.raises(ConfigError, match="there is no feature 'msg_ntcopi'"):
        text_of(tmp_path, TEMPLATE + line.replace("copy", "copi"))


def test_a_routine_goes_by_version_and_architecture(tmp_path: Path) -> None:
    def symbol(name: str, version: str) -> Expectation:
        return Expectation(
            kind="symbol",
            name=name,
            why="w",
            arches=("x86_64",),
            versions=Versions.parse(f"=={version}"),
        )

    one = feature(tmp_path)
    one = replace(
        one,
        expectations=(*one.expectations, symbol("old_copy", "6.1"), symbol("copy", "6.12")),
    )
    line = "{% for arch, name in routines %}{{ arch }}={{ name }};{% endfor %}\n"
    folder = templates(tmp_path, TEMPLATE + line)
    assert "x86_64=copy;" in render(one, one.programs[0], "6.12", folder).text
    assert "x86_64=old_copy;" in render(one, one.programs[0], "6.1", folder).text


def test_comment_wraps_at_80_columns_and_cannot_be_closed() -> None:
    assert comment("short") == "/* short */"
    wrapped = comment("word " * 60)
    assert all(len(line) <= 80 for line in wrapped.splitlines())
    assert wrapped.startswith("/*\n * word")
    with pytest.raises(ConfigError, match="ends the comment"):
        comment("a */ b")


def test_shipped_programs_render_for_every_version_they_support() -> None:
    versions = {v for f in load_features() for v in f.support}
    assert "6.12" in versions
    for version in versions:
        for rendered in render_all(version).values():
            for one in rendered:
                assert "{{" not in one.text
                assert "{%" not in one.text
                assert one.text.startswith("// SPDX-License-Identifier: GPL-2.0\n")
                assert max(len(line.expandtabs(8)) for line in one.text.splitlines()) <= 80


def test_every_shipped_case_says_what_it_proves() -> None:
    for feature_ in load_features():
        for program in feature_.programs:
            points = program.points()
            assert len(points) == len(set(points))
            for fixture in program.fixtures:
                for case in fixture.cases:
                    assert case.about.endswith(".")
                    assert len(case.about) > 15
