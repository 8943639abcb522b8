# SPDX-License-Identifier: GPL-2.0-only
"""The frame protocol: both sides agree, and nothing that arrives upsets the host."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.machine import channel
from ktest_ntcopy.machine.channel import Decoder, Exit, Kind, Output, Pong, Ready, Reason, Started

TOKEN = 0x8BADF00D
HEADER_FILE = Path(channel.__file__).with_name("guest") / "protocol.h"


def frame(kind: int, payload: bytes, token: int = TOKEN) -> bytes:
    return struct.pack("<III", token, len(payload), kind) + payload


def output(number: int, data: bytes) -> bytes:
    return frame(Kind.OUTPUT, struct.pack("<QII", 1_500_000_000, number, 0) + data)


def exit_frame(reason: int, value: int = 0, stuck: int = 0, note: bytes = b"") -> bytes:
    return frame(Kind.EXIT, struct.pack("<QIIiI", 2, 7, reason, value, stuck) + note + b"\0")


def feed(data: bytes, sizes: Sequence[int] = ()) -> tuple[list[channel.Message], Decoder]:
    """Decode ``data`` in pieces of ``sizes``, the rest at once."""
    decoder, messages = Decoder(TOKEN), []
    for size in sizes:
        messages += list(decoder.feed(data[:size]))
        data = data[size:]
    messages += list(decoder.feed(data))
    return messages, decoder


def test_header_file_and_python_have_the_same_numbers() -> None:
    text = HEADER_FILE.read_text()
    numbers = {n: int(v) for n, v in re.findall(r"\bKTEST_(\w+)\s*=?\s+(\d+)\b", text)}
    for member in (*Kind, *Reason):
        assert numbers[member.name] == member.value
    for name in ("VERSION", "REQUEST_MAX", "REPLY_MAX", "ARGS_MAX", "HELLO_SHARE"):
        assert numbers[name] == getattr(channel, name)
    strings = dict(re.findall(r'#define KTEST_(\w+)\s+"([^"]*)"', text))
    for name in ("PORT_NAME", "SHARE_TAG", "FATAL_MARK"):
        assert strings[name] == getattr(channel, name)


def test_header_file_and_python_have_the_same_layout(tmp_path: Path) -> None:
    """Let the compiler tell sizes and offsets, and compare."""
    layouts = {
        "hello": (channel._HELLO, "version flags"),
        "run": (channel._RUN, "limit_ms output_limit id argc envc"),
        "ping": (channel._PING, "sequence"),
        "ready": (channel._READY, "time compute_ns kernel_ns version"),
        "started": (channel._STARTED, "time id pid"),
        "output": (channel._OUTPUT, "time id"),
        "exit": (channel._EXIT, "time id reason value stuck"),
        "pong": (channel._PONG, "sequence"),
        "header": (channel._HEADER, "token length type"),
    }
    lines = ["#include <stddef.h>", "#include <stdio.h>", f'#include "{HEADER_FILE}"']
    lines.append("int main(void) {")
    for name, (_, members) in layouts.items():
        lines.append(f'printf("%zu", sizeof(struct ktest_{name}));')
        lines += [f'printf(" %zu", offsetof(struct ktest_{name}, {m}));' for m in members.split()]
        lines.append('puts("");')
    lines.append("return 0; }")
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join(lines))
    subprocess.run(["gcc", "-o", str(program), str(source)], check=True)
    told = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    for line, (name, (packed, members)) in zip(told.splitlines(), layouts.items(), strict=True):
        size, *offsets = map(int, line.split())
        assert size == packed.size, name
        letters = packed.format.lstrip("<")
        expected = [struct.calcsize("<" + letters[:n]) for n in range(len(members.split()))]
        assert offsets == expected, name


def test_run_request() -> None:
    request = channel.run(
        TOKEN,
        id=9,
        argv=("a", "b c"),
        env={"K": "v"},
        root="/",
        cwd="/tmp",
        limit=1.5,
        output_limit=10,
    )
    token, length, kind = struct.unpack_from("<III", request)
    assert (token, length, kind) == (TOKEN, len(request) - 12, Kind.RUN)
    assert struct.unpack_from("<QQIIII", request, 12) == (1500, 10, 9, 2, 1, 0)
    assert request[12 + 32 :] == b"/\0/tmp\0a\0b c\0K=v\0"


@pytest.mark.parametrize(
    ("limit", "milliseconds"), [(0, 1), (-1, 1), (0.25, 250), (float("inf"), 10**12)]
)
def test_limits(limit: float, milliseconds: int) -> None:
    request = channel.run(
        TOKEN, id=1, argv=("a",), env={}, root="/", cwd="/", limit=limit, output_limit=-5
    )
    assert struct.unpack_from("<QQ", request, 12) == (milliseconds, 0)


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ((), {}),
        (("a\0b",), {}),
        (("a",), {"k": "\0"}),
        (("x" * channel.REQUEST_MAX,), {}),
        (("x",) * (channel.ARGS_MAX + 1), {}),
        (("x",), {str(n): "" for n in range(channel.ARGS_MAX + 1)}),
    ],
)
def test_requests_that_cannot_be_sent(argv: tuple[str, ...], env: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        channel.run(TOKEN, id=1, argv=argv, env=env, root="/", cwd="/", limit=1, output_limit=1)


def test_every_message() -> None:
    ready = struct.pack("<QQQII", 3_000_000_000, 1000, 2000, 1, 0) + b"6.12\0#1 SMP\0x86_64\0"
    data = (
        frame(Kind.READY, ready)
        + frame(Kind.STARTED, struct.pack("<QII", 10**9, 7, 57))
        + output(7, b"hi\0\xff")
        + exit_frame(Reason.SIGNALED, 9, 2, b"x (y)")
        + frame(Kind.PONG, struct.pack("<I", 4))
    )
    messages, decoder = feed(data)
    assert messages == [
        Ready(1, 3.0, 1e-6, 2e-6, "6.12", "#1 SMP", "x86_64"),
        Started(7, 57, 1.0),
        Output(7, 1.5, b"hi\0\xff"),
        Exit(7, Reason.SIGNALED, 9, 2, 2e-9, "x (y)"),
        Pong(4),
    ]
    assert decoder.noise == 0


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), max_size=30))
def test_pieces_do_not_matter(parts: list[bytes], sizes: list[int]) -> None:
    messages, decoder = feed(b"".join(output(1, part) for part in parts), sizes)
    assert [m.data for m in messages if isinstance(m, Output)] == parts
    assert decoder.noise == 0


@given(
    st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=60)), max_size=6),
    st.lists(st.integers(1, 50), max_size=20),
)
def test_noise_between_frames_is_skipped(
    parts: list[tuple[bytes, bytes]], sizes: list[int]
) -> None:
    mark = struct.pack("<I", TOKEN)
    clean = [(noise.replace(mark[:1], b""), data) for noise, data in parts]
    messages, decoder = feed(b"".join(noise + output(1, data) for noise, data in clean), sizes)
    assert [m.data for m in messages if isinstance(m, Output)] == [data for _, data in clean]
    assert decoder.noise == sum(len(noise) for noise, _ in clean)


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=10))
def test_anything_may_arrive(data: bytes, sizes: list[int]) -> None:
    mark = struct.pack("<I", TOKEN)
    for hostile in (data, mark + data, data + mark + data):
        feed(hostile, sizes)


@pytest.mark.parametrize(
    "bad",
    [
        frame(99, b""),  # no such message
        frame(Kind.EXIT, b"short"),
        exit_frame(77),  # no such reason
        frame(Kind.STARTED, b""),
        frame(Kind.READY, b"x" * 40),
        struct.pack("<III", TOKEN, 0xFFFFFFFF, Kind.OUTPUT),  # would never be complete
    ],
)
def test_malformed_frames_do_not_hide_the_next(bad: bytes) -> None:
    messages, decoder = feed(bad + output(1, b"after"))
    assert messages == [Output(1, 1.5, b"after")]
    assert decoder.noise == len(bad)


def test_frames_of_another_machine_are_noise() -> None:
    messages, _ = feed(frame(Kind.PONG, struct.pack("<I", 1), token=TOKEN ^ 1))
    assert messages == []
