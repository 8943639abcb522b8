# SPDX-License-Identifier: GPL-2.0-only
"""Says what a run is waiting for, if it waits for long."""

from __future__ import annotations

import threading

import pytest

PATIENCE = 2.0  # seconds of silence before a word


class Waiting:
    """From its making until :meth:`stop`; writes one line to the terminal after a while.

    Without anything to say, or in a process without a terminal (xdist's workers),
    it does nothing.
    """

    def __init__(self, config: pytest.Config, what: str) -> None:
        self._reporter = config.pluginmanager.getplugin("terminalreporter")
        self._timer: threading.Timer | None = None
        if what and self._reporter is not None and config.option.verbose >= 0:
            self._timer = threading.Timer(PATIENCE, self._say, (what,))
            self._timer.daemon = True
            self._timer.start()

    def _say(self, what: str) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_line(f"ktest: {what} …")

    def stop(self) -> None:
        """Say nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
