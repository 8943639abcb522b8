# SPDX-License-Identifier: GPL-2.0-only
"""Pytest plugin for the guest: sends what becomes of each test to the host as lines.

A line is a word that no test knows, a space, and a JSON object with one key:
``start`` (a node id), ``report`` (a serialised TestReport), ``finish`` (a node id) or
``trouble`` (text: why something could not be collected or went wrong inside pytest).
It goes past pytest's capturing, so that all that tests print stays in their reports.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

#: Name of the environment variable with the word.
TOKEN = "KTEST_CONFORMANCE_TOKEN"
# Taken when "-p" imports this file, before capturing begins.
_OUT = os.dup(1)


def pytest_configure(config: pytest.Config) -> None:
    """Start to report."""
    config.pluginmanager.register(_Reporter(config, os.environ[TOKEN]), "conformance_reporter")


class _Reporter:
    def __init__(self, config: pytest.Config, token: str) -> None:
        self._config = config
        self._token = token

    def _send(self, kind: str, value: Any) -> None:
        # A line of its own, whatever was printed before it.
        rest = f"\n{self._token} {json.dumps({kind: value})}\n".encode()
        while rest:
            rest = rest[os.write(_OUT, rest) :]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._send("start", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("report", data)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._send("finish", nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._send("trouble", f"{report.nodeid}: {report.longreprtext}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self._send("trouble", str(excrepr))
