# SPDX-License-Identifier: GPL-2.0-only
"""Test programs compiled as guests need them: static, once, and with the compiler's words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BuildError, ConfigError
from ktest_ntcopy.kernel import selftests
from ktest_ntcopy.kernel.manifest import ManifestProgram


def toy(folder: Path, text: str, header: str = "#define ANSWER 42\n") -> ManifestProgram:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy.c").write_text(text)
    (folder / "toy.h").write_text(header)
    return ManifestProgram(
        name="toy", feature="f", target="net", sources=("toy.c",), libs=(), cases=()
    )


TOY = '#include <stdio.h>\n#include "toy.h"\nint main(void) { printf("%d", ANSWER); }\n'


def test_build_static_compiles_and_remembers(tmp_path: Path) -> None:
    source, out = tmp_path / "net", tmp_path / "out"
    program = toy(source, TOY)
    made = selftests.build_static(program, source, out)
    assert subprocess.run([made], capture_output=True, check=True).stdout == b"42"
    assert (
        b"INTERP"
        not in subprocess.run(["readelf", "-lW", made], capture_output=True, check=True).stdout
    )
    stamp = made.stat().st_mtime_ns
    assert selftests.build_static(program, source, out) == made
    assert made.stat().st_mtime_ns == stamp
    assert [p.name for p in out.iterdir()] == [made.name]


def test_build_static_notices_a_changed_header(tmp_path: Path) -> None:
    source, out = tmp_path / "net", tmp_path / "out"
    first = selftests.build_static(toy(source, TOY), source, out)
    program = toy(source, TOY, "#define ANSWER 43\n")
    second = selftests.build_static(program, source, out)
    assert first != second
    assert subprocess.run([second], capture_output=True, check=True).stdout == b"43"


def test_build_static_says_what_the_compiler_says(tmp_path: Path) -> None:
    source = tmp_path / "net"
    with pytest.raises(BuildError, match=r"toy does not compile: .*error: .*nonsense") as caught:
        selftests.build_static(toy(source, "int main(void) { nonsense; }\n"), source, tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(BuildError, match="generate the tests first"):
        selftests.build_static(toy(source, TOY), tmp_path / "elsewhere", tmp_path)
    with pytest.raises(ConfigError, match="no C compiler 'no-such-cc'"):
        selftests.build_static(toy(source, TOY), source, tmp_path, cc="no-such-cc")
