# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures of the conformance tests; with ``--kernel`` the tests run in a guest."""

from __future__ import annotations

from functools import cache

import pytest

from conformance.protocols import Lacking, Protocol
from conformance.sockets import Calls, MissingFunctionError


def pytest_configure(config: pytest.Config) -> None:
    """Take the tests into the guest, if there is to be one."""
    if config.getoption("ktest_kernel", None) is None:
        return
    from conformance.guest import InGuest

    config.pluginmanager.register(InGuest(config), "conformance_in_guest")


@cache
def _lacking(protocol: Protocol, calls: Calls) -> str:
    """Why the kernel cannot connect two sockets of this protocol; empty if it can."""
    try:
        with protocol.pair(calls):
            return ""
    except Lacking as err:
        return str(err)


@pytest.fixture(scope="session")
def calls() -> Calls:
    """The C library's socket calls."""
    try:
        return Calls()
    except MissingFunctionError as err:
        pytest.fail(str(err), pytrace=False)


@pytest.fixture
def via(request: pytest.FixtureRequest, calls: Calls) -> Protocol:
    """The protocol to test; skips if the kernel is without it."""
    protocol: Protocol = request.param
    if why := _lacking(protocol, calls):
        pytest.skip(why)
    return protocol
