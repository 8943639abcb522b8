# SPDX-License-Identifier: GPL-2.0-only
"""``ktest-ntcopy check``: what a kernel file shows of the features, for people and scripts.

JSON, with ``--json``, is one object::

    {"format": "ktest-ntcopy-check", "version": 1,
     "status": 0,                   as the exit status
     "kernel": {"path", "vmlinux", "kind", "release", "arch", "identity",
                "config", "config_problem"},
     "features": [{"name", "title",
                   "verdict": "present", "partial", "absent", "unknown", "not applicable",
                   "expectations": [{"id", "kind", "name", "expected", "why", "source",
                                     "marker", "shared", "absent",
                                     "result": "found", "missing", "unknown",
                                               "not applicable",
                                     "detail", "nearest": []}]}]}

"vmlinux" and "config" (where the configuration was read) are null if there is none, and so
is "config_problem" (configurations that were found but not used, and why).
Within a version, keys are only added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ktest_ntcopy.image.expectations import Finding, Found, check, prepare, void
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import KernelFile
from ktest_ntcopy.image.presence import Verdict, verdict
from ktest_ntcopy.image.screen import safe_line

if TYPE_CHECKING:
    from ktest_ntcopy.features.model import Feature
    from ktest_ntcopy.features.traces import Traces

#: Of the JSON object; a new one when a key goes or changes its meaning.
FORMAT_VERSION = 1

_COLOURS = {
    Found.FOUND: "32",
    Found.MISSING: "31",
    Found.UNKNOWN: "33",
    Found.NOT_APPLICABLE: "2",
}
_VERDICTS = {Verdict.PRESENT: "32", Verdict.NOT_APPLICABLE: "2", Verdict.UNKNOWN: "33"}


@dataclass(frozen=True, kw_only=True)
class FeatureReport:
    """All that is expected of one feature, and what was found."""

    feature: Feature | Traces
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """What it comes to."""
        return verdict(self.findings)


@dataclass(frozen=True, kw_only=True)
class Report:
    """One kernel, all features that were asked for."""

    kernel: KernelFile
    features: tuple[FeatureReport, ...]

    @property
    def status(self) -> int:
        """Exit status: 0 all there, 1 something missing, 2 something cannot be told."""
        found = {f.found for report in self.features for f in report.findings}
        if Found.MISSING in found:
            return 1
        return 2 if Found.UNKNOWN in found else 0


def examine(image: Image, features: Iterable[Feature | Traces]) -> Report:
    """Hold everything against a kernel.  Raises ConfigError for a damaged file."""
    features = tuple(features)
    prepare(image, (e for f in features for e in f.expectations if not void(image, e)))
    return Report(
        kernel=image.kernel,
        features=tuple(
            FeatureReport(feature=f, findings=tuple(check(image, e) for e in f.expectations))
            for f in features
        ),
    )


def head(kernel: KernelFile) -> str:
    """A kernel in one line."""
    config = "no configuration"
    problem = f" ({kernel.config_problem})" if kernel.config_problem else ""
    if kernel.config:
        # The file itself has just been named.
        config = f"configuration: {kernel.config.source.removesuffix(f' in {kernel.path}')}"
    return safe_line(f"{kernel.path}: Linux {kernel.release} {kernel.arch}, {config}{problem}")


def to_text(report: Report, *, colour: bool = False, brief: bool = False) -> str:
    """For people, grouped by feature.  ``brief`` leaves out what was found."""

    def paint(text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if colour else text

    lines = [head(report.kernel)]
    for one in report.features:
        word = paint(one.verdict.value, _VERDICTS.get(one.verdict, "31"))
        lines += ["", f"{one.feature.name}: {word}", f"  {one.feature.title}"]
        for finding in one.findings:
            if brief and finding.found is Found.FOUND:
                continue
            name = paint(f"{finding.found.value:<15}", _COLOURS[finding.found])
            lines.append(f"  {name} {finding.expectation}")
            lines += [f"  {'':15}   {safe_line(line)}" for line in _details(finding)]
        if not one.findings:
            lines.append("  nothing is expected in vmlinux")
    return "\n".join(lines)


def _details(finding: Finding) -> list[str]:
    if finding.found in (Found.FOUND, Found.NOT_APPLICABLE):
        return [finding.detail]
    lines = [f"found: {finding.detail}" if finding.found is Found.MISSING else finding.detail]
    if finding.nearest:
        lines.append(f"nearest: {', '.join(finding.nearest)}")
    wanted = finding.expectation
    return [*lines, f"because: {wanted.why} ({wanted.source})"]


def to_json(report: Report) -> dict[str, Any]:
    """For scripts.  See the module for its shape."""
    return {
        **envelope(report.kernel, report.status),
        "features": [
            {
                "name": one.feature.name,
                "title": one.feature.title,
                "verdict": one.verdict.value,
                "expectations": [_one(f) for f in one.findings],
            }
            for one in report.features
        ],
    }


def envelope(kernel: KernelFile, status: int) -> Mapping[str, Any]:
    """The keys that every answer in JSON begins with."""
    return {
        "format": "ktest-ntcopy-check",
        "version": FORMAT_VERSION,
        "status": status,
        "kernel": {
            "path": str(kernel.path),
            "vmlinux": str(kernel.vmlinux) if kernel.vmlinux else None,
            "kind": kernel.kind,
            "release": kernel.release,
            "arch": kernel.arch,
            "identity": kernel.identity,
            "config": kernel.config.source if kernel.config else None,
            "config_problem": kernel.config_problem or None,
        },
    }


def _one(finding: Finding) -> dict[str, Any]:
    wanted = finding.expectation
    return {
        "id": wanted.id,
        "kind": wanted.kind,
        "name": wanted.name,
        "expected": str(wanted),
        "why": wanted.why,
        "source": wanted.source,
        "marker": wanted.marker,
        "shared": wanted.shared,
        "absent": wanted.absent,
        "result": finding.found.value,
        "detail": finding.detail,
        "nearest": list(finding.nearest),
    }
