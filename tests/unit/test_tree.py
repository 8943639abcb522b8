# SPDX-License-Identifier: GPL-2.0-only
"""Trees: recognised, patched all or nothing, restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktest_ntcopy.errors import PatchError, SourceError
from ktest_ntcopy.kernel import selftests, series, tree
from tests.unit.kernel_trees import SOCKET, changed, git, make_series, make_tree

FIRST = changed(SOCKET, l5="first change")
SECOND = changed(FIRST, l30="second change")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data with two series: one commit, then one that also adds a file."""
    make_series(
        tmp_path,
        {
            "10-one": [{"net/socket.c": FIRST}],
            "20-two": [{"net/socket.c": SECOND}, {"net/new.c": "new\n"}],
        },
    )
    monkeypatch.setattr(series, "data_root", lambda: tmp_path)
    monkeypatch.setattr(selftests, "owned_paths", lambda _tree: {"generated.c"})
    return tmp_path


def contents(path: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(path)): p.read_bytes()
        for p in path.rglob("*")
        if p.is_file() and ".git/" not in f"{p.relative_to(path)}/"
    }


def drop_second(root: Path) -> None:
    """Have only the first of the two series."""
    (root / "linux-patches/6.12/series.toml").write_text(
        'package = "p"\nbase = "6.12.1"\norder = ["10-one"]\nprefix = "PATCH net-next"\n'
    )


@pytest.mark.usefixtures("root")
class TestRecognise:
    def test_knows_version_and_kind(self, tmp_path: Path) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux", sublevel=99))
        assert (found.version, found.release, found.is_git) == ("6.12", "6.12.99", False)

    def test_refuses_a_folder_that_is_no_kernel(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="not a kernel source tree"):
            tree.recognise(tmp_path)

    def test_refuses_an_unknown_version(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", version="5.10")
        with pytest.raises(SourceError, match=r"Linux 5\.10 is not supported; supported: 6\.12"):
            tree.recognise(path)


@pytest.mark.usefixtures("root")
class TestPlainTree:
    def test_applies_everything_and_restores_it(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux")
        before = contents(path)
        found = tree.recognise(path)
        assert tree.apply(found) == ("10-one", "20-two")
        assert (path / "net/socket.c").read_text() == SECOND
        assert (path / "net/new.c").read_text() == "new\n"
        tree.restore(found)
        assert contents(path) == before

    def test_a_dry_run_says_the_same_and_changes_nothing(self, tmp_path: Path, root: Path) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux"))
        before = contents(found.path)
        assert tree.apply(found, dry_run=True) == ("10-one", "20-two")
        assert contents(found.path) == before
        tree.apply(found)
        assert tree.apply(found, dry_run=True) == ()
        drop_second(root)
        before = contents(found.path)
        assert tree.apply(found, dry_run=True) == ("10-one",)
        assert contents(found.path) == before

    def test_what_can_be_run_stays_so(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux")
        script = path / "net/socket.c"
        script.chmod(0o755)
        found = tree.recognise(path)
        tree.apply(found)
        assert script.stat().st_mode & 0o777 == 0o755
        script.chmod(0o644)  # as earlier versions left it
        tree.apply(found)
        assert script.stat().st_mode & 0o777 == 0o755
        tree.restore(found)
        assert script.stat().st_mode & 0o777 == 0o755

    def test_again_writes_no_file_that_did_not_change(self, tmp_path: Path) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux"))
        tree.apply(found)
        stamp = (found.path / "net/socket.c").stat().st_mtime_ns
        assert tree.apply(found) == ()
        assert (found.path / "net/socket.c").stat().st_mtime_ns == stamp

    def test_follows_a_series_that_was_changed(self, tmp_path: Path, root: Path) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux"))
        tree.apply(found)
        drop_second(root)
        tree.apply(found)
        assert (found.path / "net/socket.c").read_text() == FIRST
        assert not (found.path / "net/new.c").exists()

    def test_a_later_release_with_moved_lines_is_fine(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", sublevel=50)
        (path / "net/socket.c").write_text("moved\n" * 7 + SOCKET)
        tree.apply(tree.recognise(path))
        assert (path / "net/socket.c").read_text() == "moved\n" * 7 + SECOND

    def test_a_failed_hunk_is_named_and_nothing_changes(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", sublevel=50)
        (path / "net/socket.c").write_text(changed(SOCKET, l29="somebody was here"))
        before = contents(path)
        wanted = (
            r"20-two/0001-.*\.patch does not apply to Linux 6\.12\.50: "
            r"net/socket\.c, hunk 1 \(line 27\); it was made for 6\.12\.1"
        )
        with pytest.raises(PatchError, match=wanted):
            tree.apply(tree.recognise(path))
        assert contents(path) == before

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux"))
        (found.path / "net/socket.c").unlink()
        with pytest.raises(PatchError, match=r"net/socket\.c does not exist; it was made"):
            tree.apply(found)

    def test_a_users_change_is_not_undone(self, tmp_path: Path) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux"))
        tree.apply(found)
        with (found.path / "net/socket.c").open("a") as file:
            file.write("/* mine */\n")
        before = contents(found.path)
        with pytest.raises(
            SourceError, match=r"net/socket\.c was changed after the series went in"
        ):
            tree.apply(found)
        assert contents(found.path) == before

    @pytest.mark.parametrize("record", ["", "[]", '{"net/socket.c": 3}'])
    def test_a_damaged_record_is_said(self, tmp_path: Path, record: str) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux"))
        tree.apply(found)
        (found.state / "files.json").write_text(record)
        with pytest.raises(SourceError, match=r"cannot be read .*unpack the tree again"):
            tree.apply(found)

    def test_goes_on_where_it_was_stopped(self, tmp_path: Path) -> None:
        found = tree.recognise(make_tree(tmp_path / "linux"))
        tree.apply(found)
        # Everything was recorded, but a file not yet replaced.
        (found.path / "net/socket.c").write_text(SOCKET)
        assert tree.apply(found) == ("10-one", "20-two")
        assert (found.path / "net/socket.c").read_text() == SECOND

    def test_a_part_of_a_series_is_named(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux")
        (path / "net/socket.c").write_text(SECOND)
        with pytest.raises(
            PatchError, match=r"20-two/0001-.* is in this tree already, but not all"
        ):
            tree.apply(tree.recognise(path))


@pytest.mark.usefixtures("root")
class TestGitTree:
    def test_applies_as_commits_once(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", is_git=True)
        found = tree.recognise(path)
        assert tree.apply(found) == ("10-one", "20-two")
        subjects = git(path, "log", "--format=%s").splitlines()
        assert subjects == [
            "net: 20-two change 2",
            "net: 20-two change 1",
            "net: 10-one change 1",
            "base",
        ]
        assert tree.apply(found) == ()
        assert len(git(path, "log", "--format=%s").splitlines()) == 4

    def test_a_dry_run_makes_no_commit(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", is_git=True)
        before = git(path, "rev-parse", "HEAD"), contents(path)
        assert tree.apply(tree.recognise(path), dry_run=True) == ("10-one", "20-two")
        assert (git(path, "rev-parse", "HEAD"), contents(path)) == before

    def test_adds_only_the_series_that_is_missing(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", is_git=True)
        (path / "net/socket.c").write_text(FIRST)
        git(path, "commit", "-qam", "somebody applied it under another name")
        assert tree.apply(tree.recognise(path)) == ("20-two",)

    def test_refuses_uncommitted_changes(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", is_git=True)
        (path / "Makefile").write_text((path / "Makefile").read_text() + "# mine\n")
        with pytest.raises(SourceError, match=r"uncommitted changes \(Makefile\)"):
            tree.apply(tree.recognise(path))
        assert git(path, "log", "--format=%s").splitlines() == ["base"]

    @pytest.mark.parametrize(
        "name", ["rebase-apply", "rebase-merge", "MERGE_HEAD", "CHERRY_PICK_HEAD", "index.lock"]
    )
    def test_refuses_while_git_is_in_the_middle_of_something(
        self, tmp_path: Path, name: str
    ) -> None:
        path = make_tree(tmp_path / "linux", is_git=True)
        (path / ".git" / name).mkdir()
        with pytest.raises(SourceError, match=rf"middle of something \({name}\); finish or abort"):
            tree.apply(tree.recognise(path))
        assert (path / ".git" / name).exists()
        assert git(path, "log", "--format=%s").splitlines() == ["base"]

    def test_generated_files_do_not_count_as_changes(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", is_git=True)
        (path / "generated.c").write_text("old\n")
        git(path, "add", "-A")
        git(path, "commit", "-qm", "generated")
        (path / "generated.c").write_text("new\n")
        tree.require_clean(tree.recognise(path))

    def test_a_failed_hunk_leaves_no_commit(self, tmp_path: Path) -> None:
        path = make_tree(tmp_path / "linux", is_git=True)
        (path / "net/socket.c").write_text(changed(SOCKET, l29="somebody was here"))
        git(path, "commit", "-qam", "other")
        with pytest.raises(PatchError, match="hunk 1"):
            tree.apply(tree.recognise(path))
        assert git(path, "log", "--format=%s").splitlines() == ["other", "base"]
        assert git(path, "status", "--porcelain") == ""
