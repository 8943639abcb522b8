# SPDX-License-Identifier: GPL-2.0-only
"""Guests that do not come up, accelerators that do not work, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ktest_ntcopy.errors import BootError, MachineError
from ktest_ntcopy.machine import accel as accel_module
from ktest_ntcopy.machine.agent_build import agent_program
from ktest_ntcopy.machine.base import Command, End, MachineSpec
from ktest_ntcopy.machine.qemu import QemuMachine, open_machine
from ktest_ntcopy.machine.qemu_command import BINARY


def boot(spec: MachineSpec, *, accel: str = "tcg", qemu: str | None = None) -> None:
    with QemuMachine(spec, accel=accel, qemu=qemu) as machine:
        machine.boot()


# The kernel's fault


@pytest.mark.parametrize(
    ("append", "cause"),
    [
        # The kernel behaves as if the driver had not been built.
        (
            "initcall_blacklist=virtio_console_init",
            "no virtio-serial support (CONFIG_VIRTIO_CONSOLE)",
        ),
        (
            "initcall_blacklist=virtio_pci_driver_init",
            "no virtio port called ktest.ctl (CONFIG_VIRTIO_PCI)",
        ),
        (
            "initcall_blacklist=populate_rootfs",
            "the kernel has no initramfs support (CONFIG_BLK_DEV_INITRD)",
        ),
    ],
)
def test_missing_option(kernel: Path, append: str, cause: str) -> None:
    start = time.monotonic()
    with pytest.raises(BootError) as caught:
        boot(MachineSpec(kernel=kernel, append=append))
    first, *rest = str(caught.value).splitlines()
    assert first == f"{kernel}: {cause}"
    assert rest[0] == "last console lines:"
    assert len(rest) > 1
    assert time.monotonic() - start < 40


def test_missing_share_option(kernel: Path, tmp_path: Path) -> None:
    spec = MachineSpec(kernel=kernel, share=tmp_path, append="initcall_blacklist=init_v9fs")
    with pytest.raises(BootError, match=r"cannot mount the host's directory.*CONFIG_9P_FS"):
        boot(spec)


def test_panic_at_boot(kernel: Path, guest_programs: Mapping[str, Path]) -> None:
    """The second file replaces the agent by a program that ends, which a kernel cannot bear."""
    files = {"/sbin/die": guest_programs["/bin/die"]}
    spec = MachineSpec(kernel=kernel, files=files, append="rdinit=/sbin/die")
    with pytest.raises(BootError, match="kernel panic at boot: Attempted to kill init!"):
        boot(spec)


def test_silent_guest(kernel: Path, guest_programs: Mapping[str, Path]) -> None:
    """A first process that never speaks: the limit ends it, an interrupt gives a trace."""
    files = {"/sbin/spin": guest_programs["/bin/spin"]}
    spec = MachineSpec(kernel=kernel, files=files, append="rdinit=/sbin/spin", timeout=4)
    with pytest.raises(BootError) as caught:
        boot(spec)
    assert "the guest did not report back within 8 s" in str(caught.value)
    assert "Call Trace" in str(caught.value) or "NMI" in str(caught.value)


def test_no_kernel_at_all(guest_programs: Mapping[str, Path]) -> None:
    program = guest_programs["/bin/spin"]
    with pytest.raises(BootError, match=f"{program}: .* needs CONFIG_PVH, or use bzImage"):
        boot(MachineSpec(kernel=program))


def test_truncated_kernel(kernel: Path, tmp_path: Path) -> None:
    short = tmp_path / "vmlinux"
    short.write_bytes(kernel.read_bytes()[: 1 << 20])
    with pytest.raises((BootError, MachineError)):
        boot(MachineSpec(kernel=short, timeout=5))


# The host's fault


def test_too_much_memory(kernel: Path) -> None:
    with pytest.raises(MachineError, match="not enough memory on this host for a guest of"):
        boot(MachineSpec(kernel=kernel, memory_mib=100_000_000))


def test_missing_share(kernel: Path, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"nowhere.*No such file or directory"):
        boot(MachineSpec(kernel=kernel, share=tmp_path / "nowhere"))


# Accelerators


@pytest.fixture
def wrapped_qemu(tmp_path: Path) -> Callable[[str], str]:
    """A QEMU for which ``/bin/sh`` code decides what happens under KVM."""

    def make(under_kvm: str) -> str:
        script = tmp_path / "qemu"
        script.write_text(
            f'#!/bin/sh\ncase " $* " in *" -accel kvm "*) {under_kvm};; esac\nexec {BINARY} "$@"\n'
        )
        script.chmod(0o755)
        return str(script)

    return make


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without verdicts; the agent is there, so that only the probe takes time."""
    monkeypatch.setattr(accel_module, "_said", set())
    agent_program(cache=tmp_path / "cache")
    return tmp_path / "cache"


#: Ways in which KVM fails although /dev/kvm opens.
BROKEN_KVM = {
    "aborts": "echo 'qemu: error: failed to set MSR' >&2; kill -ABRT $$",
    "refuses": "echo 'qemu: error: kvm is not for you' >&2; exit 1",
    # A guest that never gets anywhere, as with "KVM internal error".
    "stands still": f'shift; while [ "$1" != -cpu ]; do shift; done; exec {BINARY} -S "$@"',
}


@pytest.mark.parametrize("how", BROKEN_KVM)
def test_broken_kvm(
    kernel: Path,
    fresh_cache: Path,
    wrapped_qemu: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    monkeypatch.setattr(accel_module.boot_with_best, "__kwdefaults__", {"problem": lambda: ""})
    qemu = wrapped_qemu(BROKEN_KVM[how])
    said: list[str] = []
    took = []
    for _ in range(2):
        machine = QemuMachine(
            MachineSpec(kernel=kernel), qemu=qemu, notify=said.append, cache=fresh_cache
        )
        start = time.monotonic()
        info = machine.boot()
        took.append(time.monotonic() - start - info.boot_seconds)
        assert info.accel == "tcg"
        assert machine.run(Command(argv=("no-such-program",))).exit_code == 127
        machine.close()
    assert took[0] < 3.5  # the probe
    assert took[1] < 0.5  # the verdict was remembered
    assert len(said) == 2
    assert all(line.startswith("KVM is not used (") for line in said)
    assert "found earlier" in said[1]


def test_real_accelerator(kernel: Path, fresh_cache: Path) -> None:
    """Whatever this host has: a guest comes up, and soon."""
    said: list[str] = []
    start = time.monotonic()
    with QemuMachine(MachineSpec(kernel=kernel), notify=said.append, cache=fresh_cache) as machine:
        info = machine.boot()
        took = time.monotonic() - start
        assert machine.run(Command(argv=("no-such-program",))).exit_code == 127
    assert (info.accel == "tcg") == bool(said)
    assert took - info.boot_seconds < 3.5


# The host's files in the guest


def test_share(kernel: Path, tmp_path: Path, guest_programs: Mapping[str, Path]) -> None:
    (tmp_path / "sayings").symlink_to(guest_programs["/bin/sayings"])
    (tmp_path / "prog").write_bytes(guest_programs["/bin/sayings"].read_bytes())
    (tmp_path / "prog").chmod(0o755)
    with open_machine(MachineSpec(kernel=kernel, share=tmp_path), accel="tcg") as machine:
        outcome = machine.run(Command(argv=("/host/prog", "x"), cwd="/host"))
    assert outcome.exit_code == 3
    assert "arg x\ncwd /host\n" in outcome.text


def test_root_of_the_host(kernel: Path, tmp_path: Path) -> None:
    """A script of the host runs on its programs; what it writes stays in the guest."""
    script = tmp_path / "script"
    script.write_text(
        "#!/bin/sh -e\n"
        f"cd {tmp_path}; echo written > new; cat new\n"
        "echo changed > /etc/hostname; cat /etc/hostname\n"
        "awk 'BEGIN { print 6 * 7 }'\n"
        "test -d /sys/kernel/tracing/events; test -e /dev/null; ls /proc/self/fd >/dev/null\n"
        "echo out > /dev/stdout; echo err >&2\n"
        "mount | grep -c ' on / type overlay'\n"
    )
    script.chmod(0o755)
    hostname = Path("/etc/hostname")
    before = hostname.read_bytes() if hostname.exists() else None
    with open_machine(MachineSpec(kernel=kernel, share=Path("/")), accel="tcg") as machine:
        outcome = machine.run(Command(argv=(str(script),), root="/host"))
        assert outcome.text == "written\nchanged\n42\nout\nerr\n1\n"
        assert outcome.exit_code == 0
        again = machine.run(Command(argv=("cat", f"{tmp_path}/new"), root="/host"))
        assert again.exit_code == 1
    assert not (tmp_path / "new").exists()
    assert (hostname.read_bytes() if hostname.exists() else None) == before


def test_root_without_a_share(kernel: Path) -> None:
    with open_machine(MachineSpec(kernel=kernel), accel="tcg") as machine:
        outcome = machine.run(Command(argv=("true",), root="/host"))
    assert (outcome.end, outcome.exit_code) == (End.EXITED, 126)
    assert outcome.text.startswith("ktest-agent: overlay: ")


# Nothing is left behind


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """One whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def test_nothing_outlives_a_killed_controller(kernel: Path, short_folder: Path) -> None:
    """Kill the controlling process without any warning, from a thread at that."""
    code = (
        "import sys, threading, time\n"
        "from pathlib import Path\n"
        "from ktest_ntcopy.machine.base import MachineSpec\n"
        "from ktest_ntcopy.machine.qemu import QemuMachine\n"
        f"machine = QemuMachine(MachineSpec(kernel=Path({str(kernel)!r})), accel='tcg')\n"
        "thread = threading.Thread(target=machine.boot)\n"
        "thread.start(); thread.join()\n"
        "time.sleep(0.2)\n"
        "assert machine.alive\n"
        "print(machine.hypervisor.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(short_folder)},
    ) as controller:
        assert controller.stdout is not None
        pid = int(controller.stdout.readline())
        os.kill(pid, 0)
        assert list(short_folder.glob("ktest-*"))
        controller.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and list(short_folder.glob("ktest-*")):
        time.sleep(0.02)
    assert list(short_folder.glob("ktest-*")) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_hypervisor_does_not_outlive_its_guard(kernel: Path) -> None:
    with open_machine(MachineSpec(kernel=kernel), accel="tcg") as machine:
        pid = machine.hypervisor.pid
        stat = Path(f"/proc/{pid}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)  # its parent
        deadline = time.monotonic() + 5
        while machine.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not machine.alive


def test_failed_boot_leaves_no_files(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BootError):
        boot(MachineSpec(kernel=kernel, append="rdinit=/nothing", timeout=10))
    assert list(tmp_path.iterdir()) == []


def test_long_run_dir(kernel: Path, tmp_path: Path) -> None:
    """Longer than what a socket's address holds."""
    run_dir = tmp_path / ("x" * 120)
    with open_machine(MachineSpec(kernel=kernel, run_dir=run_dir), accel="tcg") as machine:
        assert machine.run(Command(argv=("none",))).exit_code == 127
    assert (run_dir / "vm-1" / "console.log").is_file()
