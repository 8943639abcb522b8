# SPDX-License-Identifier: GPL-2.0-only
"""Series: read from files, formatted from commits, held to netdev's shape."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ktest_ntcopy.errors import SourceError
from ktest_ntcopy.kernel import gates, series, tree
from tests.unit.kernel_trees import SOCKET, changed, make_series, make_tree

COVER = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: t <t@localhost>
Date: Thu, 1 Jan 1970 00:00:00 +0000
Subject: [PATCH net-next 0/1] net: a change

Why it is needed.

t (1):
  net: 10-one change 1
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_series(tmp_path, {"10-one": [{"net/socket.c": changed(SOCKET, l5="x", l20="y")}]})
    (tmp_path / "linux-patches/6.12/10-one" / series.COVER).write_text(COVER)
    monkeypatch.setattr(series, "data_root", lambda: tmp_path)
    return tmp_path


def test_reads_what_the_patches_touch(root: Path) -> None:
    (one,) = series.read_series("6.12")
    assert one.patches[0].files == ("net/socket.c",)
    assert one.patches[0].subject == "[PATCH net-next 1/1] net: 10-one change 1"
    assert one.base == "6.12.1"
    assert root.name in str(one.folder)


@pytest.mark.usefixtures("root")
def test_numbers_hunks_by_where_they_begin() -> None:
    (one,) = series.read_series("6.12")
    assert [one.patches[0].hunk_at("net/socket.c", n) for n in (2, 17, 9)] == [1, 2, 0]


@pytest.mark.usefixtures("root")
def test_an_unknown_version_is_an_error_that_names_the_known() -> None:
    with pytest.raises(SourceError, match=r"no series for Linux 4\.4; there are some for 6\.12"):
        series.read_series("4.4")


def test_the_digest_follows_the_patches(root: Path) -> None:
    before = series.digest(series.read_series("6.12"))
    patch = next((root / "linux-patches/6.12/10-one").glob("0001*"))
    patch.write_bytes(patch.read_bytes() + b"\n")
    assert series.digest(series.read_series("6.12")) != before


class TestFormat:
    def format(self, root: Path, name: str) -> Path:
        """Apply the series in a scratch repository and format it into a copy."""
        every = series.read_series("6.12")
        target = root / name
        shutil.copytree(every[0].folder, target)
        source = make_tree(root / f"tree-{name}")
        with series.scratch_repository(source, series.touched(every)) as repo:
            series.apply_in(repo, every, release="6.12.1")
            series.format_series(repo, "HEAD~1..HEAD", target, every[0].prefix)
        return target

    def test_is_repeatable_and_keeps_the_cover_letter(self, root: Path) -> None:
        once, twice = self.format(root, "once"), self.format(root, "twice")
        assert sorted(p.name for p in once.iterdir()) == sorted(p.name for p in twice.iterdir())
        for file in once.iterdir():
            assert file.read_bytes() == (twice / file.name).read_bytes()
        cover = (once / series.COVER).read_text()
        assert "Subject: [PATCH net-next 0/1] net: a change\n\nWhy it is needed.\n\nt (1):" in cover

    def test_a_persons_git_settings_change_nothing(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = self.format(root, "plain")
        config = root / "gitconfig"
        config.write_text(
            "[diff]\nnoprefix = true\nalgorithm = histogram\nmnemonicPrefix = true\n"
            "[format]\nsignature = me\nattach = true\nthread = deep\nto = you@localhost\n"
            "[core]\nabbrev = 40\n"
        )
        monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "none"))
        monkeypatch.setenv("HOME", str(root / "home"))
        (root / "home").mkdir()
        shutil.copyfile(config, root / "home/.gitconfig")
        other = self.format(root, "other")
        for file in plain.iterdir():
            assert file.read_bytes() == (other / file.name).read_bytes()

    @pytest.mark.usefixtures("root")
    def test_round_trip_gate_sees_a_patch_edited_by_hand(self, root: Path) -> None:
        (one,) = series.read_series("6.12")
        shutil.copytree(self.format(root, "clean"), one.folder, dirs_exist_ok=True)
        found = tree.recognise(make_tree(root / "linux"))
        assert list(gates.round_trip(found, (one,))) == []
        patch = one.patches[0].path
        patch.write_text(patch.read_text().replace("Because.", "Because.  "))
        (one,) = series.read_series("6.12")
        assert [c.split("/")[0] for c in gates.round_trip(found, (one,))] == ["10-one"]


class TestShape:
    @pytest.mark.usefixtures("root")
    def test_a_good_series_draws_no_complaint(self) -> None:
        assert list(gates.shape(series.read_series("6.12"))) == []

    @pytest.mark.parametrize(
        ("old", "new", "complaint"),
        [
            ("[PATCH net-next 1/1]", "[PATCH 1/1]", "subject does not begin with"),
            ("Because.", "Because.\n\nSigned-off-by: Me <me@localhost>", "signed off"),
        ],
    )
    def test_bad_patches_are_named(self, root: Path, old: str, new: str, complaint: str) -> None:
        patch = next((root / "linux-patches/6.12/10-one").glob("0001*"))
        patch.write_text(patch.read_text().replace(old, new))
        (found,) = gates.shape(series.read_series("6.12"))
        assert complaint in found
        assert patch.name in found

    def test_a_missing_cover_letter_is_named(self, root: Path) -> None:
        (root / "linux-patches/6.12/10-one" / series.COVER).unlink()
        assert list(gates.shape(series.read_series("6.12"))) == ["10-one: no cover letter"]
