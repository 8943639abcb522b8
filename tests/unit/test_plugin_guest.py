# SPDX-License-Identifier: GPL-2.0-only
"""Python tests that use the machine of the kernel's tests."""

from __future__ import annotations

from ktest_ntcopy.results.model import Status
from tests.unit.plugin_lab import A, Lab, node
from tests.unit.plugin_lab import lab as lab  # a fixture
from tests.unit.plugin_lab import way as way  # a fixture

pytest_plugins = ["pytester"]


def test_guest_fixture_without_kernel_skips_with_the_reason(lab: Lab) -> None:
    (lab.folder / "test_it.py").write_text("def test_it(guest): pass\n")
    done = lab.run("-rs", kernel=None)
    assert "needs a kernel: pytest --kernel=PATH" in done.out


def test_guest_fixture_shares_the_machine(lab: Lab, way: tuple[str, ...]) -> None:
    (lab.folder / "test_own.py").write_text(
        "from ktest_ntcopy.machine.base import Command\n"
        "def test_own(guest):\n"
        "    outcome = guest.run(Command(argv=('/bin/x', 'own')))\n"
        "    assert 'ok 1 own' in outcome.text\n"
    )
    done = lab.run("test_own.py", node(A), *way)
    assert done.code == 0, done.out
    assert done.journal() == {"test_own": Status.PASS, A: Status.PASS}
    boots = [x.split()[0] for x in done.log() if " boot " in x]
    assert len(boots) == len(set(boots))
    assert any("/bin/x own" in x for x in done.log())


def test_guest_fixture_tells_why_there_is_no_machine(lab: Lab) -> None:
    (lab.folder / "test_own.py").write_text(
        "from ktest_ntcopy.machine.base import Command\n"
        "def test_own(guest):\n"
        "    guest.run(Command(argv=('/bin/x', 'own')))\n"
    )
    lab.script({}, build="fail")
    done = lab.run("test_own.py")
    assert done.code == 1
    assert "it does not compile" in done.out
