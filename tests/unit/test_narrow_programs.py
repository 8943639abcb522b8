# SPDX-License-Identifier: GPL-2.0-only
"""A program is built for 32 bits as well, or its cases say why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ktest_ntcopy import compiler
from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.model import load_feature
from ktest_ntcopy.features.needs import Need, parse_need
from ktest_ntcopy.kernel.kbuild_lists import add_narrow_programs

FEATURE = """\
name = "f"
title = "t"
summary = "s"
seed = "p"
[kernel."6.12"]
state = "upstream"
[[program]]
name = "prog"
target = "net"
template = "net/prog.c.j2"
timeout = 30
libs = ["-lpthread"]
needs = ["feature"]
{narrow}
[[program.fixture]]
name = "fix"
[program.fixture.variants]
one = {{ a = "1" }}
[[program.fixture.cases]]
name = "case"
about = "about"
"""
MAKEFILE = "TEST_GEN_PROGS = tls\n\ninclude ../lib.mk\n\n$(OUTPUT)/tls: LDLIBS += -lx\n"


def feature_file(folder: Path, narrow: str) -> Path:
    path = folder / "f.toml"
    path.write_text(FEATURE.format(narrow=narrow))
    return path


def test_the_same_again_for_32_bits(tmp_path: Path) -> None:
    table = '[program.also_32bit]\nneeds = ["CONFIG_IA32_EMULATION"]'
    wide, narrow = load_feature(feature_file(tmp_path, table)).programs
    assert (wide.name, wide.bits, narrow.name, narrow.bits) == ("prog", 0, "prog_32", 32)
    assert wide.points() == narrow.points()
    assert wide.template == narrow.template
    assert wide.needs == (Need("feature"),)
    assert [str(n) for n in narrow.needs] == ["feature", "CONFIG_IA32_EMULATION", "bits=32"]


def test_only_if_the_data_says_so(tmp_path: Path) -> None:
    assert [p.name for p in load_feature(feature_file(tmp_path, "")).programs] == ["prog"]
    with pytest.raises(ConfigError, match="also_32bit: unknown key 'need'"):
        load_feature(feature_file(tmp_path, '[program.also_32bit]\nneed = ["feature"]'))


def test_the_need() -> None:
    assert str(parse_need("bits=32")) == "bits=32"
    with pytest.raises(ValueError, match="is no need"):
        parse_need("bits=31")


def test_the_makefile_asks_the_compiler() -> None:
    made = add_narrow_programs(MAKEFILE, {"prog_32": ("-lpthread",)})
    lines = made.splitlines()
    condition = next(i for i, line in enumerate(lines) if line.startswith("ifeq"))
    assert lines.index("include ../lib.mk") < condition  # there CC is known
    assert "check_cc.sh" in lines[condition]
    assert lines[condition + 1 : condition + 4] == [
        "TEST_GEN_PROGS += $(OUTPUT)/prog_32",
        "all: $(OUTPUT)/prog_32",
        "endif",
    ]
    assert "$(OUTPUT)/prog_32: CFLAGS += -m32" in lines
    assert "$(OUTPUT)/prog_32: LDLIBS += -lpthread" in lines
    assert add_narrow_programs(made, {"prog_32": ("-lpthread",)}) == made
    assert add_narrow_programs(MAKEFILE, {}) == MAKEFILE
    with pytest.raises(ConfigError, match=r"lib\.mk"):
        add_narrow_programs("all:\n", {"prog_32": ()})


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Compilers are asked anew, before and after."""
    compiler.find_compiler_32.cache_clear()
    yield
    compiler.find_compiler_32.cache_clear()


def fake(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


#: Makes what it is asked for, if it is asked for 32 bits.
OBEYS = 'for a; do [ "$prev" = -o ] && out=$a; prev=$a; done; : > "$out"'


@pytest.mark.usefixtures("forgetful")
def test_the_usual_compiler_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = fake(tmp_path, "cc", OBEYS)
    fake(tmp_path, "i686-linux-gnu-gcc", OBEYS)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", str(usual))
    assert compiler.find_compiler_32().argv == (str(usual), "-m32")
    assert compiler.cannot_compile(32) == ""


@pytest.mark.usefixtures("forgetful")
def test_the_cross_compiler_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(fake(tmp_path, "cc", "exit 1")))
    fake(tmp_path, "i686-linux-gnu-gcc", OBEYS)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler.find_compiler_32().argv == ("i686-linux-gnu-gcc",)


@pytest.mark.usefixtures("forgetful")
def test_no_compiler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = fake(tmp_path, "cc", "exit 1")
    monkeypatch.setenv("CC", str(usual))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler.cannot_compile(0) == ""
    reason = compiler.cannot_compile(32)
    assert reason.startswith(f"no compiler of 32-bit programs: neither `{usual} -m32` nor ")
    assert "gcc-i686-linux-gnu" in reason
    assert "\n" not in reason
