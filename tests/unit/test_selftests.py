# SPDX-License-Identifier: GPL-2.0-only
"""Writing the tests into a tree: all or nothing, once, and with a manifest."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError, SourceError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.kernel import selftests

MAKEFILE = "CFLAGS += -O2\nTEST_GEN_PROGS = tls\n\ninclude ../lib.mk\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a kernel tree has in the places that the generator touches."""
    net = tmp_path / "linux/tools/testing/selftests/net"
    net.mkdir(parents=True)
    (net / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    (net / ".gitignore").write_text("# SPDX\nmsg_oob\ntls\n", encoding="utf-8")
    (net / "config").write_text("CONFIG_IPV6=y\nCONFIG_TLS=m\n", encoding="utf-8")
    return tmp_path / "linux"


def net(tree: Path) -> Path:
    return tree / "tools/testing/selftests/net"


def snapshot(tree: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(tree)): p.read_bytes() for p in sorted(tree.rglob("*")) if p.is_file()
    }


def test_generate_writes_everything_and_nothing_the_second_time(tree: Path) -> None:
    report = selftests.generate(tree, "6.12")
    assert not report.unchanged
    names = {p.name for p in report.written}
    assert {"msg_ntcopy.c", "ksft_kprobe.h", "Makefile", ".gitignore", "config"} <= names
    before = snapshot(tree)
    times = {p: p.stat().st_mtime_ns for p in report.written}

    again = selftests.generate(tree, "6.12")
    assert again.written == ()
    assert again.unchanged == report.written
    assert snapshot(tree) == before
    assert {p: p.stat().st_mtime_ns for p in report.written} == times


def test_lists_name_the_program(tree: Path) -> None:
    selftests.generate(tree, "6.12")
    makefile = (net(tree) / "Makefile").read_text()
    programs = [p for f in load_features() for p in f.programs if p.target == "net"]
    names = {p.name for p in programs}
    assert {"msg_ntcopy", "tx_nocache_copy"} <= names
    # 32-bit programs stand elsewhere, and depend on what the compiler has.
    usual = sorted(p.name for p in programs if not p.bits)
    added = "".join(f"TEST_GEN_PROGS += {name}\n" for name in usual)
    assert f"TEST_GEN_PROGS = tls\n{added}" in makefile
    assert "$(OUTPUT)/msg_ntcopy: LDLIBS += -lpthread\n" in makefile
    ignored = (net(tree) / ".gitignore").read_text()
    assert ignored == "\n".join(["# SPDX", *sorted({*names, "msg_oob", "tls"}), ""])
    config = (net(tree) / "config").read_text().splitlines()
    assert config == sorted(config)
    assert "CONFIG_TLS=m" in config
    assert "CONFIG_KPROBE_EVENTS=y" in config
    assert len({line.split("=")[0] for line in config}) == len(config)


@pytest.fixture
def older(tmp_path: Path) -> selftests.Programs:
    """With another msg_ntcopy.c, as templates of an earlier version gave it."""
    folder = tmp_path / "older"
    shutil.copytree(selftests.templates(), folder)
    with (folder / "net/msg_ntcopy.c.j2").open("a") as template:
        template.write("\n/* older */\n")
    return selftests.render_all("6.12", folder=folder)


def forget_hashes(tree: Path) -> None:
    """Make the manifest one from before it recorded what was generated."""
    path = selftests.manifest_path(tree, "net")
    data = json.loads(path.read_text())
    del data["sha256"]
    path.write_text(json.dumps(data))


def test_stale_content_is_replaced_and_mode_kept(tree: Path, older: selftests.Programs) -> None:
    selftests.generate(tree, "6.12", programs=older)
    source = net(tree) / "msg_ntcopy.c"
    stale = source.read_text()
    (net(tree) / "config").chmod(0o640)
    with (net(tree) / "config").open("a") as file:
        file.write("CONFIG_ZZZ=y\n")
    report = selftests.generate(tree, "6.12")
    assert set(report.written) == {source, selftests.manifest_path(tree, "net")}
    assert "older" in stale
    assert "older" not in source.read_text()
    assert stat.S_IMODE((net(tree) / "config").stat().st_mode) == 0o640
    assert stat.S_IMODE(source.stat().st_mode) == 0o644
    assert "CONFIG_ZZZ=y\n" in (net(tree) / "config").read_text()


@pytest.mark.parametrize("name", ["msg_ntcopy.c", "ksft_kprobe.h"])
@pytest.mark.parametrize("before", ["generated", "nothing", "an old manifest", "a broken manifest"])
def test_a_file_that_is_not_as_generated_is_never_overwritten(
    tree: Path, name: str, before: str
) -> None:
    if before != "nothing":
        selftests.generate(tree, "6.12")
    if before == "an old manifest":
        forget_hashes(tree)
    if before == "a broken manifest":
        selftests.manifest_path(tree, "net").write_text("{")
    source = net(tree) / name
    source.write_bytes(b"/* mine \xff */\n")
    with (net(tree) / "Makefile").open("a") as makefile:
        makefile.write("mine:\n")
    there = snapshot(tree)
    with pytest.raises(SourceError) as refusal:
        selftests.generate(tree, "6.12")
    assert str(refusal.value) == (
        f"{source}: differs from what was generated; move it away or delete it"
    )
    assert snapshot(tree) == there

    source.unlink()
    assert source in selftests.generate(tree, "6.12").written
    assert "mine:\n" in (net(tree) / "Makefile").read_text()


@pytest.mark.parametrize("kind", ["folder", "dangling link"])
def test_what_is_no_file_is_never_replaced(tree: Path, kind: str) -> None:
    source = net(tree) / "msg_ntcopy.c"
    source.mkdir() if kind == "folder" else source.symlink_to("elsewhere")
    with pytest.raises(SourceError, match=r"msg_ntcopy\.c: differs from what was generated"):
        selftests.generate(tree, "6.12")
    assert source.is_dir() or source.is_symlink()
    assert not selftests.manifest_path(tree, "net").exists()


def test_an_old_manifest_vouches_for_nothing_but_the_same_content(
    tree: Path, older: selftests.Programs
) -> None:
    selftests.generate(tree, "6.12")
    complete = snapshot(tree)
    forget_hashes(tree)
    report = selftests.generate(tree, "6.12")
    assert report.written == (selftests.manifest_path(tree, "net"),)
    assert snapshot(tree) == complete
    forget_hashes(tree)
    with pytest.raises(SourceError, match="differs from what was generated"):
        selftests.generate(tree, "6.12", programs=older)


def test_a_run_killed_half_way_can_be_repeated(
    tree: Path, older: selftests.Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    selftests.generate(tree, "6.12", programs=older)
    real = Path.replace

    def killed(self: Path, target: str | os.PathLike[str]) -> Path:
        real(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        selftests.generate(tree, "6.12")
    monkeypatch.undo()
    selftests.generate(tree, "6.12")
    assert selftests.generate(tree, "6.12").written == ()


def test_a_dry_run_says_the_same_and_writes_nothing(tree: Path) -> None:
    before = snapshot(tree)
    dry = selftests.generate(tree, "6.12", dry_run=True)
    assert snapshot(tree) == before
    assert selftests.generate(tree, "6.12") == dry
    (net(tree) / "msg_ntcopy.c").write_text("mine\n")
    with pytest.raises(SourceError, match="differs from what was generated"):
        selftests.generate(tree, "6.12", dry_run=True)


@pytest.mark.parametrize("name", ["Makefile", ".gitignore", "config"])
def test_line_ends_of_a_list_are_not_changed(tree: Path, name: str) -> None:
    path = net(tree) / name
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = snapshot(tree)
    with pytest.raises(SourceError, match=rf"net/{name}: has carriage returns .*convert it to LF"):
        selftests.generate(tree, "6.12")
    assert snapshot(tree) == before


def test_a_tree_without_the_target_is_refused_untouched(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no kselftest target net"):
        selftests.generate(tmp_path, "6.12")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("spoil", ["no lib.mk", "not text", "missing"])
def test_a_makefile_that_cannot_take_it_leaves_the_tree_as_it_was(tree: Path, spoil: str) -> None:
    makefile = net(tree) / "Makefile"
    if spoil == "missing":
        makefile.unlink()
    else:
        makefile.write_bytes(b"all:\n" if spoil == "no lib.mk" else b"\xff\xfe\n")
    before = snapshot(tree)
    with pytest.raises(SourceError, match="Makefile"):
        selftests.generate(tree, "6.12")
    assert snapshot(tree) == before


def test_an_unsupported_version_is_refused(tree: Path) -> None:
    before = snapshot(tree)
    with pytest.raises(ConfigError, match=r"no feature has tests for Linux 5\.4"):
        selftests.generate(tree, "5.4")
    assert snapshot(tree) == before


def test_a_write_that_fails_half_way_is_taken_back(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tree)
    real = Path.replace
    done: list[str] = []

    def failing(self: Path, target: str | os.PathLike[str]) -> Path:
        if len(done) == 4:
            raise OSError(28, "No space left on device")
        done.append(str(target))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(SourceError, match=r"nothing was written: .*No space"):
        selftests.generate(tree, "6.12")
    assert len(done) == 4
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    ("spoilt", "more", "message"),
    [
        ("msg_ntcopy.c.j2", b"TEST_F(covered, unheard_of)\n", "covered.unheard_of is in the templ"),
        ("msg_ntcopy.c.j2", b"{{ unheard_of }}\n", "'unheard_of' is undefined"),
        ("msg_ntcopy.c.j2", b"{% if %}\n", "net/msg_ntcopy.c.j2:"),
        ("msg_ntcopy.c.j2", b"{{ 1 // 0 }}\n", "ZeroDivisionError: integer division"),
        ("msg_ntcopy.c.j2", b"\xff\n", "UnicodeDecodeError: 'utf-8' codec can't decode"),
        ("ksft_kprobe.h", b"\xff\n", "net/ksft_kprobe.h: cannot be read ('utf-8' codec"),
    ],
    ids=["test", "name", "syntax", "division", "bytes", "header"],
)
def test_a_bad_template_changes_nothing(
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoilt: str,
    more: bytes,
    message: str,
) -> None:
    folder = tmp_path / "templates"
    shutil.copytree(selftests.templates(), folder)
    with (folder / "net" / spoilt).open("ab") as file:
        file.write(more)
    monkeypatch.setattr(selftests, "templates", lambda: folder)
    before = snapshot(tree)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        selftests.generate(tree, "6.12")
    assert "\n" not in str(caught.value)
    assert snapshot(tree) == before


def test_two_programs_of_one_name_are_refused() -> None:
    twice = [f for f in load_features() if f.programs] * 2
    with pytest.raises(ConfigError, match="net has a program msg_ntcopy already"):
        selftests.render_all("6.12", features=twice)


def test_manifest_has_every_case_of_the_data(tree: Path) -> None:
    report = selftests.generate(tree, "6.12")
    assert report.manifests == (selftests.manifest_path(tree, "net"),)
    manifest = selftests.load_manifest(report.manifests[0])
    assert (manifest.kernel, manifest.target) == ("6.12", "net")
    programs = {p.name: p for f in load_features() for p in f.programs}
    for program in manifest.programs:
        assert tuple(c.name for c in program.cases) == programs[program.name].points()
        assert all(c.about and c.timeout > 0 for c in program.cases)
        assert program.sources[0] == f"{program.name}.c"
        assert all((net(tree) / s).is_file() for s in program.sources)
    # Like every dot file it is passed over by the kernel's top .gitignore.
    assert report.manifests[0].name.startswith(".")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "programs": 3}', '"text"', "\x00"],
)
def test_a_broken_manifest_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"m\.json: not a manifest"):
        selftests.load_manifest(path)


def test_manifest_of_another_format_or_none(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    with pytest.raises(ConfigError, match="no generated tests"):
        selftests.load_manifest(path)
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(ConfigError, match="format 99, expected 1"):
        selftests.load_manifest(path)


def test_owned_paths_are_what_generate_writes(tree: Path) -> None:
    assert selftests.owned_paths(tree) == set()
    report = selftests.generate(tree, "6.12")
    written = {str(p.relative_to(tree)) for p in report.written}
    assert selftests.owned_paths(tree) == written

    source, config = net(tree) / "msg_ntcopy.c", net(tree) / "config"
    config.write_text(config.read_text() + "CONFIG_ZZZ=y\n")
    source.unlink()
    assert selftests.owned_paths(tree) == written
    source.write_text("mine\n")
    assert selftests.owned_paths(tree) == written - {str(source.relative_to(tree))}
    selftests.manifest_path(tree, "net").write_text("{")
    lists = {"Makefile", ".gitignore", "config", report.manifests[0].name}
    assert {Path(p).name for p in selftests.owned_paths(tree)} == lists


def test_generator_files_are_the_modules_it_imports() -> None:
    files = selftests.generator_files()
    assert all(f.is_file() for f in files)
    imported = {
        line.split()[1].rpartition(".")[2]
        for f in files
        for line in f.read_text().splitlines()
        if line.startswith("from ktest_ntcopy.kernel.")
    }
    # What compiles the result has no part in writing it.
    assert imported - {"guest_program"} <= {f.stem for f in files}


def test_git_sees_only_what_a_posting_has(tree: Path) -> None:
    (tree / ".gitignore").write_text(".*\n!.gitignore\n")

    def git(*args: str) -> str:
        argv = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *args]
        return subprocess.run(argv, cwd=tree, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    selftests.generate(tree, "6.12")
    seen = {Path(line[3:]).name for line in git("status", "--porcelain", "-uall").splitlines()}
    assert selftests.manifest_path(tree, "net").name not in seen
    assert {"msg_ntcopy.c", "Makefile", ".gitignore", "config"} <= seen
