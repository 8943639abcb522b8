# SPDX-License-Identifier: GPL-2.0-only
"""The run's journal: append-only NDJSON that survives whatever ends the run.

Each line is one JSON object with a ``kind``: "header" (facts about the run; several
processes may each add what they know) or "result" (one :class:`Result`).  Every record
is one ``write`` on a descriptor opened with O_APPEND, so worker processes share a file
on a local file system without a lock.  All text is ASCII with JSON escapes: a lone
surrogate or a control character from a guest cannot break a line.

Merging, see :meth:`Run.cases`: a case is target, program and case name.  Of several
records of one attempt the worst counts (a worker's crash report outranks a pass that
was written just before).  Of several attempts the last counts; the earlier ones are
kept in its properties.  A planned case without any record is an error, "not run".
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from ktest_ntcopy.errors import ConfigError

from .model import Cause, Result, Status
from .records import CaseId, Header, joined, to_header, to_json, to_result
from .text import one_line

__all__ = [
    "SCHEMA",
    "CaseId",
    "Header",
    "Journal",
    "Run",
    "identity",
    "merge",
    "read_journal",
    "read_lines",
]

#: Raised when a reader of the old form would misread the new one.
SCHEMA = 1

#: Bytes of the longest line that can be a record; a device, say, has no end of line.
_LINE_MAX = 64 << 20
#: Problems kept of one journal.
_PROBLEMS_MAX = 1000

_SEVERITY = {
    s: n
    for n, s in enumerate(
        (Status.PASS, Status.XFAIL, Status.SKIP, Status.XPASS, Status.FAIL, Status.ERROR)
    )
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything a journal says."""

    header: Header = field(default_factory=Header)
    results: tuple[Result, ...] = ()  #: every record, in the order of the file
    problems: tuple[str, ...] = ()  #: one line each: what could not be read, what disagrees

    def cases(self) -> tuple[Result, ...]:
        """One result per case: planned ones in planned order, then the others as they came."""
        groups: dict[CaseId, list[Result]] = {case: [] for case in self.header.planned}
        for result in self.results:
            groups.setdefault(identity(result), []).append(result)
        return tuple(merge(rs) if rs else _not_run(case) for case, rs in groups.items())

    @property
    def ok(self) -> bool:
        """True if there is at least one case and none makes the run fail."""
        cases = self.cases()
        return bool(cases) and all(c.status.ok for c in cases)


class Journal:
    """A journal open for appending.  One per process; safe beside other processes."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path | str) -> Journal:
        """Start a new journal; an old one at this path is emptied.  The controller's.

        Raises ConfigError if it cannot be written, or if another run's controller still
        has it: the lock lasts until :meth:`close`, or the end of the process.
        """
        journal = cls._open(Path(path))
        try:
            journal._lock()
            os.ftruncate(journal._descriptor, 0)
        except OSError as error:
            journal.close()
            raise ConfigError(_cannot(journal.path, error)) from error
        except ConfigError:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, path: Path | str) -> Journal:
        """Add to a journal, made if absent.  Raises ConfigError if it cannot be written."""
        journal = cls._open(Path(path))
        journal._end_torn_line()
        return journal

    @classmethod
    def _open(cls, path: Path) -> Journal:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return cls(path, os.open(path, flags, 0o644))
        except OSError as error:
            raise ConfigError(_cannot(path, error)) from error

    def header(self, header: Header) -> None:
        """Add facts about the run.  Raises ConfigError if the disk is full."""
        self._write({"kind": "header", "schema": SCHEMA, **to_json(header)})

    def append(self, result: Result) -> None:
        """Add one result.  Raises ConfigError if the disk is full."""
        self._write({"kind": "result", **to_json(result)})

    def close(self) -> None:
        """Close; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{self.path}: another run is writing this journal; give another --junitxml "
                "or --ktest-journal"
            ) from error
        except OSError:
            pass  # a file system without locks: no worse than before there was one

    def _end_torn_line(self) -> None:
        """Keep the first new record off a line that a dead writer left unfinished."""
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")

    def _write(self, record: Mapping[str, Any]) -> None:
        data = json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            raise ConfigError(_cannot(self.path, error)) from error
        if written != len(data):
            with contextlib.suppress(OSError):
                os.write(self._descriptor, b"\n")
            raise ConfigError(
                f"{self.path}: only {written} of {len(data)} bytes of a record could be "
                "written; make room on that disk"
            )


def read_journal(path: Path | str) -> Run:
    """Read a journal, whole or cut off.

    Raises ConfigError if there is no such file, or it is something else than a journal.
    """
    path = Path(path)
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: not a journal: is no regular file")
            run = read_lines(_lines(file))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the journal: {error.strerror}") from error
    if run.problems and not run.results and run.header == Header():
        raise ConfigError(f"{path}: not a journal: {run.problems[0]}")
    return run


def _open_at_once(path: str, flags: int) -> int:
    """As open() does, but without waiting for a pipe's writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines, of which those that are too long are cut."""
    while line := file.readline(_LINE_MAX + 1):
        yield line
        while len(line) > _LINE_MAX and not line.endswith(b"\n"):
            line = file.readline(_LINE_MAX + 1)


def read_lines(lines: Iterable[bytes]) -> Run:
    """Read records; lines that are none become problems, the rest is kept."""
    header = Header()
    results: list[Result] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if len(line) > _LINE_MAX:
                raise ValueError(f"it is longer than {_LINE_MAX} bytes")
            record = json.loads(line)
            kind = record["kind"]
            if kind == "header":
                schema = record.get("schema")
                if schema != SCHEMA:
                    problems.append(
                        f"line {number}: a header of schema {schema!r}, this version reads {SCHEMA}"
                    )
                header = joined(header, to_header(record), problems)
            elif kind == "result":
                results.append(to_result(record))
            # Other kinds are for readers that know them.
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            if len(problems) >= _PROBLEMS_MAX:
                continue
            torn = (
                ""
                if line.endswith(b"\n") or len(line) > _LINE_MAX
                else " (torn: its writer was killed)"
            )
            what = one_line(f"{type(error).__name__}: {error}", 120)
            problems.append(f"line {number} is not a record{torn}: {what}")
    return Run(header=header, results=tuple(results), problems=tuple(problems))


def identity(result: Result) -> CaseId:
    """What names a case in every run."""
    return (result.target, result.program, result.case)


def merge(records: Iterable[Result]) -> Result:
    """One result from all records of one case; see the module's text for the rule.

    Raises ValueError without records.
    """
    attempts: dict[int, Result] = {}
    for record in records:
        known = attempts.get(record.attempt)
        if known is None or _SEVERITY[record.status] > _SEVERITY[known.status]:
            attempts[record.attempt] = record
    if not attempts:
        raise ValueError("no records to merge")
    last = attempts[max(attempts)]
    if len(attempts) == 1:
        return last
    properties = dict(last.properties)
    properties["attempts"] = str(len(attempts))
    if len({r.status for r in attempts.values()}) > 1:
        properties["flaky"] = "true"
    for number in sorted(attempts)[:-1]:
        earlier = attempts[number]
        properties[f"attempt.{number}"] = f"{earlier.status}: {earlier.message}".rstrip(": ")
    return replace(last, properties=properties)


def _not_run(case: CaseId) -> Result:
    return Result(
        target=case[0],
        program=case[1],
        case=case[2],
        status=Status.ERROR,
        cause=Cause.NOT_RUN,
        message="not run: the run ended before this case",
    )


def _cannot(path: Path, error: OSError) -> str:
    return f"{path}: cannot write the journal: {error.strerror}"
