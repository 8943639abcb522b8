# SPDX-License-Identifier: GPL-2.0-only
"""Parts of the agent that no real guest can be made to use, compiled for this host."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from ktest_ntcopy.machine import channel

GUEST = Path(channel.__file__).with_name("guest")

#: Looks at a pretended /proc as if the processes there had survived SIGKILL.
STUCK = """
#define _GNU_SOURCE
#include "job.c"
struct agent agent;
int main(int argc, char **argv)
{
	struct job job = { .pid = 57 };
	__u32 stuck;

	(void)argc;
	agent.proc = open(argv[1], O_RDONLY | O_DIRECTORY);
	stuck = count_stuck(&job);
	printf("%u|%s|", stuck, job.note);
	job.note[0] = 0;
	describe(&job);
	printf("%s", job.note);
	return 0;
}
"""

#: Takes one request from standard input and shows what it was understood as.
REQUEST = """
#define _GNU_SOURCE
#include <stdio.h>
#include "frames.c"
struct agent agent;
int main(void)
{
	static struct command command;
	struct ktest_header *header = receive();
	char **word;

	if (!header || parse_run(header, &command)) {
		puts("refused");
		return 0;
	}
	printf("%s %s", command.root, command.cwd);
	for (word = command.argv; *word; word++)
		printf(" [%s]", *word);
	for (word = command.envp; *word; word++)
		printf(" {%s}", *word);
	return 0;
}
"""


def build(folder: Path, name: str, main: str, *others: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(main)
    program = folder / name
    subprocess.run(
        ["gcc", "-std=gnu11", "-fsanitize=address,undefined", "-Wall", "-Wextra", "-Werror"]
        + ["-I", str(GUEST), "-o", str(program), str(source)]
        + [str(GUEST / other) for other in others],
        check=True,
    )
    return program


@pytest.fixture(scope="module")
def stuck_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stuck")
    return build(folder, "stuck", STUCK, "base.c", "frames.c", "setup.c", "child.c")


@pytest.fixture(scope="module")
def request_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("request"), "request", REQUEST, "base.c")


@pytest.mark.parametrize(
    ("processes", "wchan", "told"),
    [
        ({57: "57 (hog) D 1 1 1"}, "io_schedule", "1|57 (hog) in state D|state D in io_schedule"),
        ({57: "57 (a) b) S 1 1"}, "0", "1|57 (a) b) in state S|state S"),
        # Threads of the kernel, the agent and what is no process do not count.
        ({1: "1 (init) S 0 1", 2: "2 (kthreadd) S 0 0", 9: "9 (kworker/0:1) I 2 0"}, "", "1||"),
        ({57: "57 (x) D 1", 58: "58 (y) D 1"}, "", "2|"),
        ({57: "garbage"}, "", "1||"),
        ({57: ""}, "", "1||"),
        ({57: f"57 ({'n' * 200}) D 1"}, "", f"1|57 ({'n' * 200}) in state D|state D"),
    ],
)  # fmt: skip
def test_survivors(
    stuck_program: Path, tmp_path: Path, processes: dict[int, str], wchan: str, told: str
) -> None:
    (tmp_path / "self").mkdir()
    for pid, text in processes.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(text)
        (tmp_path / str(pid) / "wchan").write_text(wchan)
    done = subprocess.run(
        [str(stuck_program), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(told)
    assert done.stderr == ""


def understood(program: Path, request: bytes) -> str:
    """The program's line is its standard input: file descriptor 0 is also agent.port."""
    done = subprocess.run([str(program)], input=request, capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode().strip()


def request(**changes: object) -> bytes:
    values: dict[str, object] = {
        "id": 1,
        "argv": ("a", "b c", ""),
        "env": {"K": "v"},
        "root": "/host",
        "cwd": "/tmp",
        "limit": 1.0,
        "output_limit": 1,
    }
    return channel.run(1, **{**values, **changes})  # type: ignore[arg-type]


def test_request(request_program: Path) -> None:
    assert understood(request_program, request()) == "/host /tmp [a] [b c] [] {K=v}"


def test_greatest_request(request_program: Path) -> None:
    text = understood(request_program, request(argv=("x",) * channel.ARGS_MAX, env={}))
    assert text.count("[x]") == channel.ARGS_MAX
    text = understood(request_program, request(argv=("x" * 260_000,)))
    assert len(text) > 260_000


def patched(offset: int, value: int) -> bytes:
    """The usual request with one 32-bit number of its fixed part changed."""
    data = bytearray(request())
    struct.pack_into("<I", data, 12 + offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        request()[:20],
        struct.pack("<III", 1, 0, 2),
        struct.pack("<III", 1, 31, 2) + bytes(31),
        struct.pack("<III", 1, 32, 2) + bytes(32),
        patched(20, 0),  # no words
        patched(20, 5),  # more words than there are
        patched(20, channel.ARGS_MAX + 1),
        patched(24, 0xFFFFFFFF),  # variables
        struct.pack("<III", 1, len(request()) - 13, 2) + request()[12:-1],  # no last NUL
    ],
)
def test_malformed_requests(request_program: Path, data: bytes) -> None:
    assert understood(request_program, data) == "refused"
