# SPDX-License-Identifier: GPL-2.0-only
"""What ``ktest-ntcopy check`` does once its arguments are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.traces import Traces, load_traces
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import open_kernel
from ktest_ntcopy.image.screen import safe


def run(
    path: Path,
    *,
    features: Sequence[str] = (),
    as_json: bool = False,
    brief: bool = False,
    show: str = "",
    against: Path | None = None,
    tree: Path | None = None,
    dwarf: bool = False,
    colour: bool = False,
    say: Callable[[str], None] = print,
) -> int:
    """Answer one question about a kernel file; the exit status.  Raises ConfigError."""
    kernel = open_kernel(path)
    if against is not None:
        from ktest_ntcopy.image import against as comparing

        compared = comparing.compare(kernel, against, tree)
        answer = comparing.to_json(compared) if as_json else safe(comparing.to_text(compared))
        status = compared.status
    elif show:
        from ktest_ntcopy.image import show as showing

        shown = showing.show(Image(kernel, dwarf=dwarf), show, tree)
        answer = showing.to_json(shown) if as_json else safe(showing.to_text(shown))
        status = shown.status
    else:
        from ktest_ntcopy.image import check

        report = check.examine(Image(kernel, dwarf=dwarf), _selected(features))
        answer = (
            check.to_json(report) if as_json else check.to_text(report, colour=colour, brief=brief)
        )
        status = report.status
    if not isinstance(answer, str):
        import json

        answer = json.dumps(answer, indent=1)
    say(answer)
    return status


def _selected(names: Sequence[str]) -> tuple[Traces, ...]:
    known = {f.name: f for f in load_traces()}
    for name in names:
        if name not in known:
            raise ConfigError(f"--feature: no feature {name}; known: {', '.join(known)}")
    return tuple(known[n] for n in dict.fromkeys(names)) if names else tuple(known.values())
