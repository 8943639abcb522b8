# SPDX-License-Identifier: GPL-2.0-only
"""What the figures about reading a vmlinux are made of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ktest_ntcopy import bench_image, bench_readers
from ktest_ntcopy.bench_image import Reader, Run, Subjects, measure, questions, table, take_turns
from tests.unit import fake_kernel as fake


def ran(cpu: float, *, inside: float | None = None, problem: str = "") -> Run:
    return Run(cpu=cpu, wall=2 * cpu, peak=5 << 20, inside=inside, answer="7", problem=problem)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_measures_a_process_and_what_it_started() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    held = bytearray(60 << 20)  # is not counted as the reader's
    one = measure(["sh", "-c", f"'{sys.executable}' -S -c '{burn}'; echo done"])
    assert len(held)
    assert one.cpu >= 0.2
    assert 1 << 20 < one.peak < 40 << 20
    assert (one.answer, one.problem, one.inside) == ("done", "", None)


def test_takes_what_a_reader_says_of_itself() -> None:
    one = measure(python("""print('{"seconds": 0.25, "answer": [1]}')"""))
    assert (one.inside, one.answer) == (0.25, "[1]")


def test_a_reader_that_fails_says_why_and_is_not_asked_again() -> None:
    readers = [
        Reader(name="broken", argv=python("raise SystemExit('no such thing')")),
        Reader(name="slow", argv=python("print(1)"), once=True),
        Reader(name="good", argv=python("print(1)")),
    ]
    take_turns(readers, 2)
    assert [len(r.runs) for r in readers] == [1, 1, 2]
    assert readers[0].runs[0].problem == "no such thing"


def test_a_reader_may_not_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_image, "_MEMORY", 1 << 30)
    assert measure(python("b = bytearray(2 << 30)")).problem == "> 1 GiB"


def test_a_reader_may_not_take_all_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_image, "_SECONDS", 1)
    assert measure(python("while True: pass")).problem == "> 1 s"


def test_ratios_are_to_the_first_reader() -> None:
    readers = [
        Reader(name="ours", argv=[], runs=[ran(0.2, inside=0.01), ran(0.1, inside=0.01)]),
        Reader(name="theirs", argv=[], runs=[ran(0.6, inside=0.5), ran(0.3, inside=0.5)]),
        Reader(name="slow", argv=[], runs=[ran(60, problem="> 60 s")]),
    ]
    text = table("a question", readers)
    title, _, ours, theirs, slow = text.splitlines()
    assert title == "a question"
    assert "0.150 (0.100 to 0.200)" in ours
    assert "3.00" in theirs.split()
    assert "50.0" in theirs.split()
    assert "> 60 s" in slow
    assert "nan" not in text


def test_every_question_begins_with_our_answer(tmp_path: Path) -> None:
    vmlinux = tmp_path / "vmlinux"
    vmlinux.write_bytes(fake.with_feature())
    asked = Subjects(symbols=("one", "two"), enumerator="E", struct="iov_iter", chain=("a", "b"))
    found = questions(vmlinux, asked, tmp_path)
    assert len(found) == 7
    for readers in found.values():
        assert "ktest_ntcopy" in " ".join(readers[0].argv)
        assert all(str(vmlinux) in reader.argv for reader in readers)


@pytest.mark.parametrize("reader", ["ours", "pyelftools"])
def test_readers_agree(tmp_path: Path, reader: str, capsys: pytest.CaptureFixture[str]) -> None:
    vmlinux = tmp_path / "vmlinux"
    vmlinux.write_bytes(fake.elf(symbols=["one", "two"]))
    for question, names, answer in (
        ("symbols", ["one", "two", "three"], 2),
        ("absent", [bench_image.ABSENT], "true"),
    ):
        assert bench_readers.main([reader, question, str(vmlinux), *names]) == 0
        assert f'"answer": {answer}}}' in capsys.readouterr().out
