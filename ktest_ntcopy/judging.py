# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel file says of a test before, or instead of, running it."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property

from ktest_ntcopy.features.model import Expectation, Feature, load_features
from ktest_ntcopy.image.expectations import Found, check
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.presence import feature_present
from ktest_ntcopy.naming import Naming
from ktest_ntcopy.options import Options
from ktest_ntcopy.preflight import Obstacle
from ktest_ntcopy.results.model import Cause, Result, Status


def judge_finding(found: Found, *, required: bool) -> tuple[Status, Cause]:
    """What it means that a trace is (not) there, if the feature is (not) required."""
    if found is Found.FOUND:
        return Status.PASS, Cause.NONE
    if found is Found.NOT_APPLICABLE or not required:
        return Status.SKIP, Cause.SKIP
    if found is Found.UNKNOWN:
        return Status.ERROR, Cause.EXPECTATION
    return Status.FAIL, Cause.EXPECTATION


#: Begins the message of a test that was skipped where none may be.
MUST_RUN = "skipped, which --ktest-require-all forbids"


class Judging:
    """Verdicts that need no machine.  Knows the kernel file and what the caller demands."""

    def __init__(self, options: Options, image: Image, naming: Naming, *, worker: str) -> None:
        self.options = options
        self.image = image
        self.naming = naming
        self.worker = worker
        self._shown: dict[str, bool] = {}

    @cached_property
    def required(self) -> frozenset[str]:
        """Features whose tests must not be skipped: demanded ones, and those vmlinux shows."""
        return self.options.require | {f.name for f in load_features() if self.shown(f)}

    def shown(self, feature: Feature) -> bool:
        """Whether vmlinux shows the feature.  Looked at once: names near those that are missing
        take their time.
        """
        if feature.name not in self._shown:
            self._shown[feature.name] = bool(feature_present(self.image, feature))
        return self._shown[feature.name]

    def check(self, feature: Feature, expectation: Expectation, *, nodeid: str) -> Result:
        """Hold one expectation against vmlinux."""
        start, clock = time.time(), time.perf_counter()
        required = feature.name in self.required or self.shown(feature)
        finding = check(self.image, expectation)
        status, cause = judge_finding(finding.found, required=required)
        message = finding.message
        if status is Status.SKIP and finding.found is Found.MISSING:
            message = f"the kernel is without {feature.name} ({message})"
        return Result(
            target="vmlinux",
            program=feature.name,
            case=expectation.id,
            status=status,
            cause=cause,
            message=message,
            reproducer=self.options.command(nodeid),
            start=start,
            duration=time.perf_counter() - clock,
            worker=self.worker,
            nodeid=nodeid,
        )

    def stopped(
        self, feature: Feature, obstacle: Obstacle, *, nodeid: str, demanded: bool
    ) -> Result:
        """The verdict on a case that cannot run, as the case itself would have it.

        ``demanded``: a demand for the feature is one for what is missing here.
        """
        result = self.skipped(nodeid, obstacle.reason)
        if not demanded or feature.name not in self.options.require:
            return result
        return replace(
            result,
            status=Status.FAIL,
            cause=Cause.EXPECTATION,
            message=f"{feature.name} is required, but {obstacle.reason}",
            reproducer=self.options.command(nodeid),
        )

    def allowed(self, result: Result) -> Result:
        """The verdict as it counts: a skip is a failure with ``--ktest-require-all``."""
        if not self.options.require_all or result.status is not Status.SKIP:
            return result
        return replace(
            result,
            status=Status.FAIL,
            cause=Cause.EXPECTATION,
            message=f"{MUST_RUN}: {result.message}",
            reproducer=self.options.command(result.nodeid),
        )

    def skipped(self, nodeid: str, reason: str) -> Result:
        """The verdict on a case that is not tried."""
        target, program, case = self.naming.case(nodeid)
        return Result(
            target=target,
            program=program,
            case=case,
            status=Status.SKIP,
            cause=Cause.SKIP,
            message=reason,
            start=time.time(),
            worker=self.worker,
            nodeid=nodeid,
        )
