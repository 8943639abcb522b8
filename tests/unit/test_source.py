# SPDX-License-Identifier: GPL-2.0-only
"""Source: fetched once, checked every time, made again when it cannot be trusted."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from ktest_ntcopy.errors import ConfigError, KtestError, PatchError, SourceError
from ktest_ntcopy.features.model import load_features
from ktest_ntcopy.kernel import selftests, series, source
from ktest_ntcopy.kernel.tree import STAMP
from tests.unit.kernel_trees import SOCKET, changed, make_series, make_tree

VERSION = "6.12.1-1~deb12u1"
PATCHED = changed(SOCKET, l5="patched")


class Mirror:
    """A package mirror: a real .deb, handed out by a pretended apt."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.said: list[str] = []
        self.publish(VERSION)

    def publish(self, version: str) -> None:
        """Offer a package of this version."""
        package = self.root / "package"
        shutil.rmtree(package, ignore_errors=True)
        tree = make_tree(self.root / "unpacked" / "linux-source-6.12")
        net = tree / selftests.SELFTESTS / "net"
        net.mkdir(parents=True)
        (net / "Makefile").write_text("TEST_GEN_PROGS = tls\n\ninclude ../lib.mk\n")
        (package / "usr/src").mkdir(parents=True)
        (package / "DEBIAN").mkdir()
        (package / "DEBIAN/control").write_text(
            f"Package: linux-source-6.12\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: t <t@localhost>\nDescription: t\n"
        )
        tar = package / "usr/src/linux-source-6.12.tar.xz"
        subprocess.run(["tar", "-cJf", tar, "-C", tree.parent, tree.name], check=True)
        shutil.rmtree(tree.parent)
        self.deb = self.root / f"linux-source-6.12_{version}_all.deb"
        argv = ["dpkg-deb", "-Znone", "--root-owner-group", "-b", str(package), str(self.deb)]
        subprocess.run(argv, check=True, capture_output=True)
        self.script("apt-cache", f"echo '  Candidate: {version}'")
        self.script("apt-get", f"echo fetch >>{self.root}/fetched; cp {self.deb} .")

    def script(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def offline(self) -> None:
        """From now on nothing can be fetched."""
        self.script("apt-get", "echo 'E: Temporary failure resolving' >&2; exit 100")

    @property
    def fetches(self) -> int:
        log = self.root / "fetched"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def notify(self, line: str) -> None:
        self.said.append(line)


def raising(error: Exception) -> Callable[..., NoReturn]:
    """A function that does nothing else."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    mirror = Mirror(tmp_path)
    make_series(tmp_path, {"10-one": [{"net/socket.c": PATCHED}]})
    shutil.copytree(selftests.templates(), tmp_path / "tools-testing-net")
    for module in (series, source, selftests):
        monkeypatch.setattr(module, "data_root", lambda: tmp_path)
    monkeypatch.setenv("PATH", f"{mirror.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("KTEST_CACHE", str(tmp_path / "cache"))
    return mirror


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below, with its time: a build looks at that, too."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def cached_deb(tmp_path: Path) -> Path:
    return next((tmp_path / "cache/sources").glob("*.deb"))


class TestObtain:
    def test_fetches_once(self, mirror: Mirror) -> None:
        first = source.obtain("6.12", mirror.notify)
        again = source.obtain("6.12", mirror.notify)
        assert first == again
        assert first.package_version == VERSION
        assert mirror.fetches == 1

    def test_a_damaged_package_is_fetched_again(self, mirror: Mirror, tmp_path: Path) -> None:
        source.obtain("6.12", mirror.notify)
        with cached_deb(tmp_path).open("r+b") as file:
            file.seek(200)
            file.write(b"damage")
        source.obtain("6.12", mirror.notify)
        assert mirror.fetches == 2
        assert any("damaged in the cache" in line for line in mirror.said)

    def test_a_newer_package_is_fetched(self, mirror: Mirror) -> None:
        source.obtain("6.12", mirror.notify)
        mirror.publish("6.12.2-1")
        assert source.obtain("6.12", mirror.notify).package_version == "6.12.2-1"

    def test_offline_the_cached_one_serves(self, mirror: Mirror) -> None:
        source.obtain("6.12", mirror.notify)
        mirror.publish("6.12.2-1")
        mirror.offline()
        assert source.obtain("6.12", mirror.notify).package_version == VERSION

    def test_offline_with_an_empty_cache_is_one_clear_line(self, mirror: Mirror) -> None:
        mirror.offline()
        with pytest.raises(SourceError) as caught:
            source.obtain("6.12", mirror.notify)
        assert str(caught.value) == (
            "cannot fetch linux-source-6.12 and none is cached (E: Temporary failure resolving); "
            "check the network and run `apt-get update`"
        )

    def test_a_full_disk_is_said_before_anything_is_fetched(
        self, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 5 << 20))
        with pytest.raises(SourceError, match="needs 400 MiB, 5 MiB are free; make room or set"):
            source.obtain("6.12", mirror.notify)
        assert mirror.fetches == 0

    def test_with_everything_cached_no_space_is_needed(
        self, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source.obtain("6.12", mirror.notify)
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 5 << 20))
        source.obtain("6.12", mirror.notify)
        assert mirror.fetches == 1

    @pytest.mark.parametrize("kind", ["fifo", "folder"])
    def test_what_is_no_file_is_replaced(self, mirror: Mirror, tmp_path: Path, kind: str) -> None:
        source.obtain("6.12", mirror.notify)
        deb = cached_deb(tmp_path)
        deb.unlink()
        os.mkfifo(deb) if kind == "fifo" else deb.mkdir()
        assert source.obtain("6.12", mirror.notify).deb.is_file()
        assert mirror.fetches == 2


class TestPrepare:
    def test_a_cache_with_an_odd_name(
        self, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KTEST_CACHE", str(tmp_path / "ca'che $(x)"))
        tree = source.prepare("6.12", mirror.notify)
        assert (tree.path / "net/socket.c").read_text() == PATCHED

    def test_a_prepared_tree_is_patched_and_kept(self, mirror: Mirror) -> None:
        tree = source.prepare("6.12", mirror.notify)
        assert (tree.path / "net/socket.c").read_text() == PATCHED
        stamp = (tree.path / "net/socket.c").stat().st_mtime_ns
        assert source.prepare("6.12", mirror.notify) == tree
        assert (tree.path / "net/socket.c").stat().st_mtime_ns == stamp

    def test_a_tree_that_somebody_changed_is_made_again(
        self, mirror: Mirror, tmp_path: Path
    ) -> None:
        tree = source.prepare("6.12", mirror.notify)
        (tree.path / "net/socket.c").write_text("mine\n")
        # Noticed when there is something to bring up to date.
        (tmp_path / "tools-testing-net/new").write_text("x")
        assert (source.prepare("6.12", mirror.notify).path / "net/socket.c").read_text() == PATCHED
        assert any("was changed after the series went in" in line for line in mirror.said)

    def test_a_discarded_tree_is_unpacked_again(self, mirror: Mirror) -> None:
        tree = source.prepare("6.12", mirror.notify)
        (tree.path / "net/other.c").write_text("damage")
        source.discard(tree)
        assert not (source.prepare("6.12", mirror.notify).path / "net/other.c").exists()

    def test_a_tree_left_half_made_is_made_again(self, mirror: Mirror) -> None:
        tree = source.prepare("6.12", mirror.notify)
        (tree.path / STAMP).unlink()
        (tree.path / "net/socket.c").write_text("half")
        assert (source.prepare("6.12", mirror.notify).path / "net/socket.c").read_text() == PATCHED
        assert any("incomplete in the cache" in line for line in mirror.said)

    @pytest.mark.parametrize("wrong", ["template", "feature", "target", "patch"])
    def test_an_error_of_ours_costs_no_tree(
        self, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
    ) -> None:
        tree = source.prepare("6.12", mirror.notify)
        before, beside = snapshot(tree.path), sorted(tree.path.parent.iterdir())
        template = tmp_path / "tools-testing-net/net/msg_ntcopy.c.j2"
        patch = next((tmp_path / "linux-patches/6.12/10-one").glob("0001-*"))
        good = template.read_text(), patch.read_text()
        # Whatever is wrong, there is something new that has to be brought in.
        template.write_text(f"{good[0]}/* new */\n")
        error: type[KtestError] = ConfigError
        with monkeypatch.context() as spoil:
            if wrong == "template":
                template.write_text(f"{good[0]}{{{{ unheard_of }}}}\n")
            elif wrong == "feature":
                spoil.setattr(selftests, "load_features", raising(ConfigError("x.toml:1: bad")))
            elif wrong == "target":
                error = SourceError
                strays = tuple(
                    replace(f, programs=tuple(replace(p, target="nowhere") for p in f.programs))
                    for f in load_features()
                )
                spoil.setattr(selftests, "load_features", lambda: strays)
            else:
                error = PatchError
                patch.write_text(good[1].replace(" line 4\n", " line four\n"))
            with pytest.raises(error) as caught:
                source.prepare("6.12", mirror.notify)
        assert "\n" not in str(caught.value)
        assert snapshot(tree.path) == before
        assert sorted(tree.path.parent.iterdir()) == beside
        template.write_text(f"{good[0]}/* newer */\n")
        patch.write_text(good[1])
        mirror.said.clear()
        assert source.prepare("6.12", mirror.notify) == tree
        assert mirror.said == []  # such as that it is unpacked again
        after = snapshot(tree.path)
        assert after["net/socket.c"] == before["net/socket.c"]
        assert b"newer" in after["tools/testing/selftests/net/msg_ntcopy.c"][1]

    def test_what_a_killed_run_set_aside_is_removed(self, mirror: Mirror, tmp_path: Path) -> None:
        tree = source.prepare("6.12", mirror.notify)
        aside = tree.path.with_name(f".{tree.path.name}.old")
        shutil.copytree(tree.path, aside)
        source.discard(tree)
        assert source.prepare("6.12", mirror.notify) == tree
        assert not aside.exists()

    def test_a_file_that_is_no_package_is_thrown_away(self, mirror: Mirror, tmp_path: Path) -> None:
        source.obtain("6.12", mirror.notify)
        deb = cached_deb(tmp_path)
        deb.write_bytes(b"not a package")
        deb.with_suffix(".sha256").write_text(source._sha256(deb))
        tree = source.prepare("6.12", mirror.notify)
        assert (tree.path / "net/socket.c").read_text() == PATCHED
        assert mirror.fetches == 2

    def test_two_at_once_share_one_cache(self, mirror: Mirror) -> None:
        context = multiprocessing.get_context("fork")
        both = [context.Process(target=source.prepare, args=("6.12", print)) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join(60)
        assert [process.exitcode for process in both] == [0, 0]
        assert mirror.fetches == 1
        assert (source.prepare("6.12", print).path / "net/socket.c").read_text() == PATCHED

    def test_pristine_is_unpacked_again_if_it_was_changed(self, mirror: Mirror) -> None:
        tree = source.pristine("6.12", "other", mirror.notify)
        (tree.path / "net/socket.c").write_text(PATCHED)
        again = source.pristine("6.12", "other", mirror.notify)
        assert (again.path / "net/socket.c").read_text() == SOCKET
