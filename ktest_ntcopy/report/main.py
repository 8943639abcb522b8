# SPDX-License-Identifier: GPL-2.0-only
"""Reports from a journal, for the command line."""

from __future__ import annotations

from pathlib import Path

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.results.journal import read_journal

from .junit import write_junit
from .table import to_table


def report(
    journal: Path | str,
    *,
    junitxml: Path | str | None = None,
    width: int | None = None,
    colour: bool = False,
) -> tuple[str, bool]:
    """Read a journal, write what is asked for, return the table and whether the run is good.

    Raises ConfigError if the journal cannot be read or a report cannot be written.
    """
    run = read_journal(journal)
    if junitxml is not None:
        path = Path(junitxml)
        if path.exists() and path.samefile(journal):
            raise ConfigError(f"{path}: is the journal; give the report another name")
        write_junit(run, junitxml)
    return to_table(run, width=width, colour=colour), run.ok
