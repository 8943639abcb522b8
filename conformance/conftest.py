# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures of the conformance tests; with ``--kernel`` the tests run in a guest."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.protocols import Lacking, Protocol
from conformance.sockets import Calls, MissingFunctionError

if TYPE_CHECKING:
    from ktest_ntcopy.image.facts import Image
    from ktest_ntcopy.image.file.kernel_file import KernelFile
    from ktest_ntcopy.image.types.typeinfo import TypeInfo

#: The running kernel's own type information.
_RUNNING = Path("/sys/kernel/btf/vmlinux")


def pytest_configure(config: pytest.Config) -> None:
    """Take the tests into the guest, if there is to be one."""
    for line in (
        "vmlinux: a check of the kernel file; needs no virtual machine.",
        "documented(document, section, *words): what the kernel's own documentation claims.",
    ):
        config.addinivalue_line("markers", line)
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


def _image(config: pytest.Config) -> Image | None:
    """The kernel file under test; None if it is the running kernel that is tested."""
    if config.getoption("ktest_kernel", None) is None:
        return None
    from ktest_ntcopy.running import running

    return running(config).image


@pytest.fixture(scope="session")
def kernel_file(pytestconfig: pytest.Config) -> KernelFile | None:
    """The kernel under test as a file; None for the running kernel."""
    image = _image(pytestconfig)
    return image.kernel if image else None


@pytest.fixture(scope="session")
def kernel_has(pytestconfig: pytest.Config) -> Callable[[str], bool]:
    """Whether the kernel's file shows a feature, by the feature's name.  Needs a file."""
    from conformance.features import feature
    from ktest_ntcopy.running import running

    return lambda name: running(pytestconfig).shown(feature(name))


@pytest.fixture(scope="session")
def kernel_bits(kernel_file: KernelFile | None) -> int:
    """32 or 64: the size of the kernel's pointers."""
    if kernel_file:
        return kernel_file.bits
    # A 32-bit program may run on a 64-bit kernel, and then uname tells which one it is.
    return 64 if "64" in os.uname().machine or os.uname().machine == "s390x" else 32


@pytest.fixture(scope="session")
def kernel_build(kernel_file: KernelFile | None) -> Path | None:
    """The kernel's build directory, if it is at hand."""
    return kernel_file.build_dir if kernel_file else None


@pytest.fixture(scope="session")
def types(pytestconfig: pytest.Config, kernel_bits: int) -> TypeInfo:
    """The kernel's types; skips if it has no type information."""
    if image := _image(pytestconfig):
        if found := image.types:
            return found
        pytest.skip(image.lacks("type information", "CONFIG_DEBUG_INFO_BTF=y adds BTF"))
    from ktest_ntcopy.image.types.btf import Btf

    try:
        return Btf(_RUNNING.read_bytes(), pointer_size=kernel_bits // 8)
    except OSError as err:
        pytest.skip(f"{_RUNNING}: {err.strerror}: CONFIG_DEBUG_INFO_BTF is not set")
