# SPDX-License-Identifier: GPL-2.0-only
"""One verdict on one test case: the record that every report is made from."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Status(enum.StrEnum):
    """Verdict.  XFAIL and XPASS keep their own names: dashboards map them differently."""

    PASS = "pass"
    FAIL = "fail"  #: the test says the kernel is wrong
    SKIP = "skip"
    XFAIL = "xfail"
    XPASS = "xpass"
    ERROR = "error"  #: no verdict could be had (timeout, panic, no boot)

    @property
    def ok(self) -> bool:
        """True if this verdict does not make the run fail."""
        return self in (Status.PASS, Status.SKIP, Status.XFAIL)


class Cause(enum.StrEnum):
    """Why a case is not a plain pass; becomes JUnit's ``type`` attribute."""

    NONE = ""
    ASSERTION = "assertion"
    EXIT = "exit"  #: exit status without a matching verdict
    SKIP = "ktap.skip"
    XFAIL = "ktap.xfail"
    XPASS = "ktap.xpass"
    NO_VERDICT = "ktap.missing"  #: the case never printed a verdict
    MALFORMED = "ktap.malformed"  #: plan and verdicts disagree, or foreign verdicts
    BAIL_OUT = "ktap.bail"  #: the program gave up ("Bail out!")
    SIGNAL = "signal"
    OOM = "oom"
    TIMEOUT = "timeout"
    FLOOD = "output.flood"
    PANIC = "kernel.panic"
    SPLAT = "kernel.splat"  #: the case passed but the kernel complained meanwhile
    HANG = "vm.hang"
    DOWN = "vm.down"
    LOST = "vm.lost"
    BOOT = "vm.boot"
    WORKER = "worker"  #: the pytest worker process died
    NOT_RUN = "not.run"  #: planned, but the run ended before
    EXPECTATION = "vmlinux"  #: a vmlinux check failed
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class Result:
    """Verdict on one case.  All fields are plain JSON values (see :mod:`.journal`).

    ``target``.``program`` is JUnit's classname, ``case`` its name; together
    they name the case for ever and contain no numbers that change per run.
    """

    target: str  #: suite, e.g. "kselftest.net"
    program: str  #: e.g. "msg_ntcopy"
    case: str  #: e.g. "stream.tcp6.payload"
    status: Status
    cause: Cause = Cause.NONE
    message: str = ""  #: one line
    detail: str = ""  #: what the test printed
    console: str = ""  #: what the kernel printed meanwhile
    reproducer: str = ""  #: one shell line
    start: float = 0.0  #: time.time()
    duration: float = 0.0  #: seconds
    worker: str = ""  #: xdist worker id, "master" without
    nodeid: str = ""  #: pytest node id
    attempt: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def classname(self) -> str:
        """Suite and program joined the way dashboards split it."""
        return f"{self.target}.{self.program}"
