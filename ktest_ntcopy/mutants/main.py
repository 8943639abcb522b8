# SPDX-License-Identifier: GPL-2.0-only
"""Make each mutant, run the tests, and say which test caught it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ktest_ntcopy.errors import BuildError, KtestError, PatchError
from ktest_ntcopy.kernel.process import Notify, locked
from ktest_ntcopy.kernel.tree import Tree, recognise
from ktest_ntcopy.mutants import trial
from ktest_ntcopy.mutants.mutant import Mutant
from ktest_ntcopy.mutants.trial import Outcome, Trial
from ktest_ntcopy.mutants.workshop import Workshop, apply, open_workshop
from ktest_ntcopy.results.model import Cause


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    breaks: str
    outcome: Outcome
    first: str  #: the first failing test, or why there is none
    failed: int = 0
    ran: int = 0
    seconds: float = 0.0  #: compiling, linking, booting, testing

    @property
    def good(self) -> bool:
        return self.outcome is Outcome.CAUGHT


def _sound(shop: Workshop, features: Iterable[str]) -> None:
    """The kernel that is going to be broken passes.  Raises KtestError if it does not."""
    kernel = shop.build("building the sound kernel")
    for feature in features:
        shop.notify(f"{feature}: the tests on the sound kernel")
        seen = trial.run(kernel, shop.original.path, feature, shop.out / "trial.log")
        if seen.failed or not seen.complete:
            worst = f": {seen.failed[0].case}: {seen.failed[0].message}" if seen.failed else ""
            raise KtestError(
                f"{feature}: {len(seen.failed)} of {len(seen.cases)} cases fail on the sound "
                f"kernel{worst}; see {shop.out / 'trial.log'}"
            )


def _try(shop: Workshop, mutant: Mutant) -> Row:
    start = time.monotonic()

    def caught(seen: Trial) -> bool:
        return seen.verdict(mutant.names)[0] is Outcome.CAUGHT

    try:
        with shop.broken(mutant):
            kernel = shop.build(f"building {mutant.name}")
            log = shop.out / "trial.log"
            seen = trial.run(kernel, shop.original.path, mutant.feature, log, caught)
    except BuildError as err:
        return Row(
            name=mutant.name,
            breaks=mutant.breaks,
            outcome=Outcome.UNTRIED,
            first=str(err),
            seconds=time.monotonic() - start,
        )
    outcome, first = seen.verdict(mutant.names)
    return Row(
        name=mutant.name,
        breaks=mutant.breaks,
        outcome=outcome,
        first=first,
        failed=len(seen.failed),
        ran=sum(c.cause is not Cause.NOT_RUN for c in seen.cases),
        seconds=time.monotonic() - start,
    )


def table(rows: Sequence[Row]) -> str:
    """The result, a line a mutant, as Markdown that also reads well on a terminal."""
    heads = ("mutant", "breaks", "outcome", "first failing test", "failed", "s")
    lines = [heads] + [
        (r.name, r.breaks, str(r.outcome), r.first, f"{r.failed}/{r.ran}", f"{r.seconds:.0f}")
        for r in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    text = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
            for line in lines]  # fmt: skip
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(text)


def _rows(shop: Workshop, mutants: Sequence[Mutant]) -> Iterator[Row]:
    for number, mutant in enumerate(mutants, 1):
        row = _try(shop, mutant)
        told = row.first if row.first else "nothing failed"
        shop.notify(
            f"[{number}/{len(mutants)}] {row.name}: {row.outcome}, {told} ({row.seconds:.0f} s)"
        )
        yield row


def check(mutants: Sequence[Mutant], prepared: Tree) -> int:
    """See whether mutants fit a prepared tree, and say which do not; 1 if any does not."""
    misfits = 0
    for mutant in mutants:
        try:
            apply(prepared.path, mutant)
        except PatchError as err:
            misfits += 1
            print(err)
    print(f"{len(mutants) - misfits} of {len(mutants)} mutants apply to Linux {prepared.release}")
    return 1 if misfits else 0


def run(mutants: Sequence[Mutant], tree: Path, vmlinux: Path, notify: Notify) -> int:
    """Try mutants and print the table.

    ``tree`` and ``vmlinux`` are the prepared tree and its build.  0 if every mutant
    is caught by a test that names what it breaks, else 1.  Raises KtestError.
    """
    with locked(tree.with_name(f"{tree.name}-mutants"), notify):
        shop = open_workshop(recognise(tree), vmlinux.parent, notify)
        _sound(shop, sorted({m.feature for m in mutants}))
        rows = list(_rows(shop, mutants))
    print(table(rows))
    caught = sum(row.good for row in rows)
    print(f"{caught} of {len(rows)} mutants caught by a test that names what they break")
    return 0 if rows and caught == len(rows) else 1
