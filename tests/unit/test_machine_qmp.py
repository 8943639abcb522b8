# SPDX-License-Identifier: GPL-2.0-only
"""The monitor client against a scripted QEMU."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ktest_ntcopy.machine.qmp import Qmp, QmpError

Answer = Callable[[dict[str, Any]], list[Any]]


class FakeQemu:
    """Answers each command with what ``answer`` returns: objects, or raw bytes."""

    def __init__(self, answer: Answer) -> None:
        ours, theirs = socket.socketpair()
        self.qmp = Qmp(ours)
        self._socket = theirs
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._socket, self._socket.makefile("rb") as lines:
            self._socket.sendall(b'{"QMP": {"version": {}}}\r\n')
            for line in lines:
                for item in self._answer(json.loads(line)):
                    if item is None:
                        return
                    data = item if isinstance(item, bytes) else json.dumps(item).encode()
                    self._socket.sendall(data + b"\r\n")

    def close(self) -> None:
        self.qmp.close()
        self._thread.join(5)


@pytest.fixture
def fake() -> Iterator[Callable[[Answer], Qmp]]:
    started: list[FakeQemu] = []

    def start(answer: Answer) -> Qmp:
        started.append(FakeQemu(answer))
        return started[-1].qmp

    yield start
    for qemu in started:
        qemu.close()


def good(request: dict[str, Any]) -> list[Any]:
    return [{"return": {"status": "running"}, "id": request["id"]}]


def test_answer(fake: Callable[[Answer], Qmp]) -> None:
    qmp = fake(good)
    assert qmp.call("query-status") == {"status": "running"}
    assert qmp.status() == "running"


def test_arguments_are_sent(fake: Callable[[Answer], Qmp]) -> None:
    qmp = fake(lambda request: [{"return": request["arguments"], "id": request["id"]}])
    assert qmp.call("x", {"a": 1}) == {"a": 1}


def test_refusal(fake: Callable[[Answer], Qmp]) -> None:
    qmp = fake(lambda request: [{"error": {"desc": "not now"}, "id": request["id"]}])
    with pytest.raises(QmpError, match="inject-nmi: not now"):
        qmp.call("inject-nmi")
    assert qmp.status() == ""


def test_events_between_answers(fake: Callable[[Answer], Qmp]) -> None:
    def answer(request: dict[str, Any]) -> list[Any]:
        return [
            {"event": "STOP"},
            b"no json {",
            b"[1]",
            {"return": {}, "id": -1},
            *good(request),
            {"event": "SHUTDOWN", "data": {"guest": True, "reason": "guest-reset"}},
        ]

    qmp = fake(answer)
    qmp.call("query-status")
    qmp.call("query-status")
    assert qmp.event("STOP") == {}
    assert qmp.event("SHUTDOWN") == {"guest": True, "reason": "guest-reset"}
    assert qmp.event("RESET") is None


def test_qemu_goes_away(fake: Callable[[Answer], Qmp]) -> None:
    qmp = fake(lambda request: [None])
    with pytest.raises(QmpError, match="the monitor is gone"):
        qmp.call("query-status")
    assert qmp.closed
    assert qmp.status() == ""


def test_silent_qemu(fake: Callable[[Answer], Qmp]) -> None:
    qmp = fake(lambda request: [])
    with pytest.raises(QmpError, match=r"no answer within 0\.05 s"):
        qmp.call("query-status", timeout=0.05)


def test_late_answer_is_not_taken_for_another(fake: Callable[[Answer], Qmp]) -> None:
    held: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> list[Any]:
        held.append(request)
        if len(held) == 1:
            return []
        return [{"return": r["execute"], "id": r["id"]} for r in held]

    qmp = fake(answer)
    with pytest.raises(QmpError):
        qmp.call("first", timeout=0.05)
    assert qmp.call("second") == "second"
