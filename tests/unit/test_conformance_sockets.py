# SPDX-License-Identifier: GPL-2.0-only
"""The typed socket calls: layout against the C compiler's, errors, control messages."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.sockets import (
    Calls,
    CmsgError,
    ControlMessage,
    GuardedPages,
    Message,
    MissingFunctionError,
    Segment,
    build_control,
    cmsg,
    layout,
    pack_address,
    parse_address,
    parse_control,
)

HEADERS = (
    "stddef.h",
    "stdio.h",
    "sys/socket.h",
    "sys/un.h",
    "netinet/in.h",
    "linux/vm_sockets.h",
)
#: Python's structure -> C's, with members whose names differ.
STRUCTS: dict[type[ctypes.Structure], str] = {
    layout.IoVec: "struct iovec",
    layout.MsgHdr: "struct msghdr",
    layout.MMsgHdr: "struct mmsghdr",
    layout.CmsgHdr: "struct cmsghdr",
    layout.SockAddrIn: "struct sockaddr_in",
    layout.SockAddrIn6: "struct sockaddr_in6",
    layout.SockAddrUn: "struct sockaddr_un",
    layout.SockAddrVm: "struct sockaddr_vm",
}


@pytest.fixture(scope="module")
def calls() -> Calls:
    return Calls()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def compiled(folder: Path, source: str, *options: str) -> Path:
    (folder / "it.c").write_text(source)
    out = folder / "it.out"
    subprocess.run(
        ["gcc", "-D_GNU_SOURCE", *options, "-o", str(out), str(folder / "it.c")], check=True
    )
    return out


def sizes_and_offsets() -> Iterator[tuple[str, int]]:
    for shape, name in STRUCTS.items():
        yield f"sizeof({name})", ctypes.sizeof(shape)
        for member, *_ in shape._fields_:
            field = getattr(shape, member)
            yield f"offsetof({name}, {member})", field.offset
            yield f"sizeof((({name} *)0)->{member})", field.size
    for length in (0, 1, 4, 8, 9, 100):
        yield f"CMSG_LEN({length})", cmsg.length_of(length)
        yield f"CMSG_SPACE({length})", cmsg.space(length)
        yield f"CMSG_ALIGN({length})", cmsg.align(length)


def test_layout_is_the_compilers(tmp_path: Path) -> None:
    expected = dict(sizes_and_offsets())
    prints = "\n".join(f'\tprintf("%zu\\n", (size_t)({c}));' for c in expected)
    includes = "\n".join(f"#include <{h}>" for h in HEADERS)
    program = compiled(tmp_path, f"{includes}\nint main(void)\n{{\n{prints}\n\treturn 0;\n}}\n")
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    found = dict(zip(expected, map(int, said.split()), strict=True))
    assert found == expected


# Errors


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EAGAIN, BlockingIOError),
        (errno.EPIPE, BrokenPipeError),
        (errno.ECONNREFUSED, ConnectionRefusedError),
        (errno.ECONNRESET, ConnectionResetError),
        (errno.EINTR, InterruptedError),
        (errno.EPERM, PermissionError),
        (errno.EFAULT, OSError),
    ],
)
def test_errno_becomes_its_exception(tmp_path: Path, number: int, kind: type[OSError]) -> None:
    functions = "send sendto sendmsg sendmmsg recv recvmsg getsockopt setsockopt mprotect"
    source = "#include <errno.h>\n" + "".join(
        f"long {name}(void) {{ errno = {number}; return -1; }}\n" for name in functions.split()
    )
    library = compiled(tmp_path, source, "-shared", "-fPIC", "-fno-builtin")
    failing = Calls(ctypes.CDLL(str(library), use_errno=True))
    byte = Segment.of(b"x")
    attempts: dict[str, Callable[[], object]] = {
        "send": lambda: failing.send(0, byte),
        "sendto": lambda: failing.sendto(0, byte, 0, b"a"),
        "sendmsg": lambda: failing.sendmsg(0, Message(segments=(byte,))),
        "sendmmsg": lambda: failing.sendmmsg(0, [Message(segments=(byte,))]),
        "recv": lambda: failing.recv(0, 1),
        "recvmsg": lambda: failing.recvmsg(0, 1),
        "getsockopt": lambda: failing.getsockopt(0, 1, 1, 4),
        "setsockopt": lambda: failing.setsockopt(0, 1, 1, byte),
        "mprotect": lambda: failing.mprotect(0, 1, 0),
    }
    for name, call in attempts.items():
        with pytest.raises(kind) as caught:
            call()
        assert type(caught.value) is kind
        assert caught.value.errno == number
        assert str(caught.value) == f"[Errno {number}] {os.strerror(number)}: '{name}'"


def test_missing_function_is_named_in_one_line(tmp_path: Path) -> None:
    source = "void send(void) {} void sendto(void) {} void sendmsg(void) {}\n"
    library = compiled(tmp_path, source, "-shared", "-fPIC", "-nostdlib", "-fno-builtin")
    with pytest.raises(MissingFunctionError) as caught:
        Calls(ctypes.CDLL(str(library)))
    assert "it.out has no function sendmmsg()" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_prototypes_of_others_stay(pair: tuple[socket.socket, socket.socket]) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    mine = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int)
    library.send.argtypes = mine
    Calls(library).send(pair[0].fileno(), Segment.of(b"x"))
    assert library.send.argtypes == mine


def test_bad_descriptor_and_bad_address(calls: Calls, pair: tuple[socket.socket, ...]) -> None:
    with pytest.raises(OSError, match="Bad file descriptor: 'send'"):
        calls.send(-1, Segment.of(b"x"))
    with pytest.raises(OSError, match="Bad address: 'sendmsg'"):
        calls.sendmsg(pair[0].fileno(), Message(segments=(Segment(0, 5),)))
    with pytest.raises(BlockingIOError):
        calls.recv(pair[1].fileno(), 1, socket.MSG_DONTWAIT)


# Calls


def test_bytes_go_through(calls: Calls, pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = (end.fileno() for end in pair)
    assert calls.send(left, Segment.of(b"one")) == 3
    message = Message(segments=(Segment.of(b"tw"), Segment.of(b""), Segment.of(b"o", offset=3)))
    assert calls.sendmsg(left, message) == 3
    assert calls.sendmmsg(left, [message, Message(), message]) == (3, 0, 3)
    assert calls.sendmmsg(left, []) == ()
    assert calls.recv(right, 100) == b"onetwotwotwo"


def test_batch_tells_how_far_it_came(calls: Calls) -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with left, right:
        good, bad = Message(segments=(Segment.of(b"ok"),)), Message(segments=(Segment(0, 1),))
        assert calls.sendmmsg(left.fileno(), [good, bad, good]) == (2,)
        assert calls.recv(right.fileno(), 10) == b"ok"
        with pytest.raises(OSError, match="Bad address: 'sendmmsg'"):
            calls.sendmmsg(left.fileno(), [bad, good])


def test_recvmsg_tells_truncation_and_sender(calls: Calls) -> None:
    kind = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with kind as there, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        there.bind(("127.0.0.1", 0))
        here.bind(("127.0.0.1", 0))
        address = pack_address(socket.AF_INET, there.getsockname())
        assert calls.sendto(here.fileno(), Segment.of(b"longer"), 0, address) == 6
        got = calls.recvmsg(there.fileno(), 4, flags=socket.MSG_TRUNC)
        assert (got.data, got.length, got.address) == (b"long", 6, here.getsockname())
        assert got.flags & socket.MSG_TRUNC
        message = Message(segments=(Segment.of(b"x"),), address=address)
        assert calls.sendmsg(here.fileno(), message) == 1
        assert calls.recv(there.fileno(), 10) == b"x"


def test_descriptors_go_through(calls: Calls, pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = (end.fileno() for end in pair)
    rights = ControlMessage(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("@i", left))
    calls.sendmsg(left, Message(segments=(Segment.of(b"x"),), control=(rights,)))
    (got,) = calls.recvmsg(right, 1, control=100).control
    (fd,) = struct.unpack("@i", got.data)
    try:
        assert os.path.sameopenfile(fd, left)
    finally:
        os.close(fd)


def test_options_go_through(calls: Calls, pair: tuple[socket.socket, socket.socket]) -> None:
    fd = pair[0].fileno()
    value = Segment.of(struct.pack("@i", 1))
    calls.setsockopt(fd, socket.SOL_SOCKET, socket.SO_PASSCRED, value)
    assert calls.getsockopt(fd, socket.SOL_SOCKET, socket.SO_PASSCRED, 4) == value.read()
    with pytest.raises(OSError, match="Bad address: 'setsockopt'"):
        calls.setsockopt(fd, socket.SOL_SOCKET, socket.SO_PASSCRED, Segment(0, 4))


def test_guarded_pages_end_where_they_say(
    calls: Calls, pair: tuple[socket.socket, socket.socket]
) -> None:
    pages = GuardedPages(calls, 2)
    left, right = (end.fileno() for end in pair)
    assert calls.send(left, pages.tail(b"last bytes")) == 10
    assert calls.recv(right, 100) == b"last bytes"
    for segment in (Segment(pages.end, 1), pages.tail(b"abc", beyond=1)):
        with pytest.raises(OSError, match="Bad address"):
            calls.send(left, segment)
    with pytest.raises(ValueError, match="do not fit"):
        pages.tail(bytes(pages.size + 1))


def test_segment_keeps_its_memory_alive() -> None:
    segments = [Segment.of(bytes([n]) * 1000, offset=n % 16) for n in range(200)]
    gc.collect()
    assert all(s.read() == bytes([n]) * 1000 for n, s in enumerate(segments))
    assert all(s.address % 16 == n % 16 for n, s in enumerate(segments))


# Control messages

messages = st.builds(
    ControlMessage,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=70),
)


@given(st.lists(messages, max_size=5))
def test_control_round_trip(sent: list[ControlMessage]) -> None:
    raw = build_control(sent)
    assert len(raw) == sum(cmsg.space(len(m.data)) for m in sent)
    assert parse_control(raw) == tuple(sent)
    if sent:
        # The kernel leaves out the padding of the last one.
        padding = cmsg.align(len(sent[-1].data)) - len(sent[-1].data)
        assert parse_control(raw[: len(raw) - padding]) == tuple(sent)


@given(st.binary(max_size=200))
def test_hostile_control_is_refused_or_covers_all(raw: bytes) -> None:
    try:
        found = parse_control(raw)
    except CmsgError:
        return
    assert sum(cmsg.space(len(m.data)) for m in found) >= len(raw)


@pytest.mark.parametrize("length", [0, 1, 15, 17, 2**64 - 1])
def test_control_with_a_wrong_length(length: int) -> None:
    raw = struct.pack("@Nii", length, 1, 1)
    with pytest.raises(CmsgError, match="offset 0"):
        parse_control(raw)


# Addresses


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("127.0.0.1", 65535)),
        (socket.AF_INET6, ("::1", 80, 7, 3)),
        (socket.AF_UNIX, "/run/a b"),
        (socket.AF_UNIX, "x" * 107),
        (socket.AF_UNIX, b"\0abstract\0name"),
        (socket.AF_VSOCK, (1, 0xFFFFFFFF)),
    ],
)
def test_address_round_trip(family: int, address: object) -> None:
    assert parse_address(pack_address(family, address)) == (family, address)


def test_addresses_that_make_no_sense() -> None:
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", 65536)),
        (socket.AF_UNIX, "x" * 108),
        (socket.AF_PACKET, ("lo", 0)),
    ):
        with pytest.raises(ValueError):
            pack_address(family, address)
    with pytest.raises(OSError):
        pack_address(socket.AF_INET, ("localhost", 1))
    assert parse_address(b"") == (socket.AF_UNSPEC, None)
    whole = pack_address(socket.AF_INET6, ("::1", 80))
    for length in range(1, len(whole)):
        with pytest.raises(ValueError, match="bytes"):
            parse_address(whole[:length])


def test_kernel_agrees_on_addresses() -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here,
    ):
        name = b"\0conformance-" + os.urandom(8).hex().encode()
        there.bind(name)
        here.bind(name + b"-2")
        calls = Calls()
        calls.sendto(here.fileno(), Segment.of(b"x"), 0, pack_address(socket.AF_UNIX, name))
        got = calls.recvmsg(there.fileno(), 10)
        assert (got.data, got.address) == (b"x", name + b"-2")
