# SPDX-License-Identifier: GPL-2.0-only
"""A run as JUnit XML, in the dialect that kernel dashboards agree on.

One flat ``testsuite`` per target below ``testsuites``; each ``testcase`` has a
classname (target and program, whose own dots become underscores), a name without
number or directive, a time, and at most one of failure, error and skipped, whose
``type`` is the :class:`~ktest_ntcopy.results.model.Cause`.  The counts are those of
the elements.  What the guest printed is cleaned, so the file is always well-formed.
"""

# junitparser says that it is typed, but types few of its functions.
# mypy: allow-untyped-calls

from __future__ import annotations

import io
import math
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from junitparser import (
    Error,
    Failure,
    Properties,
    Property,
    Skipped,
    SystemOut,
    xunit2,
)

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.paths import is_plain
from ktest_ntcopy.results.journal import Header, Run
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.results.text import clean, excerpt, one_line

_CONSOLE = "--- kernel console ---"
#: Characters of output repeated inside a failure; all of it is in system-out.
_FAILURE_MAX = 4096

_ELEMENTS = {
    Status.FAIL: Failure,
    Status.XPASS: Failure,
    Status.ERROR: Error,
    Status.SKIP: Skipped,
    Status.XFAIL: Skipped,
}


def write_junit(run: Run, path: Path | str) -> None:
    """Write the report; a reader sees the old file or the new one, never a part.

    Raises ConfigError if it cannot be written, or would replace a device or a pipe.
    """
    path = Path(path)
    data = to_junit(run)
    try:
        if not is_plain(path):
            raise ConfigError(f"{path}: cannot write the report: is no regular file")
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            # mkstemp makes it private; a report is for everybody the umask allows.
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the report: {error.strerror}") from error


def to_junit(run: Run) -> bytes:
    """The report as UTF-8 XML with a declaration."""
    targets: dict[str, list[Result]] = {}
    for result in run.cases():
        targets.setdefault(result.target, []).append(result)
    root = xunit2.JUnitXml()
    for target, results in targets.items():
        root.add_testsuite(_suite(target, results, run))
    root.update_statistics()
    out = io.BytesIO()
    root.write(out)
    return out.getvalue()


def class_name(result: Result) -> str:
    """Target and program; importers split at dots, so the program has none of its own."""
    return f"{_name(result.target)}.{_name(result.program).replace('.', '_')}"


def _suite(target: str, results: list[Result], run: Run) -> xunit2.TestSuite:
    suite = xunit2.TestSuite(_name(target))
    start = run.header.start or min(r.start for r in results)
    suite.timestamp = _timestamp(start)
    _add_properties(suite, _facts(run.header))
    if run.problems:
        _add_properties(suite, [("journal.problems", "; ".join(run.problems[:20]))])
    suite.add_testcases([_case(r) for r in results])  # one call: each updates all counts
    return suite


def _case(result: Result) -> xunit2.TestCase:
    case = xunit2.TestCase(_name(result.case), class_name(result), _seconds(result.duration))
    _add_properties(case, _case_properties(result))
    element = _ELEMENTS.get(result.status)
    if element is not None:
        message = one_line(result.message) or result.status.value
        verdict = element(message, (result.cause or Cause.OTHER).value)
        text = "" if element is Skipped else _explained(result, message)
        if text:
            verdict.text = text
        case.append(verdict)
    if output := _output(result):
        case.append(SystemOut(output))
    return case


def _explained(result: Result, message: str) -> str:
    """The text of a failure: what, how to see it again, what was printed."""
    parts = [message]
    if result.reproducer:
        parts.append(f"reproduce: {one_line(result.reproducer, 4000)}")
    if result.detail.strip():
        parts += ["", excerpt(clean(result.detail).strip("\n"), _FAILURE_MAX)]
    return "\n".join(parts)


def _output(result: Result) -> str:
    parts = []
    if result.detail.strip():
        parts.append(clean(result.detail).rstrip("\n"))
    if result.console.strip():
        parts += [_CONSOLE, clean(result.console).rstrip("\n")]
    return "\n".join(parts)


def _facts(header: Header) -> Iterator[tuple[str, str]]:
    yield "kernel.release", header.release
    yield "kernel.version", header.version
    yield "kernel.path", header.kernel
    yield "kernel.commit", header.commit
    yield "kernel.config_hash", header.config_hash
    yield "arch", header.arch
    yield "machine", header.machine
    yield "accel", header.accel
    yield "machine.command", " ".join(header.machine_command)
    if header.slowdown:
        yield "machine.slowdown", f"{header.slowdown:.2f}"
    if header.boot_seconds:
        yield "machine.boot_seconds", f"{header.boot_seconds:.3f}"
    yield "command", " ".join(header.command)
    yield "tool.version", header.tool
    yield "run", header.run
    yield from sorted(header.properties.items())


def _case_properties(result: Result) -> Iterator[tuple[str, str]]:
    yield "status", result.status.value
    yield "attempt", str(result.attempt)
    yield "reproducer", result.reproducer
    yield "nodeid", result.nodeid
    yield "worker", result.worker
    yield from sorted(result.properties.items())


def _add_properties(
    parent: xunit2.TestSuite | xunit2.TestCase,
    facts: Iterator[tuple[str, str]] | list[tuple[str, str]],
) -> None:
    """Append the properties that have a value, in order."""
    properties = Properties()
    known = False
    for name, value in facts:
        if value:
            properties.add_property(Property(_name(name), one_line(value, 4000)))
            known = True
    if known:
        parent.append(properties)


def _name(text: str) -> str:
    """A name as an attribute holds it; empty names break importers."""
    return one_line(text) or "unnamed"


def _seconds(value: float) -> float:
    """Milliseconds are enough, and no report ends in "nan" or "1e-05"."""
    return round(value, 3) if math.isfinite(value) and 0 < value < 1e9 else 0.0


def _timestamp(start: float) -> str:
    """ISO 8601 in UTC without an offset, as the schema has it; the epoch if unknown."""
    try:
        moment = datetime.fromtimestamp(start, UTC)
    except (OverflowError, OSError, ValueError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")
