# SPDX-License-Identifier: GPL-2.0-only
"""Writers that run at once, are killed or find the disk full; files that are no journal."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.results.journal import Header, Journal, read_journal
from ktest_ntcopy.results.model import Cause
from tests.unit.journal_samples import RESULT


def _writer(path: str, worker: int, count: int) -> None:
    with Journal.open(path) as journal:
        for n in range(count):
            journal.append(
                replace(
                    RESULT, case=f"{worker}.{n}", detail="x" * (n * 37 % 20_000), worker=str(worker)
                )
            )


def test_processes_write_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "j"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_writer, args=(str(path), w, 200)) for w in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    run = read_journal(path)
    assert run.problems == ()
    assert len(run.cases()) == 800


def test_a_killed_run_keeps_what_was_finished(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.header(Header(planned=tuple(("t", "p", str(n)) for n in range(3))))
    writer = multiprocessing.get_context("spawn").Process(
        target=_writer, args=(str(path), 1, 1_000_000)
    )
    writer.start()
    deadline = time.monotonic() + 60
    while path.stat().st_size < 200_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join(60)
    run = read_journal(path)
    assert len(run.results) > 10
    assert len(run.problems) <= 1
    assert sum(c.cause is Cause.NOT_RUN for c in run.cases()) == 3


def test_a_full_disk_is_one_clear_line() -> None:
    with Journal.open("/dev/full") as journal, pytest.raises(ConfigError, match="No space left"):
        journal.append(RESULT)


def test_a_short_write_is_told_and_does_not_spoil_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "j"
    true_write = os.write
    with Journal.create(path) as journal:
        monkeypatch.setattr(os, "write", lambda fd, data: true_write(fd, data[:20]))
        with pytest.raises(ConfigError, match="only 20 of"):
            journal.append(RESULT)
        monkeypatch.undo()
        journal.append(RESULT)
    run = read_journal(path)
    assert run.results == (RESULT,)
    assert len(run.problems) == 1


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the journal"):
        Journal.create(tmp_path)
    with pytest.raises(ConfigError, match="cannot read the journal"):
        read_journal(tmp_path / "absent")


def test_closing_twice(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "j")
    journal.close()
    journal.close()


def test_a_second_controller_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.append(RESULT)
        with pytest.raises(ConfigError, match=r"j: another run is writing .* --ktest-journal"):
            Journal.create(path)
        with Journal.open(path) as worker:
            worker.append(RESULT)
        assert len(read_journal(path).results) == 2
    with Journal.create(path):
        assert path.read_bytes() == b""
    assert [p.name for p in tmp_path.iterdir()] == ["j"]


def _hold(path: Path) -> None:
    journal = Journal.create(path)
    journal.append(RESULT)
    time.sleep(60)


def test_a_killed_controller_does_not_keep_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(path,))
    process.start()
    deadline = time.monotonic() + 20
    while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(ConfigError, match="another run"):
        Journal.create(path)
    process.kill()
    process.join()
    Journal.create(path).close()
    assert path.read_bytes() == b""


def test_what_is_no_regular_file_is_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigError, match=r"not a journal: is no regular file|directory"):
            read_journal(path)


def test_a_file_without_any_record_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(b"\x7fELF\n" * 5000)
    with pytest.raises(ConfigError, match=r"vmlinux: not a journal: line 1 is not a record"):
        read_journal(path)
    with path.open("ab") as file:
        file.write(b'{"kind":"header","schema":1,"run":"r"}\n')
    run = read_journal(path)
    assert run.header.run == "r"
    assert len(run.problems) == 1000


def test_a_line_without_an_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktest_ntcopy.results.journal._LINE_MAX", 100)
    path = tmp_path / "j"
    header = b'{"kind":"header","schema":1,"run":"r"}\n'
    path.write_bytes(header + b"x" * 1000 + b"\n" + header + b"y" * 5000)
    assert read_journal(path).problems == (
        "line 2 is not a record: ValueError: it is longer than 100 bytes",
        "line 4 is not a record: ValueError: it is longer than 100 bytes",
    )
