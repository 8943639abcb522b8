# SPDX-License-Identifier: GPL-2.0-only
"""One process's KUnit suites: each boots a machine of its own, once, and is kept as text.

KUnit runs built-in suites while the kernel boots, before there is an agent to ask.  So a
suite's results are read from the console of a boot that ran this suite and no other: what
was printed stays known even if the kernel dies of the next case.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ktest_ntcopy.errors import BootError, KtestError, MachineLost
from ktest_ntcopy.features.kunit import KunitSuite
from ktest_ntcopy.features.model import Feature
from ktest_ntcopy.image.file.config import KernelConfig
from ktest_ntcopy.machine.base import ConsoleLine, End, Machine, MachineInfo, MachineSpec
from ktest_ntcopy.naming import KUNIT, WHOLE
from ktest_ntcopy.results.kunit import (
    KernelCase,
    SuiteLog,
    claim_of_case,
    claim_of_suite,
    failed_to_begin,
    outcome,
    read_names,
    read_suite,
)
from ktest_ntcopy.results.model import Cause, Result, Status
from ktest_ntcopy.results.verdict import Case, Claim, could_not_boot, judge_claim
from ktest_ntcopy.session import BOOT_ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class _Boot:
    """What is left of a machine that was booted for KUnit."""

    filter: str  #: kunit.filter_glob
    lines: tuple[ConsoleLine, ...]
    log: SuiteLog
    end: End  #: EXITED if the kernel lived to report back
    detail: str  #: one line, why it did not
    start: float  #: time.time()
    clock: float  #: time.monotonic() at the start
    finish: float  #: time.monotonic() at the end

    @property
    def died(self) -> bool:
        return self.end is not End.EXITED


class KunitRunner:
    """Runs KUnit suites and judges their cases.

    ``factory`` makes a machine for a spec; ``config`` is the kernel's, None if it is not
    known; ``required`` names the features whose tests must not be skipped, ``demanded``
    those of them that the caller asked for; ``command`` makes the reproducer of a node id.
    """

    def __init__(
        self,
        *,
        spec: MachineSpec,
        factory: Callable[[MachineSpec], Machine],
        config: KernelConfig | None,
        version: str,
        required: Callable[[], frozenset[str]],
        demanded: frozenset[str] = frozenset(),
        command: Callable[[str], str] = str,
        worker: str = "master",
        timeout_scale: float = 1.0,
        on_boot: Callable[[MachineInfo], None] | None = None,
    ) -> None:
        self._spec = spec
        self._factory = factory
        self._config = config
        self._version = version
        self._required = required
        self._demanded = demanded
        self._command = command
        self._worker = worker
        self._scale = timeout_scale
        self._on_boot = on_boot
        self._boots: dict[str, _Boot] = {}  # by filter
        self._names: dict[str, tuple[str, ...]] = {}
        self._failure: KtestError | None = None

    def boots_next(self, suite: KunitSuite) -> bool:
        """True if the next case of this suite has to wait for a boot."""
        return suite.name not in self._boots and self._failure is None

    def prepare(self, suite: KunitSuite, case: str, *, nodeid: str = "") -> Result | None:
        """Have the suite run.  None, or the case's Result if no machine can be had for it."""
        start = time.time()
        try:
            self._whole(suite)
        except KtestError as err:
            return self._unbooted(self._case(suite, case, nodeid), err, start)
        return None

    def run_case(
        self, feature: Feature, suite: KunitSuite, name: str, *, nodeid: str = ""
    ) -> Result:
        """The Result of one case, or of naming.WHOLE."""
        case = self._case(suite, name, nodeid)
        start = time.time()
        try:
            boot = self._whole(suite)
            if reason := self._absent(suite, boot):
                return self._missing(feature, suite, case, reason)
            if name == WHOLE:
                return self._judge_whole(suite, case, boot)
            return self._judge_case(suite, case, boot)
        except KtestError as err:
            return self._unbooted(case, err, start)

    # -- booting -------------------------------------------------------------------

    def _whole(self, suite: KunitSuite) -> _Boot:
        return self._boot(suite, suite.name, len(suite.cases))

    def _boot(self, suite: KunitSuite, glob: str, cases: int) -> _Boot:
        """A boot with this filter, the one and only of this process.  Raises KtestError."""
        if glob not in self._boots:
            if self._failure is not None:
                # A copy: each raise would add to its traceback.
                raise copy.copy(self._failure) from None
            self._boots[glob] = self._boot_now(suite, glob, cases)
        return self._boots[glob]

    def _boot_now(self, suite: KunitSuite, glob: str, cases: int, more: str = "") -> _Boot:
        silence = suite.timeout * self._scale
        spec = replace(
            self._spec,
            files={},
            append=f"{self._spec.append} kunit.enable=1 kunit.filter_glob={glob}{more}".strip(),
            timeout=self._spec.timeout + cases * silence,
            boot_silence=silence,
        )
        for attempt in range(1, BOOT_ATTEMPTS + 1):
            boot, err = self._try(suite, glob, spec)
            if err is None or (boot.log.started and boot.end is not End.LOST):
                break
            if attempt < BOOT_ATTEMPTS and isinstance(err, BootError | MachineLost):
                continue
            if boot.log.started:
                break
            if not self._boots:
                # Nothing has booted yet: the next suite would not, either.
                self._failure = err
            raise err
        return boot

    def _try(
        self, suite: KunitSuite, glob: str, spec: MachineSpec
    ) -> tuple[_Boot, KtestError | None]:
        """Boot once; what there is to read of it, and why it did not report back."""
        start, clock = time.time(), time.monotonic()
        end, detail = End.EXITED, ""
        error: KtestError | None = None
        lines: tuple[ConsoleLine, ...] = ()
        try:
            machine = self._factory(spec)
            try:
                info = machine.boot()
                if self._on_boot:
                    self._on_boot(info)
            finally:
                lines = machine.boot_console
                machine.close()
        except KtestError as err:
            error, end = err, _end(err)
            detail = str(err).splitlines()[0].removeprefix(f"{spec.kernel}: ")
        boot = _Boot(
            filter=glob,
            lines=lines,
            log=read_suite(lines, suite.name),
            end=end,
            detail=detail,
            start=start,
            clock=clock,
            finish=time.monotonic(),
        )
        return boot, error

    def _order(self, suite: KunitSuite) -> tuple[str, ...]:
        """The suite's cases in the order the kernel runs them, by its own list."""
        if suite.name not in self._names:
            names: tuple[str, ...] = ()
            try:
                boot = self._boot_now(suite, suite.name, 1, " kunit.action=list")
                names = read_names(boot.lines, suite.name)
            except KtestError:
                pass  # it could be booted for the suite: go by the feature file
            self._names[suite.name] = names or tuple(c.name for c in suite.cases)
        return self._names[suite.name]

    def _victim(self, suite: KunitSuite, boot: _Boot) -> str:
        """The case that a boot ended in; empty if it was none's time."""
        if not boot.died or boot.log.plan is None:
            return ""
        order, cases = self._order(suite), boot.log.cases
        done = cases[-1].point.number if cases else 0
        return order[done] if done < len(order) else ""

    # -- judging -------------------------------------------------------------------

    def _judge_case(self, suite: KunitSuite, case: Case, boot: _Boot) -> Result:
        if reports := boot.log.named(case.case):
            return self._reported(case, boot, reports)
        log = boot.log
        if not boot.died and not log.started:
            claim = Claim(Status.ERROR, Cause.NO_VERDICT, "KUnit printed nothing at boot")
            return self._judged(case, boot, claim)
        if boot.died:
            if log.plan is None and log.verdict is None:
                return self._ended(case, boot, log.head + log.tail, f"before {suite.name} began")
            if self._victim(suite, boot) == case.case:
                return self._ended(case, boot, log.tail)
        elif log.verdict is not None and not log.cases:
            return self._judged(case, boot, failed_to_begin(log), log.head + log.tail)
        elif len(log.cases) == log.plan:
            text = f"suite {suite.name} has no case {case.case}"
            return self._judged(case, boot, Claim(Status.FAIL, Cause.NO_VERDICT, text))
        return self._alone(suite, case)

    def _alone(self, suite: KunitSuite, case: Case) -> Result:
        """A case that another one, or a gap in the console, kept from being reported."""
        boot = self._boot(suite, f"{suite.name}.{case.case}", 1)
        log = boot.log
        if reports := log.named(case.case):
            return self._reported(case, boot, reports)
        if boot.died:
            when = "" if log.plan is not None else f"before {suite.name} began"
            return self._ended(case, boot, log.head + log.tail, when)
        if log.absent:
            text = f"suite {suite.name} has no case {case.case}"
            return self._judged(case, boot, Claim(Status.FAIL, Cause.NO_VERDICT, text))
        text = f"no verdict on {case.case}"
        claim = Claim(Status.ERROR, Cause.NO_VERDICT, text)
        return self._judged(case, boot, claim, log.head + log.tail)

    def _judge_whole(self, suite: KunitSuite, case: Case, boot: _Boot) -> Result:
        log = boot.log
        around = log.head + log.tail
        if not boot.died:
            claim = claim_of_suite(log, {c.name for c in suite.cases})
            return self._judged(case, boot, claim, around)
        victim = self._victim(suite, boot)
        if victim:
            where = f"in {victim}"
            if victim not in {c.name for c in suite.cases}:
                where += ", which the feature file does not list"
        elif log.plan is None and log.verdict is None:
            where = f"before {suite.name} began"
        else:
            where = "after the last case"
        return self._ended(case, boot, around, where)

    def _reported(self, case: Case, boot: _Boot, reports: tuple[KernelCase, ...]) -> Result:
        lines = tuple(x for r in reports for x in r.lines)
        claim = claim_of_case(reports)
        last = lines[-1].time if lines else reports[0].began
        made = outcome(
            lines,
            start=boot.start + max(0.0, reports[0].began - boot.clock),
            duration=max(0.0, last - reports[0].began),
        )
        return judge_claim(_with(case, boot), made, claim, tuple(r.point for r in reports))

    def _judged(
        self, case: Case, boot: _Boot, claim: Claim, lines: tuple[ConsoleLine, ...] = ()
    ) -> Result:
        made = outcome(lines, start=boot.start, duration=boot.finish - boot.clock)
        return judge_claim(_with(case, boot), made, claim)

    def _ended(
        self, case: Case, boot: _Boot, lines: tuple[ConsoleLine, ...], when: str = ""
    ) -> Result:
        """The kernel died, and this case has to answer for it."""
        began = lines[0].time if lines else boot.clock
        made = outcome(
            lines,
            end=boot.end,
            detail=boot.detail,
            start=boot.start + max(0.0, began - boot.clock),
            duration=max(0.0, boot.finish - began),
        )
        claim = Claim(Status.ERROR, Cause.NO_VERDICT)
        result = judge_claim(_with(case, boot), made, claim)
        return replace(result, message=f"{when}: {result.message}") if when else result

    # -- what is not there ---------------------------------------------------------

    def _absent(self, suite: KunitSuite, boot: _Boot) -> str:
        """Why the suite did not run on a kernel that booted well; empty if it did."""
        if boot.log.absent:
            return f"the kernel has no KUnit suite {suite.name}"
        if not boot.log.started and (self._config is None or self._config["CONFIG_KUNIT"] != "y"):
            return f"the kernel has no KUnit suite {suite.name}: it is without CONFIG_KUNIT=y"
        return ""

    def _missing(self, feature: Feature, suite: KunitSuite, case: Case, reason: str) -> Result:
        support = feature.support.get(self._version)
        own = support.series if support else ""
        if series := suite.series or own:
            reason += f" (series {series} adds it)"
        # A feature that is there shows that its suite must be only if they came together.
        together = bool(own) and series == own and feature.name in self._required()
        claim = Claim(Status.SKIP, Cause.SKIP, reason)
        if together or feature.name in self._demanded:
            text = f"{feature.name} is required, but {reason}"
            claim = Claim(Status.FAIL, Cause.NO_VERDICT, text)
        return judge_claim(case, outcome((), start=time.time()), claim)

    def _unbooted(self, case: Case, err: KtestError, start: float) -> Result:
        message, _, console = str(err).partition("\n")
        result = could_not_boot(case, message, console)
        if not isinstance(err, BootError):
            lost = isinstance(err, MachineLost)
            result = replace(result, cause=Cause.LOST if lost else Cause.OTHER)
        return replace(result, start=start, duration=time.time() - start)

    def _case(self, suite: KunitSuite, name: str, nodeid: str) -> Case:
        return Case(
            target=KUNIT,
            program=suite.name,
            case=name,
            reproducer=self._command(nodeid),
            worker=self._worker,
            nodeid=nodeid,
        )


def _with(case: Case, boot: _Boot) -> Case:
    return replace(case, properties={**case.properties, "kunit.filter_glob": boot.filter})


def _end(err: KtestError) -> End:
    try:
        return End(getattr(err, "end", ""))
    except ValueError:
        return End.LOST
