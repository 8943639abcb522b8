# SPDX-License-Identifier: GPL-2.0-only
"""Builds: done once, done again when they cannot be trusted, and plain about failures.

make is the real one; the tree is a toy whose "kernel" is a line of text.
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BuildError
from ktest_ntcopy.kernel import build, kconfig, series
from ktest_ntcopy.kernel.tree import Tree, recognise
from tests.unit.kernel_trees import SOCKET, make_series, make_tree

MAKEFILE = """\
tinyconfig:
\t@echo '# CONFIG_A is not set' > $(O)/.config
olddefconfig:
\t@sed -i '/CONFIG_LOST/d' $(O)/.config
vmlinux:
\t@echo built >> $(O)/count
\t@! grep -q broken source.c || { echo 'source.c:3:1: error: no such thing' >&2; exit 1; }
\t@cat source.c > $(O)/vmlinux
"""
MERGE = '#!/bin/sh\ncat "$5" >> "$4"\n'
FRAGMENT = "CONFIG_A=y\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    make_series(tmp_path, {"10-one": [{"net/socket.c": SOCKET + "more\n"}]})
    monkeypatch.setattr(series, "data_root", lambda: tmp_path)
    monkeypatch.delenv("CC", raising=False)
    path = make_tree(tmp_path / "linux")
    makefile = path / "Makefile"
    makefile.write_text(makefile.read_text() + MAKEFILE)
    (path / "source.c").write_text("fine\n")
    (path / "scripts/kconfig").mkdir(parents=True)
    (path / "scripts/kconfig/Kconfig").write_text('config LOST\n\tbool "x"\n\tdepends on NEVER\n')
    merge = path / "scripts/kconfig/merge_config.sh"
    merge.write_text(MERGE)
    merge.chmod(0o755)
    return recognise(path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def builds(out: Path) -> int:
    """How often make was asked for vmlinux."""
    return len((out / "count").read_text().splitlines())


def silent(_: str) -> None:
    pass


def test_once_is_enough(tree: Tree, out: Path) -> None:
    first = build.build(tree, out, FRAGMENT, silent)
    again = build.build(tree, out, FRAGMENT, silent)
    assert first.vmlinux.read_text() == "fine\n"
    assert first.seconds > 0
    assert again.seconds == 0
    assert builds(out) == 1


@pytest.mark.parametrize("damage", ["cut", "gone", "other", "stamp"])
def test_a_build_that_cannot_be_trusted_is_made_again(tree: Tree, out: Path, damage: str) -> None:
    build.build(tree, out, FRAGMENT, silent)
    match damage:
        case "cut":
            (out / "vmlinux").write_text("")
        case "gone":
            (out / "vmlinux").unlink()
        case "other":
            (out / "vmlinux").write_text("FINE\n")
        case "stamp":
            (out / build.STAMP).write_text("{")
    assert build.build(tree, out, FRAGMENT, silent).vmlinux.read_text() == "fine\n"
    assert builds(out) == 2


def test_another_fragment_is_another_build(tree: Tree, out: Path) -> None:
    build.build(tree, out, FRAGMENT, silent)
    build.build(tree, out, FRAGMENT + "CONFIG_B=y\n", silent)
    assert builds(out) == 2
    assert kconfig.parse((out / ".config").read_text()) == {"CONFIG_A": "y", "CONFIG_B": "y"}


def test_an_option_that_does_not_stick_names_what_it_lacks(tree: Tree, out: Path) -> None:
    wanted = r"did not stick: CONFIG_LOST \(needs NEVER, scripts/kconfig/Kconfig:1\)"
    with pytest.raises(BuildError, match=wanted):
        build.build(tree, out, FRAGMENT + "CONFIG_LOST=y\n", silent)
    assert not (out / "count").exists()


def test_a_failed_build_names_the_first_error_and_the_log(tree: Tree, out: Path) -> None:
    (tree.path / "source.c").write_text("broken\n")
    with pytest.raises(BuildError) as caught:
        build.build(tree, out, FRAGMENT, silent)
    assert str(caught.value) == (
        f"Linux 6.12.1 does not build: source.c:3:1: error: no such thing; see {out / 'build.log'}"
    )
    (tree.path / "source.c").write_text("mended\n")
    assert build.build(tree, out, FRAGMENT, silent).vmlinux.read_text() == "mended\n"


def test_two_at_once_build_once(tree: Tree, out: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [
        context.Process(target=build.build, args=(tree, out, FRAGMENT, silent)) for _ in range(2)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert builds(out) == 1
