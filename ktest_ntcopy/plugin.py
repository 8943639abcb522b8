# SPDX-License-Identifier: GPL-2.0-only
"""The door for pytest.  Without ``--kernel`` it does nothing, and imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ktest_ntcopy.session import Session

_FEATURES = Path(__file__).parent / "features"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ktest", "kernel tests in a virtual machine (ktest_ntcopy)")
    group.addoption(
        "--kernel",
        dest="ktest_kernel",
        metavar="PATH",
        help="Kernel under test: a vmlinux, a bzImage or a kernel build directory. "
        "Without further arguments, all kernel tests of all features run.",
    )
    group.addoption(
        "--ktest-tree",
        metavar="DIR",
        help="Kernel source tree to compile the C tests with. "
        "Default: the tree the kernel was built from, else the prepared one in the cache.",
    )
    group.addoption(
        "--ktest-accel",
        choices=("auto", "kvm", "tcg"),
        default="auto",
        help="How QEMU runs the guest. auto takes KVM if a guest comes up with it, else TCG.",
    )
    group.addoption(
        "--ktest-qemu",
        metavar="PROGRAM",
        help="QEMU to start (name or path). Default: qemu-system-ARCH of the kernel.",
    )
    group.addoption(
        "--ktest-require",
        metavar="FEATURES",
        help="Features, separated by commas, or 'all', whose tests must not be skipped: "
        "a kernel without them fails. Features that vmlinux shows are always required. "
        "Default: what KTEST_REQUIRE in the environment says, else none.",
    )
    group.addoption(
        "--ktest-require-all",
        action="store_true",
        help="Fail every test that is skipped, for whatever reason: a feature, an option or a "
        "CPU that is missing, before booting or in the guest. Includes --ktest-require=all, "
        "which only forbids skips because a feature is missing or cannot be proved.",
    )
    group.addoption(
        "--ktest-journal",
        metavar="FILE",
        help="File that gets each result as soon as there is one (JSON lines). "
        "Default: beside --junitxml with the suffix .ndjson, else a new one in reports/.",
    )
    group.addoption(
        "--ktest-table",
        action="store_true",
        help="End with a table of all results.",
    )
    group.addoption(
        "--ktest-memory",
        metavar="MIB",
        type=int,
        default=512,
        help="Memory of each virtual machine in MiB (default: %(default)s).",
    )
    group.addoption(
        "--ktest-cpus",
        metavar="N",
        type=int,
        default=2,
        help="CPUs of each virtual machine (default: %(default)s).",
    )
    group.addoption(
        "--ktest-timeout-scale",
        metavar="FACTOR",
        type=float,
        default=1.0,
        help="Multiplies all time limits, which already follow the measured speed of the "
        "machine (default: %(default)s).",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from ktest_ntcopy import newhooks

    pluginmanager.add_hookspecs(newhooks)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "ktest: a test of the kernel given with --kernel.",
        "selftest: a kselftest case, run in a virtual machine.",
        "kunit: a case of a KUnit suite, which runs while a virtual machine of its own boots.",
        "vmlinux: a check of the kernel file; needs no virtual machine.",
    ):
        config.addinivalue_line("markers", line)
    for file in sorted(_FEATURES.glob("*.toml")):
        config.addinivalue_line("markers", f"{file.stem}: a test of this feature.")
    asks = config.option.help or config.option.version
    if config.option.ktest_kernel is None or asks:
        return
    from ktest_ntcopy.running import activate

    activate(config)


@pytest.fixture(scope="session")
def guest(request: pytest.FixtureRequest) -> Session:
    """The kernel under test, for tests in Python; skips without ``--kernel``.

    ``guest.run(Command(argv=("/bin/true",)))`` boots a machine if this process
    has none that lives, and returns an ``Outcome``.  The machine is the one that
    this process runs the C tests in, so leave it as you found it.
    """
    if request.config.option.ktest_kernel is None:
        pytest.skip("needs a kernel: pytest --kernel=PATH")
    from ktest_ntcopy.running import running

    return running(request.config).session
