# SPDX-License-Identifier: GPL-2.0-only
"""A journal's header and a result with a value in every field."""

from __future__ import annotations

from ktest_ntcopy.results.journal import Header
from ktest_ntcopy.results.model import Cause, Result, Status

RESULT = Result(
    target="kselftest.net",
    program="msg_ntcopy",
    case="tcp6.payload",
    status=Status.FAIL,
    cause=Cause.ASSERTION,
    message="Expected 1 == 2",
    detail="line\nline \udc80\x00\u2028 ü",
    console="[    1.0] x",
    reproducer="pytest -k 'a b'",
    start=1000.25,
    duration=0.125,
    worker="gw0",
    nodeid="a::b",
    attempt=1,
    properties={"end": "exited"},
)
HEADER = Header(
    run="r1",
    tool="0.1",
    command=("pytest", "--kernel=vmlinux"),
    start=999.5,
    kernel="/k/vmlinux",
    arch="x86_64",
    config_hash="abc",
    commit="def",
    properties={"feature": "msg_ntcopy"},
    planned=(("kselftest.net", "msg_ntcopy", "tcp6.payload"),),
)
