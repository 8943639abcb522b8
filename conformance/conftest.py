# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures of the conformance tests."""

from __future__ import annotations

from functools import cache

import pytest

from conformance.protocols import Lacking, Protocol
from conformance.sockets import Calls, MissingFunctionError


@cache
def _lacking(protocol: Protocol) -> str:
    """Why the kernel cannot connect two sockets of this protocol; empty if it can."""
    try:
        with protocol.pair():
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
def via(request: pytest.FixtureRequest) -> Protocol:
    """The protocol to test; skips if the kernel is without it."""
    protocol: Protocol = request.param
    if why := _lacking(protocol):
        pytest.skip(why)
    return protocol
