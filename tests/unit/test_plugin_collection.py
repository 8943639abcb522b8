# SPDX-License-Identifier: GPL-2.0-only
"""What is collected of a kernel's features, and what selects it."""

from __future__ import annotations

import os
import shutil

import pytest

from ktest_ntcopy.results.model import Status
from tests.unit import fake_kernel as fake
from tests.unit.plugin_lab import FEATURE, FILE, POINTS, A, B, C, Lab, node
from tests.unit.plugin_lab import lab as lab  # a fixture
from tests.unit.plugin_lab import way as way  # a fixture
from tests.unit.spawned import ROOT

pytest_plugins = ["pytester"]


def test_collects_every_case_and_every_trace_in_order(lab: Lab) -> None:
    ids = lab.ids()
    traces = [f"{FILE}::vmlinux.{e.id}" for e in FEATURE.expected("6.12", "x86_64")]
    mine = [i for i in ids if i.startswith(FILE)]
    assert mine == traces + [node(p) for p in POINTS]
    assert ids == lab.ids("-p", "no:xdist")


def test_node_ids_select_from_any_directory(lab: Lab) -> None:
    assert lab.ids(node(B), node(A)) == [node(B), node(A)]
    assert lab.ids(f"msg_ntcopy::{A}") == [node(A)]
    assert lab.ids(f"msg_ntcopy.toml::{A}") == [node(A)]
    assert lab.ids("msg_ntcopy")[-1] == node(POINTS[-1])
    path = ROOT / "ktest_ntcopy/features/msg_ntcopy.toml"
    assert lab.ids(f"{path}::{A}") == [node(A)]


def test_package_in_a_hidden_folder_of_the_project(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``.venv/lib/…/site-packages`` is, which pytest itself does not descend into."""
    site = lab.folder / ".venv/lib/site-packages"
    for name in ("ktest_ntcopy", "tools-testing-net"):
        shutil.copytree(ROOT / name, site / name)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
    (lab.folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    done = lab.run("-m", "vmlinux", apart=True)
    assert done.code == 0, done.out + done.err
    assert f"symbol.{fake.MARKER}" in done.journal()
    assert "journal" in done.out
    assert lab.run(node(A), "-n1").journal() == {A: Status.PASS}


def test_last_failed_runs_again(lab: Lab) -> None:
    lab.script({B: "fail"})
    assert lab.run(node(A), node(B), node(C), "-p", "cacheprovider").code == 1
    done = lab.run(node(A), node(B), node(C), "-p", "cacheprovider", "--lf")
    assert done.journal() == {B: Status.FAIL}


def test_keyword_and_marker_select(lab: Lab) -> None:
    fixture = A.partition(".")[0]
    chosen = lab.ids("-k", f"{fixture} and not vmlinux", "msg_ntcopy")
    assert chosen == [node(p) for p in POINTS if fixture in p]
    traces = lab.ids("-m", "vmlinux and msg_ntcopy")
    assert traces
    assert all("::vmlinux." in i for i in traces)
    assert not any("::vmlinux." in i for i in lab.ids("-m", "selftest"))
    assert lab.ids("-m", "ktest") == lab.ids()


def test_unknown_case_is_a_usage_error(lab: Lab) -> None:
    done = lab.run(node("no.such.case"))
    assert done.code == 4
    assert "not found" in done.err


def test_without_kernel_it_stays_away(lab: Lab) -> None:
    (lab.folder / "test_it.py").write_text("def test_it(): pass\n")
    done = lab.run(kernel=None)
    assert done.code == 0
    assert "1 passed" in done.out
    assert "journal" not in done.out
    assert done.junit().tag == "testsuites"  # pytest's own
    assert not (lab.folder / "out.ndjson").exists()
