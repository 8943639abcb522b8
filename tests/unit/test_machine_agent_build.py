# SPDX-License-Identifier: GPL-2.0-only
"""The agent is compiled once, and a cache that lies is not believed."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from pathlib import Path

import pytest

from ktest_ntcopy.errors import MachineError
from ktest_ntcopy.machine.agent_build import agent_program


@pytest.fixture
def counting_cc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that always makes the same and counts its calls in a file."""
    count = tmp_path / "count"
    count.touch()
    cc = fake_cc(tmp_path / "counting-cc", f'echo >>"{count}"')
    monkeypatch.setenv("CC", str(cc))
    return count


def fake_cc(path: Path, before: str = "") -> Path:
    path.write_text(
        f'#!/bin/sh\n{before}\nwhile [ "$1" != -o ]; do shift; done\n'
        'head -c 5000 /dev/zero > "$2"\n'
    )
    path.chmod(0o755)
    return path


def entry(cache: Path) -> Path:
    (found,) = (cache / "agent").iterdir()
    return found


def test_compiled_once(tmp_path: Path, counting_cc: Path) -> None:
    cache = tmp_path / "cache"
    first = agent_program(cache=cache)
    assert first == bytes(5000)
    assert agent_program(cache=cache) == first
    assert counting_cc.read_text() == "\n"


def test_refuses_to_run_but_as_first_process(tmp_path: Path) -> None:
    """Started by mistake on a host, it must not mount anything there."""
    program = tmp_path / "agent"
    program.write_bytes(agent_program(cache=tmp_path / "cache"))
    program.chmod(0o755)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "ktest-agent: only runs as process 1\n"


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "append"])
def test_corrupt_entry_is_made_again(tmp_path: Path, counting_cc: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    first = agent_program(cache=cache)
    data = bytearray(entry(cache).read_bytes())
    match damage:
        case "flip":
            data[1000] ^= 1
        case "truncate":
            del data[-100:]
        case "empty":
            data.clear()
        case "append":
            data += b"x"
    entry(cache).write_bytes(data)
    assert agent_program(cache=cache) == first
    assert counting_cc.read_text() == "\n\n"
    assert agent_program(cache=cache) == first
    assert counting_cc.read_text() == "\n\n"


def test_other_compiler_other_entry(tmp_path: Path, counting_cc: Path) -> None:
    cache = tmp_path / "cache"
    agent_program(cache=cache)
    agent_program(cache=cache, cc=str(fake_cc(tmp_path / "other-cc")))
    assert len(list((cache / "agent").iterdir())) == 2


def _build(cache: Path, cc: str) -> None:
    assert agent_program(cache=cache, cc=cc) == bytes(5000)


def test_several_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    cc = str(fake_cc(tmp_path / "slow-cc", "sleep 0.2"))
    cache = tmp_path / "cache"
    workers = [context.Process(target=_build, args=(cache, cc)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert entry(cache).is_file()


def test_cache_that_cannot_be_written(tmp_path: Path, counting_cc: Path) -> None:
    (tmp_path / "file").touch()
    for _ in range(2):
        assert agent_program(cache=tmp_path / "file") == bytes(5000)
    assert counting_cc.read_text() == "\n\n"


def test_a_compiler_of_several_words(
    tmp_path: Path, counting_cc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", f"env {os.environ['CC']}")
    assert agent_program(cache=tmp_path / "cache") == bytes(5000)
    assert counting_cc.read_text() == "\n"


def test_no_compiler(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"no C compiler 'no-such-cc'.*gcc and libc6-dev"):
        agent_program(cache=tmp_path, cc="no-such-cc")


def test_compiler_that_fails(tmp_path: Path) -> None:
    cc = tmp_path / "cc"
    cc.write_text("#!/bin/sh\necho 'ld: cannot find -lc: error' >&2\nexit 1\n")
    cc.chmod(0o755)
    with pytest.raises(MachineError, match=r"cannot find -lc.*libc6-dev"):
        agent_program(cache=tmp_path, cc=str(cc))
    assert not list((tmp_path / "agent").glob("*"))
