# SPDX-License-Identifier: GPL-2.0-only
"""Runs the conformance tests in a virtual machine and hands their reports to this pytest.

The guest sees this host's files, so the same pytest runs there.  Starting it takes
seconds under emulation: all selected tests run in one go, in one process of the run.
The others (xdist's workers) wait for its records.  A test that takes the guest down
is to blame for that; a new guest runs the tests that are left.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from conformance.guest_reporter import TOKEN
from ktest_ntcopy.errors import KtestError
from ktest_ntcopy.machine.base import Command, End, Outcome
from ktest_ntcopy.running import running
from ktest_ntcopy.session import Session
from ktest_ntcopy.waiting import Waiting

HERE = Path(__file__).resolve().parent
#: Guests that may be lost before the tests that are left are given up.
LOSSES = 10
#: Seconds at reference speed that one test may take in the guest.
TEST_LIMIT = 30.0
#: Seconds at reference speed that pytest may take to start there.
START_LIMIT = 60.0
_OUTPUT_LIMIT = 64 << 20  # bytes: reports of all tests
_SHOWN = 4000  # characters of output and console that explain a lost guest
_POLL = 0.1  # seconds
_FOLDER = "ktest_conformance"  # key of xdist's workerinput

Reports = Sequence[Mapping[str, Any]]
#: Runs these node ids in a guest; the word marks the reporter's lines in the output.
Execute = Callable[[Sequence[str], str], Outcome]


@dataclass
class Heard:
    """What one guest had to say."""

    finished: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    running: str = ""  #: node id of the test that had begun and not ended
    trouble: list[str] = field(default_factory=list)
    rest: str = ""  #: output that is not the reporter's


def listen(output: str, token: str, asked: Sequence[str]) -> Heard:
    """Take the reporter's lines out of a guest's output; what makes no sense is output."""
    heard = Heard()
    known = frozenset(asked)
    rest: list[str] = []
    reports: list[dict[str, Any]] = []
    # Only "\n" ends a line here; JSON escapes it, so that no report is cut in two.
    for line in output.split("\n"):
        word, _, text = line.partition(" ")
        record = _record(text) if word == token else None
        match record:
            case {"start": str(nodeid)} if nodeid in known:
                heard.running, reports = nodeid, []
            case {"report": {"nodeid": nodeid} as report} if nodeid == heard.running:
                reports.append(report)
            case {"finish": str(nodeid)} if nodeid == heard.running and complete(reports):
                heard.finished[heard.running], heard.running = reports, ""
            case {"trouble": str(trouble)}:
                heard.trouble.append(trouble)
            case _:
                rest.append(line)
    heard.rest = "\n".join(filter(None, rest))
    return heard


def complete(reports: Reports) -> bool:
    """True if these are the reports of a test from its set-up to its tear-down."""
    phases = [r.get("when") for r in reports]
    return phases in (["setup", "teardown"], ["setup", "call", "teardown"])


def tidy(data: Mapping[str, Any]) -> dict[str, Any]:
    """A serialised report with the tuples that JSON turned into lists.

    Raises ValueError, TypeError or KeyError if pytest could not show such a report.
    """
    longrepr = data["longrepr"]
    if data["outcome"] not in ("passed", "failed", "skipped"):
        raise ValueError(f"its outcome is {data['outcome']!r}")
    if isinstance(longrepr, list):
        path, line, reason = longrepr
        longrepr = (str(path), int(line), str(reason))
    elif data["outcome"] == "skipped" and not isinstance(data.get("wasxfail"), str):
        raise ValueError("it skipped without a reason")
    return {
        **data,
        "longrepr": longrepr,
        "duration": float(data["duration"]),
        "sections": [(str(title), str(text)) for title, text in data["sections"]],
        "user_properties": [(str(name), value) for name, value in data["user_properties"]],
    }


def _record(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def verdicts(nodeids: Sequence[str], execute: Execute) -> Iterator[tuple[str, Reports]]:
    """The reports of every one of these tests, from as many guests as it takes."""
    left = list(dict.fromkeys(nodeids))
    losses = 0
    while left:
        token = secrets.token_hex(8)
        try:
            outcome = execute(left, token)
        except KtestError as err:
            message = str(err)
            yield from ((nodeid, unheard(nodeid, message)) for nodeid in left)
            return
        heard = listen(outcome.text, token, left)
        yield from heard.finished.items()
        left = [nodeid for nodeid in left if nodeid not in heard.finished]
        if not left:
            return
        message = explain(outcome, heard)
        if heard.running:
            losses += 1
            yield heard.running, blamed(heard.running, message)
            left.remove(heard.running)
        if not (heard.running or heard.finished) or losses >= LOSSES or _refused(outcome):
            yield from ((nodeid, unheard(nodeid, message)) for nodeid in left)
            return


def _refused(outcome: Outcome) -> bool:
    """True if pytest came to its own end: asking again would give the same."""
    return outcome.end is End.EXITED and outcome.exit_code not in (0, 1, None)


def explain(outcome: Outcome, heard: Heard) -> str:
    """Why tests have no verdict: one line, then what there is to see."""
    if outcome.end is End.EXITED:
        first = f"pytest in the guest ended with exit status {outcome.exit_code}"
        if heard.running:
            first += " in the middle of this test"
    else:
        first = outcome.detail or f"the guest ended: {outcome.end}"
    console = "\n".join(line.text for line in outcome.console)
    parts = [first, *heard.trouble]
    for title, text in (("output", heard.rest), ("console", console)):
        if text.strip():
            parts.append(f"--- {title} in the guest ---\n{text[-_SHOWN:]}")
    return "\n".join(parts)


def blamed(nodeid: str, message: str) -> Reports:
    """Reports of a test that the guest did not survive."""
    return _three(nodeid, call=("failed", message))


def unheard(nodeid: str, message: str) -> Reports:
    """Reports of a test that there is no verdict on."""
    return _three(nodeid, setup=("failed", message))


def _three(nodeid: str, **failed: tuple[str, str]) -> Reports:
    """Serialised reports of set-up, call (unless the set-up failed) and tear-down."""
    phases = ("setup", "teardown") if "setup" in failed else ("setup", "call", "teardown")
    now = time.time()
    return [
        {
            "$report_type": "TestReport",
            "nodeid": nodeid,
            "location": [nodeid.partition("::")[0], None, nodeid],
            "keywords": {},
            "outcome": failed.get(phase, ("passed", ""))[0],
            "longrepr": failed.get(phase, ("", None))[1],
            "when": phase,
            "user_properties": [],
            "sections": [],
            "duration": 0.0,
            "start": now,
            "stop": now,
        }
        for phase in phases
    ]


def _for_guest(item: pytest.Item) -> bool:
    """True for a test of a running kernel; those of its file need no machine."""
    return item.path.is_relative_to(HERE) and item.get_closest_marker("vmlinux") is None


class InGuest:
    """A pytest plugin that has each conformance test run in the guest."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        given = getattr(config, "workerinput", {}).get(_FOLDER)
        self._owned = not given
        #: Where the processes of one run meet; a worker that was given none is on its own.
        self.folder = Path(given or tempfile.mkdtemp(prefix="ktest-conformance-"))
        self._records: dict[str, Reports] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_ktest_needs_programs(self, nodeid: str) -> bool | None:
        """These tests bring all that they need."""
        path = self._config.rootpath / nodeid.partition("::")[0]
        return False if path.is_relative_to(HERE) else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist where to look."""
        node.workerinput[_FOLDER] = str(self.folder)

    def pytest_unconfigure(self) -> None:
        """Clean up."""
        if self._owned:
            shutil.rmtree(self.folder, ignore_errors=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Report what the guest said instead of running the test here."""
        if not _for_guest(item):
            return None
        hook, config = item.ihook, self._config
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in self._reports(item):
            hook.pytest_runtest_logreport(report=self._revive(config, item, data))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @staticmethod
    def _revive(
        config: pytest.Config, item: pytest.Item, data: Mapping[str, Any]
    ) -> pytest.TestReport:
        revive = config.hook.pytest_report_from_serializable
        try:
            report = revive(config=config, data=tidy(data))
            if not isinstance(report, pytest.TestReport):
                raise TypeError(f"it is a {type(report).__name__}")
        except Exception as err:  # whatever a guest sent that is no report
            (broken, _) = unheard(item.nodeid, f"the guest's report makes no sense: {err!r}")
            report = revive(config=config, data=dict(broken))
            assert isinstance(report, pytest.TestReport)
        report.location = item.location
        return report

    def _reports(self, item: pytest.Item) -> Reports:
        """Reports of a test; has the guest run everything if nobody has."""
        while item.nodeid not in self._records:
            with (self.folder / "lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(_POLL)
                    self._read()
                    continue
                self._read()
                # Whoever held the lock may have been killed: what it left is done here.
                mine = filter(_for_guest, item.session.items)
                self._run([i.nodeid for i in mine if i.nodeid not in self._records])
                self._read()
        return self._records[item.nodeid]

    def _read(self) -> None:
        path = self.folder / "records"
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            nodeid, reports = json.loads(line)
            self._records[nodeid] = reports

    def _run(self, nodeids: Sequence[str]) -> None:
        path = self.folder / "records"
        with (
            Waiting(self._config, f"{len(nodeids)} tests in Python run in one go in the guest"),
            path.open("a", encoding="utf-8") as records,
            self._session() as session,
        ):
            for nodeid, reports in verdicts(nodeids, self._execute(session)):
                records.write(json.dumps([nodeid, reports]) + "\n")
                records.flush()

    def _session(self) -> Session:
        run = running(self._config)
        hook = self._config.hook.pytest_ktest_make_machine
        return Session(
            spec=replace(run.session.spec, share=Path("/")),
            factory=lambda spec: hook(config=self._config, spec=spec),
            files=dict,
            required=frozenset,
            worker=run.worker,
            timeout_scale=run.options.timeout_scale,
            on_boot=run.book.booted,
        )

    def _execute(self, session: Session) -> Execute:
        scale = running(self._config).options.timeout_scale

        def execute(nodeids: Sequence[str], token: str) -> Outcome:
            listed = self.folder / f"items-{token}"
            listed.write_text("\n".join(nodeids) + "\n", encoding="utf-8")
            slowdown = session.machine().info.slowdown
            command = guest_command(
                self._config.rootpath,
                listed,
                token,
                count=len(nodeids),
                test_limit=TEST_LIMIT * slowdown * scale,
            )
            return session.run(command)

        return execute


def guest_command(
    root: Path,
    listed: Path,
    token: str,
    *,
    count: int,
    test_limit: float,
) -> Command:
    """Runs in the guest the ``count`` node ids that are listed in a file, one a line.

    They are relative to ``root``.  A test that takes longer than ``test_limit`` seconds
    ends pytest.
    """
    words = [sys.executable, "-m", "pytest", "-p", "conformance.guest_reporter"]
    # Neither the project's own options nor other plugins have a say in the guest.
    words += ["-c", os.devnull, f"--rootdir={root}"]
    words += ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:junitxml"]
    words += ["-o", f"faulthandler_timeout={test_limit:.0f}"]
    words += ["-o", "faulthandler_exit_on_timeout=true"]
    path = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return Command(
        argv=(*words, f"@{listed}"),
        env={
            TOKEN: token,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(path),
            "LC_ALL": "C.UTF-8",
        },
        cwd=str(root),
        root="/host",
        timeout=START_LIMIT + count,
        output_limit=_OUTPUT_LIMIT,
    )
