# SPDX-License-Identifier: GPL-2.0-only
"""The hooks that are at work when ``--kernel`` is given.

A run has one process that starts it (the *controller*) and one or more that run
tests: the same one, or xdist's workers.  The controller checks the input, makes
the programs, and writes the reports; whoever runs a test journals its verdict.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ktest_ntcopy.book import Book
from ktest_ntcopy.errors import ConfigError, KtestError
from ktest_ntcopy.features.model import Expectation, load_features
from ktest_ntcopy.image.expectations import void
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import KernelFile
from ktest_ntcopy.judging import MUST_RUN, Judging
from ktest_ntcopy.kunit import KunitRunner
from ktest_ntcopy.machine.base import Machine, MachineSpec
from ktest_ntcopy.naming import FEATURES, PREFIX, Naming
from ktest_ntcopy.options import parse_options
from ktest_ntcopy.preflight import Preflight, Room
from ktest_ntcopy.programs import Programs, build_programs
from ktest_ntcopy.recorder import reason
from ktest_ntcopy.results.model import Result
from ktest_ntcopy.session import Session
from ktest_ntcopy.waiting import Waiting

_KEY = pytest.StashKey["Running"]()


def running(config: pytest.Config) -> Running:
    """The run of this pytest process.  Only there when ``--kernel`` was given."""
    return config.stash[_KEY]


def activate(config: pytest.Config) -> None:
    """Start a run: check the options, set pytest's arguments, register the hooks."""
    run = Running(config)
    config.stash[_KEY] = run
    config.pluginmanager.register(run, "ktest_running")
    # pytest's own writer knows neither our verdicts nor survives a kill.
    if getattr(config.option, "xmlpath", None):
        config.option.xmlpath = None
    _set_arguments(config)


def _set_arguments(config: pytest.Config) -> None:
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(FEATURES)]
        config.args_source = pytest.Config.ArgsSource.ARGS
        return
    known = {f.name: f.path for f in load_features()}
    here = config.invocation_params.dir
    config.args = [resolve_argument(arg, here, known) for arg in config.args]


def resolve_argument(arg: str, here: Path, known: Mapping[str, Path]) -> str:
    """Let feature names and our node ids name the feature file from any directory."""
    path, separator, rest = arg.partition("::")
    if (here / path).exists():
        return arg
    folder, _, name = path.rpartition("/")
    file = known.get(name.removesuffix(".toml"))
    if file is None or folder not in ("", PREFIX):
        return arg
    return f"{file}{separator}{rest}"


_BOOT = 60.0  # seconds for a boot at reference speed
_BOOT_WATCHED = 240.0  # the same of a kernel that checks its own memory or locks
_WATCHERS = ("CONFIG_KASAN", "CONFIG_KCSAN", "CONFIG_KMSAN", "CONFIG_PROVE_LOCKING")

#: What CI systems send, and what a closing terminal does.
_TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)


def _interrupt(number: int, _: object) -> NoReturn:
    # Only once: the next one would interrupt what the first set off, the reports.
    # Not SIG_IGN, which programs that are started from here would inherit.
    for one in _TERMINATIONS:
        if signal.getsignal(one) is _interrupt:
            signal.signal(one, lambda *_: None)
    raise KeyboardInterrupt(signal.Signals(number).name)


class Running(Judging):
    """One pytest process's part in a run; registered as a pytest plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._input: Mapping[str, Any] = getattr(config, "workerinput", {})
        options = parse_options(config)
        super().__init__(
            options,
            Image(options.kernel),
            Naming(config.rootpath),
            worker=self._input.get("workerid", "master"),
        )
        #: True in the process that starts the run and writes the reports.
        self.controls = not self._input
        self.programs = Programs(config, self._input.get("ktest_programs"))
        self.book = Book(self.options, self.naming, worker=self.worker, controls=self.controls)
        watched = self._has(*_WATCHERS)
        spec = MachineSpec(
            kernel=self.options.kernel.path,
            cpus=self.options.cpus,
            memory_mib=self.options.memory_mib,
            timeout=self.options.timeout_scale * (_BOOT_WATCHED if watched else _BOOT),
        )
        self.session = Session(
            spec=spec,
            factory=self._make_machine,
            files=self.programs.files,
            required=lambda: self.required,
            command=self.options.command,
            worker=self.worker,
            timeout_scale=self.options.timeout_scale,
            on_boot=self.book.booted,
            aftermath=self.book.add,
            notify=partial(self.book.notice, about="leaks"),
        )
        self.kunit = KunitRunner(
            spec=spec,
            factory=self._make_machine,
            config=self.options.kernel.config,
            version=self.options.kernel.version,
            required=lambda: self.required,
            demanded=self.options.require,
            command=self.options.command,
            worker=self.worker,
            timeout_scale=self.options.timeout_scale,
            on_boot=self.book.booted,
        )
        self.preflight = Preflight(self.image, Room.of(spec))
        self._waiting: Waiting | None = None
        self._prepared = False
        self._left: set[str] = set()  # node ids of tests that have not ended
        self._old_handlers: dict[signal.Signals, Any] = {}

    def _make_machine(self, spec: MachineSpec) -> Machine:
        made: Machine | None
        made = self.config.hook.pytest_ktest_make_machine(config=self.config, spec=spec)
        if made is None:
            raise ConfigError("no plugin makes a machine (pytest_ktest_make_machine)")
        return made

    @pytest.hookimpl(trylast=True)
    def pytest_ktest_make_machine(self, spec: MachineSpec) -> Machine:
        from ktest_ntcopy.machine.qemu import QemuMachine
        from ktest_ntcopy.machine.qemu_command import find_qemu

        qemu = find_qemu(self.options.qemu)
        return QemuMachine(spec, accel=self.options.accel, qemu=qemu, notify=self.book.notice)

    @pytest.hookimpl(trylast=True)
    def pytest_ktest_build_programs(self, kernel: KernelFile) -> Mapping[str, Path]:
        return build_programs(kernel, self.options.tree)

    # -- before the tests ----------------------------------------------------------

    def pytest_report_header(self) -> list[str]:
        kernel = self.options.kernel
        return [
            f"kernel: {kernel.release} {kernel.arch}, {kernel.kind} {kernel.path}",
            f"machine: QEMU, acceleration {self.options.accel}, {self.options.cpus} CPUs, "
            f"{self.options.memory_mib} MiB; journal: {self.options.journal}",
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        if not self.config.option.collectonly:
            self._catch_termination()
            self.book.open([str(a) for a in self.config.invocation_params.args])

    def _catch_termination(self) -> None:
        """Let SIGTERM and SIGHUP end the run as Ctrl-C does: with reports."""
        if self.controls and threading.current_thread() is threading.main_thread():
            for one in _TERMINATIONS:
                # Ignored as under nohup, or none of Python's: then it stays as it is.
                if signal.getsignal(one) not in (signal.SIG_IGN, None):
                    self._old_handlers[one] = signal.signal(one, _interrupt)

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        from ktest_ntcopy.items import FeatureFile

        if file_path.suffix != ".toml":
            return None
        if file_path.parent == FEATURES:
            nodeid = f"{PREFIX}/{file_path.name}"
            return FeatureFile.from_parent(parent, path=file_path, nodeid=nodeid)
        if parent.session.isinitpath(file_path):
            return FeatureFile.from_parent(parent, path=file_path)
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.controls and not self.config.option.collectonly:
            self._prepare([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        # Only what execnet can send: strings.
        node.workerinput["ktest_journal"] = str(self.options.journal)
        node.workerinput["ktest_programs"] = self.programs.record

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        # The workers wait for work until this returns: now the programs can be made.
        if self._prepare(ids):
            self._waiting = Waiting(self.config, "a machine boots in each worker")

    def _prepare(self, ids: Sequence[str]) -> bool:
        """Make ready what the selected tests need; True if it was and they need a machine.

        Raises pytest.UsageError.
        """
        if self._prepared:
            return False
        self._prepared = True
        self._left = set(ids)
        self.book.plan(ids)
        booting = [i for i in ids if self.naming.needs_machine(i)]
        foreign = [i for i in ids if not self.naming.is_ours(i)]
        try:
            booting = [i for i in booting if not self._stops(i)]
            if not booting and not foreign:
                return False
            programs = any(self.naming.needs_programs(i) for i in booting)
            programs = programs or any(self._takes_programs(i) for i in foreign)
            if problem := self.options.kernel.boot_problem:
                raise ConfigError(problem)
            # Read now: a damaged symbol table is to be said before the first test.
            _ = self.required
            if programs:
                with Waiting(self.config, "compiling the test programs"):
                    self.programs.build(self.options.kernel)
            # Made, not booted: a host that can run no machine is found out now.
            self._make_machine(self.session.spec).close()
        except KtestError as err:
            if booting:
                hint = "; `-m vmlinux` selects what needs no machine"
                raise pytest.UsageError(f"{str(err).splitlines()[0]}{hint}") from err
            # Only tests in Python: one that asks for the guest will say it.
            self.programs.fail(err)
        return bool(booting)

    def _takes_programs(self, nodeid: str) -> bool:
        """True for a test in Python that nobody says does without them."""
        hook = self.config.hook.pytest_ktest_needs_programs
        return hook(config=self.config, nodeid=nodeid) is not False

    def _stops(self, nodeid: str) -> bool:
        """True for a case that needs something this kernel or machine does not have."""
        if found := self.naming.selftest(nodeid):
            feature, program, point = found
            return self.preflight.obstacle(feature, program.needed(point)) is not None
        if case := self.naming.kunit(nodeid):
            feature, suite = case
            return self.preflight.obstacle(feature, suite.needed()) is not None
        return False

    # -- verdicts ------------------------------------------------------------------

    def record(self, result: Result) -> None:
        """Journal the verdict of one of our items.  Raises ConfigError if that fails."""
        self.book.settle(result)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        from ktest_ntcopy.items import Item, locate_skip

        report = yield
        if isinstance(item, Item):
            locate_skip(item, report)
        elif self.options.require_all and report.skipped and not hasattr(report, "wasxfail"):
            report.outcome = "failed"
            report.longrepr = f"{MUST_RUN}: {reason(report)}"
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._waiting:
            self._waiting.stop()
        if report.when == "teardown":
            self._left.discard(report.nodeid)
            if self._prepared and not self._left and self._has("CONFIG_DEBUG_KMEMLEAK"):
                self._waiting = Waiting(self.config, "the kernel is asked for leaks")
        if node := getattr(report, "node", None):  # set by xdist's controller
            if str(report.when) == "???":
                self.book.crashed(report, worker=node.gateway.id)
        else:
            self.book.see(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.controls:
            self.book.collection_failed(report)

    # -- after the tests -----------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        asks = self.options.kernel.config is None or self._has("CONFIG_DEBUG_KMEMLEAK")
        if asks and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self.session.find_leaks()
        self.session.close()
        if self._waiting:
            self._waiting.stop()
        if self.controls and exitstatus != pytest.ExitCode.USAGE_ERROR:
            well = self.book.write_reports()
            # The reports know more than pytest's own count: a kernel that died after
            # the last verdict, for one.
            if not well and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self) -> None:
        for one, handler in self._old_handlers.items():
            signal.signal(one, handler)
        self.session.close()
        self.programs.close()
        self.book.close()

    def _has(self, *options: str) -> bool:
        """True if the kernel is known to have one of the options built in."""
        config = self.options.kernel.config
        return config is not None and any(config[name] == "y" for name in options)

    def _void(self) -> list[Expectation]:
        return [e for f in load_features() for e in f.expectations if void(self.image, e)]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        lines = [*self.book.summary()]
        if names := [e.id for e in self._void()]:
            left_out = "1 expectation does" if len(names) == 1 else f"{len(names)} expectations do"
            lines.append(
                f"{left_out} not apply to this kernel, `ktest-ntcopy check` says why: "
                f"{', '.join(names)}"
            )
        if lines:
            terminalreporter.section("kernel tests")
            for line in lines:
                terminalreporter.write_line(line)
