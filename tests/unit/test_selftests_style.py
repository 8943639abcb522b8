# SPDX-License-Identifier: GPL-2.0-only
"""The style gate of generated C reports what checkpatch says, and what it does not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.kernel import selftests, style

TOTAL = "total: 0 errors, 0 warnings, 0 checks, 9 lines checked"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with generated tests and a checkpatch that finds nothing."""
    net = tmp_path / "tools/testing/selftests/net"
    net.mkdir(parents=True)
    (net / "Makefile").write_text("TEST_GEN_PROGS = tls\ninclude ../lib.mk\n")
    (tmp_path / "scripts").mkdir()
    selftests.generate(tmp_path, "6.12")
    checkpatch(tmp_path, f'print "{TOTAL}\\n";')
    return tmp_path


def checkpatch(tree: Path, script: str) -> None:
    (tree / "scripts/checkpatch.pl").write_text(f"my $file = $ARGV[-1];\n{script}\n")


def test_nothing_to_say(tree: Path) -> None:
    assert list(style.generated(tree)) == []


def test_every_generated_file_is_asked_about(tree: Path) -> None:
    checkpatch(tree, f'print STDERR "$file\\n"; print "{TOTAL}\\n"; exit 1;')
    asked = {line.split(": ")[1] for line in style.generated(tree)}
    manifest = selftests.load_manifest(selftests.manifest_path(tree, "net"))
    assert asked == {s for p in manifest.programs for s in p.sources}


def test_a_complaint_names_file_and_line(tree: Path) -> None:
    checkpatch(
        tree,
        'if ($file =~ /msg_ntcopy/) { print "$file:7: CHECK: ugly\\n"; '
        'print "total: 0 errors, 0 warnings, 1 checks, 9 lines checked\\n"; exit 1; }\n'
        f'print "{TOTAL}\\n";',
    )
    assert [line for line in style.generated(tree) if "ugly" in line] == [
        "checkpatch: msg_ntcopy.c: tools/testing/selftests/net/msg_ntcopy.c:7: CHECK: ugly"
    ]


def test_silence_and_absence_are_complaints(tree: Path, tmp_path: Path) -> None:
    checkpatch(tree, "")
    assert all(line.endswith("said nothing") for line in style.generated(tree))
    (tree / "scripts/checkpatch.pl").unlink()
    assert any("checkpatch.pl" in line for line in style.generated(tree))
    assert list(style.generated(tmp_path / "scripts")) == ["scripts: no generated tests to check"]


def test_a_broken_manifest_is_an_error(tree: Path) -> None:
    selftests.manifest_path(tree, "net").write_text("{")
    with pytest.raises(ConfigError, match="not a manifest"):
        list(style.generated(tree))
