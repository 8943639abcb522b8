# SPDX-License-Identifier: GPL-2.0-only
"""The command line: bad input is one clear line and exit status 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ktest_ntcopy import cli
from ktest_ntcopy.errors import USAGE
from ktest_ntcopy.kernel import build, kconfig, series, source
from ktest_ntcopy.kernel.process import Notify
from ktest_ntcopy.kernel.tree import Tree
from tests.unit import fake_kernel as fake
from tests.unit.kernel_trees import SOCKET, changed, git, make_series, make_tree


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


@pytest.mark.parametrize("command", ["apply", "generate"])
@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("", "not a kernel source tree (Makefile: No such file or directory)"),
        ("5.10", "Linux 5.10 is not supported; supported: 6.12"),
    ],
)
def test_a_tree_we_do_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, version: str, complaint: str
) -> None:
    tree = tmp_path / "tree"
    if version:
        make_tree(tree, version=version)
    before = sorted(tmp_path.rglob("*"))
    assert cli.main([command, "--tree", str(tree)]) == USAGE
    assert said(capsys) == f"ktest-ntcopy: error: {tree}: {complaint}"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_tree_with_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = make_tree(tmp_path / "tree", is_git=True)
    (tree / "net/socket.c").write_text("mine\n")
    assert cli.main(["generate", "--tree", str(tree)]) == USAGE
    assert "uncommitted changes (net/socket.c); commit or stash them first" in said(capsys)
    assert (tree / "net/socket.c").read_text() == "mine\n"


@pytest.mark.parametrize("is_git", [True, False])
@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("config", b"CONFIG_X=y # \xff\n", "net/config: cannot be read"),
        ("Makefile", b"include ../lib.mk\r\n", "net/Makefile: has carriage returns"),
        ("msg_ntcopy.c", b"mine\n", "net/msg_ntcopy.c: differs from what was generated"),
    ],
)
def test_apply_does_all_or_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_git: bool,
    file: str,
    content: bytes,
    complaint: str,
) -> None:
    after = changed(SOCKET, l5="changed")
    make_series(tmp_path, {"10-one": [{"net/socket.c": after}]})
    monkeypatch.setattr(series, "data_root", lambda: tmp_path)
    tree = make_tree(tmp_path / "tree", is_git=is_git)
    net = tree / "tools/testing/selftests/net"
    net.mkdir(parents=True)
    (net / "Makefile").write_text("include ../lib.mk\n")
    (net / file).write_bytes(content)
    if is_git:
        for key, value in (("name", "t"), ("email", "t@localhost")):
            git(tree, "config", f"user.{key}", value)
        git(tree, "add", "-A")
        git(tree, "commit", "-q", "-m", "net")
    there = {p: p.read_bytes() for p in tree.rglob("*") if p.is_file() and ".git" not in p.parts}
    head = git(tree, "rev-parse", "HEAD") if is_git else ""

    assert cli.main(["apply", "--tree", str(tree)]) == USAGE
    assert complaint in said(capsys)
    assert there == {
        p: p.read_bytes() for p in tree.rglob("*") if p.is_file() and ".git" not in p.parts
    }
    if is_git:
        assert git(tree, "rev-parse", "HEAD") == head

    (net / file).unlink()
    (net / "Makefile").write_text("include ../lib.mk\n")
    if is_git:
        git(tree, "add", "-A")
        git(tree, "commit", "-q", "-m", "repaired")
    assert cli.main(["apply", "--tree", str(tree)]) == 0
    assert (tree / "net/socket.c").read_text() == after
    assert (net / "msg_ntcopy.c").is_file()


def test_a_version_without_series(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", "--linux", "4.4"]) == USAGE
    assert said(capsys).endswith("no series for Linux 4.4; there are some for 6.12")


def test_a_journal_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path / "none.ndjson")]) == USAGE
    assert "none.ndjson" in said(capsys)


def test_a_kernel_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "vmlinux")
    assert cli.main(["cost", missing, missing]) == USAGE
    assert "vmlinux" in said(capsys)


def test_a_series_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = make_tree(tmp_path / "tree", is_git=True)
    assert cli.main(["format-series", "--tree", str(tree), "99-none", "A..B"]) == USAGE
    assert "no series 99-none; there are 10-selftests-build, 20-msg-ntcopy" in said(capsys)


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_version: str, *, patched: bool = True, debug: bool = False) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "prepare", interrupted)
    assert cli.main(["build"]) == 130


def test_an_interrupt_at_any_time_is_no_traceback(tmp_path: Path) -> None:
    """Also while the command line is read and modules are imported."""
    argv = [sys.executable, "-m", "ktest_ntcopy", "check", str(tmp_path)]
    hook = "import signal, sys\ndef now(*_):\n    raise KeyboardInterrupt\n"
    for module in ("ktest_ntcopy.cli", "argparse", "ktest_ntcopy.image.check_command"):
        (tmp_path / "sitecustomize.py").write_text(
            hook + "import builtins\nreal = builtins.__import__\n"
            "def fake(name, *more, **options):\n"
            f"    return now() if name == {module!r} else real(name, *more, **options)\n"
            "builtins.__import__ = fake\n"
        )
        env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(cli.__file__).parents[1]}"}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), module


def test_output_that_is_closed_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "vmlinux").write_bytes(fake.elf())
    command = f"{sys.executable} -m ktest_ntcopy check {tmp_path}/vmlinux --brief"
    for way, status in ((">&-", {1, 2}), ("2>&-", {1, 2}), (">/dev/full", {USAGE})):
        argv = ["sh", "-c", f"{command} {way}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode in status
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_reader_that_has_seen_enough(tmp_path: Path, more: str) -> None:
    """Both where the output is written at once and where only its end is."""
    (tmp_path / "vmlinux").write_bytes(fake.elf())
    command = f"{sys.executable} -m ktest_ntcopy check {tmp_path}/vmlinux {more}"
    script = f"{{ {command}; echo $? >{tmp_path}/status; }} | true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert (tmp_path / "status").read_text() == "141\n"


def test_help_names_every_command() -> None:
    argv = [sys.executable, "-m", "ktest_ntcopy", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    for command in ("run", "build", "apply", "generate", "report", "check-series"):
        assert f"\n    {command}" in done.stdout


def test_a_debug_kernel_is_built_beside_the_ordinary_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, dict[str, str]] = {}

    def built(tree: Tree, out: Path, fragment: str, _notify: Notify) -> build.Build:
        made[out.name] = kconfig.parse(fragment)
        return build.Build(out, out / "vmlinux", out / ".config", 0.0)

    monkeypatch.setattr(build, "build", built)
    tree = Tree(tmp_path / "linux", "6.12", "6.12.1", is_git=False)
    monkeypatch.setattr(source, "prepare", lambda _version, _notify: tree)
    assert cli.main(["build"]) == 0
    assert cli.main(["build", "--debug"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert Path(first).parent.name == "linux"
    assert Path(second).parent.name == "linux-debug"
    plain, debug = made["linux"], made["linux-debug"]
    assert plain.items() <= debug.items()
    assert {"CONFIG_KASAN", "CONFIG_FAULT_INJECTION_USERCOPY"} <= debug.keys() - plain.keys()
