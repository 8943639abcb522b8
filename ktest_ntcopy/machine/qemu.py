# SPDX-License-Identifier: GPL-2.0-only
"""A guest in QEMU as a :class:`~ktest_ntcopy.machine.base.Machine`."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from ktest_ntcopy.errors import MachineError
from ktest_ntcopy.machine import boot, channel, diagnose, initramfs
from ktest_ntcopy.machine.accel import Verdicts, boot_with_best, proven_accel, verdict_key
from ktest_ntcopy.machine.agent_build import agent_program
from ktest_ntcopy.machine.base import (
    FATAL_ENDS,
    Command,
    ConsoleLine,
    MachineInfo,
    MachineSpec,
    Outcome,
)
from ktest_ntcopy.machine.hypervisor import Hypervisor, HypervisorGone
from ktest_ntcopy.machine.qemu_command import (
    Layout,
    check_kernel,
    find_qemu,
    qemu_arguments,
)
from ktest_ntcopy.machine.run import Run
from ktest_ntcopy.machine.speed import measured_slowdown
from ktest_ntcopy.paths import cache_root

_LOG = logging.getLogger(__name__)

#: Emulation is slower by at least this; needed before a guest has measured itself.
_TCG_BOOT = 2.0

#: A command's environment, unless it brings its own.
DEFAULT_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/",
    "HOME": "/root",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
}


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        if err.errno in (errno.ENOSPC, errno.EDQUOT):
            raise MachineError(f"{folder}: no space left for the machine's files") from err
        raise MachineError(f"{err.filename or folder}: {err.strerror or err}") from err


def _default_notify(text: str) -> None:
    _LOG.warning("%s", text)


class QemuMachine:
    """One guest in QEMU.

    ``accel`` is "auto" (KVM if a guest really comes up under it, else TCG),
    "kvm" or "tcg".  ``qemu`` names another binary.  ``notify`` gets one line
    about what the user should know, such as KVM not being usable.

    Every command gets its own /tmp and its own mounts; what it leaves running
    is killed.  If something survives that, :attr:`alive` turns false although
    the command's outcome is not a fatal one, so look at it before each command.
    """

    def __init__(
        self,
        spec: MachineSpec,
        *,
        accel: str = "auto",
        qemu: str | None = None,
        notify: Callable[[str], None] = _default_notify,
        cache: Path | None = None,
    ) -> None:
        if accel not in ("auto", "kvm", "tcg"):
            raise ValueError(f"accel is {accel!r}, not auto, kvm or tcg")
        self._spec = spec
        self._accel = accel
        self._qemu = qemu
        self._notify = notify
        self._cache = cache or cache_root()
        self._hypervisor: Hypervisor | None = None
        self._info: MachineInfo | None = None
        self._token = 0
        self._number = 0
        self._boot_console: tuple[ConsoleLine, ...] = ()
        self._ended = "it was never booted"
        self._scratch: Path | None = None
        self._folder: Path | None = None

    # Machine

    @property
    def info(self) -> MachineInfo:
        """Facts about the booted machine.  Raises MachineError before boot."""
        if self._info is None:
            raise MachineError("the machine has not booted yet")
        return self._info

    @property
    def alive(self) -> bool:
        """Whether the machine can take another command."""
        hypervisor = self._hypervisor
        if hypervisor is None or self._ended:
            return False
        hypervisor.pump(0)
        # A kernel may panic and not reset.  A program that only wrote such a line costs
        # its machine, which is better than to blame the next program for silence.
        why = diagnose.panic(hypervisor.console.window.decisive)
        if why is not None:
            self._ended = f"kernel panic between commands: {why}"
            hypervisor.close()
        elif hypervisor.gone:
            words = hypervisor.last_words()
            self._ended = f"the machine ended between commands ({words})"
        return not self._ended

    @property
    def boot_console(self) -> tuple[ConsoleLine, ...]:
        """What the console said until the guest was ready, or until the boot failed."""
        return self._boot_console

    @property
    def folder(self) -> Path | None:
        """Where console.log and qemu.log of this machine lie, while it is open."""
        return self._folder

    @property
    def hypervisor(self) -> Hypervisor:
        """The QEMU process, for those who test or debug the guest from outside."""
        if self._hypervisor is None:
            raise MachineError("the machine is not running")
        return self._hypervisor

    def boot(self) -> MachineInfo:
        """Start and wait for the agent.

        Raises ConfigError (kernel or files cannot be read), BootError (the kernel's
        fault), MachineLost (QEMU was killed) or MachineError (the host's fault).
        """
        if self._hypervisor is not None:
            raise MachineError("the machine was booted before; make a new one")
        check_kernel(self._spec.kernel)
        qemu = find_qemu(self._qemu)
        try:
            with _disk_errors(self._spec.run_dir or Path(tempfile.gettempdir())):
                self._make_folders()
                image = self._write_initramfs()
            if self._accel == "auto" and self._spec.boot_silence:
                accel = proven_accel(
                    self._plain_accel,
                    key=verdict_key(self._spec.kernel, Path(qemu)),
                    verdicts=Verdicts(self._cache / "accel"),
                )
                self._info = self._boot_under(accel, qemu, image)
            elif self._accel == "auto":
                self._info = boot_with_best(
                    lambda accel, limit: self._boot_under(accel, qemu, image, limit=limit),
                    key=verdict_key(self._spec.kernel, Path(qemu)),
                    verdicts=Verdicts(self._cache / "accel"),
                    notify=self._notify,
                )
            else:
                self._info = self._boot_under(self._accel, qemu, image)
        except BaseException:
            self.close()
            raise
        self._ended = ""
        return self._info

    def run(self, command: Command) -> Outcome:
        """Run one command and wait for its end.

        Raises MachineError if the machine had ended before, ValueError for a
        command that cannot be sent (no words, NUL characters, too long).
        """
        if not self.alive:
            raise MachineError(f"the machine cannot take a command: {self._ended}")
        assert self._hypervisor is not None
        assert self._info is not None
        self._number += 1
        limit = command.timeout * self._info.slowdown
        request = channel.run(
            self._token,
            id=self._number,
            argv=command.argv,
            env={**DEFAULT_ENV, **command.env},
            root=command.root,
            cwd=command.cwd,
            limit=limit,
            output_limit=command.output_limit,
        )
        run = Run(
            self._hypervisor,
            request,
            number=self._number,
            token=self._token,
            limit=limit,
            name=Path(command.argv[0]).name,
            slowdown=self._info.slowdown,
        )
        try:
            outcome = run.wait()
        except BaseException:
            # Interrupted: the command may still run, and nobody would read what it prints.
            self._ended = "a command was interrupted"
            self._hypervisor.close()
            raise
        if outcome.end in FATAL_ENDS:
            self._ended = outcome.detail
            self._hypervisor.close()
        elif run.stuck:
            self._ended = run.stuck
        return outcome

    def close(self) -> None:
        """End the machine and remove its temporary files.  Never raises."""
        if self._hypervisor is not None:
            self._hypervisor.close()
            if error := self._hypervisor.console.log_error:
                self._notify(f"{self._folder}/console.log is incomplete: {error}")
                self._hypervisor.console.log_error = ""
        self._ended = self._ended or "it was closed"
        for image in self._folder.glob("initramfs.cpio") if self._folder else ():
            with contextlib.suppress(OSError):
                image.unlink()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def __enter__(self) -> QemuMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Preparing

    def _make_folders(self) -> None:
        # Sockets need a short path, so they never lie in run_dir.
        self._scratch = Path(tempfile.mkdtemp(prefix="ktest-"))
        if len(str(self._scratch)) > 80:
            self._scratch.rmdir()
            self._scratch = Path(tempfile.mkdtemp(prefix="ktest-", dir="/tmp"))
        if self._spec.run_dir is None:
            self._folder = self._scratch
            return
        self._spec.run_dir.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10**6):
            folder = self._spec.run_dir / f"vm-{number}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                self._folder = folder
                return

    def _write_initramfs(self) -> Path:
        assert self._folder is not None
        entries = initramfs.plan(agent_program(cache=self._cache), self._spec.files)
        image = self._folder / "initramfs.cpio"
        with image.open("wb") as out:
            initramfs.write(entries, out)
        return image

    def _layout(self, image: Path) -> Layout:
        assert self._folder is not None
        assert self._scratch is not None
        sockets = Path(tempfile.mkdtemp(dir=self._scratch))
        return Layout(
            control=sockets / "agent",
            monitor=sockets / "qmp",
            console=sockets / "tty",
            initramfs=image,
            log=self._folder / "qemu.log",
            scratch=self._scratch,
        )

    # Booting

    def _plain_accel(self) -> str:
        """The accelerator that this kernel comes up with when it runs no tests."""
        plain = replace(self._spec, append="", files={}, boot_silence=0.0, run_dir=None)
        machine = QemuMachine(plain, qemu=self._qemu, notify=self._notify, cache=self._cache)
        with machine:
            return machine.boot().accel

    def _boot_under(
        self, accel: str, qemu: str, image: Path, *, limit: float | None = None
    ) -> MachineInfo:
        start = time.monotonic()
        with _disk_errors(self._folder or Path("/")):
            layout = self._layout(image)
        arguments = qemu_arguments(qemu, self._spec, layout, accel=accel)
        self._token = secrets.randbits(32)
        try:
            with _disk_errors(layout.log.parent):
                hypervisor = Hypervisor(arguments, layout, token=self._token)
        except HypervisorGone as err:
            raise boot.refusal(err, self._spec) from err
        usual = self._spec.timeout * (_TCG_BOOT if accel == "tcg" else 1.0)
        try:
            hypervisor.send(channel.hello(self._token, share=self._spec.share is not None))
            silence = self._spec.boot_silence * (_TCG_BOOT if accel == "tcg" else 1.0)
            ready = boot.wait_ready(
                hypervisor, self._spec, limit=limit or usual, silence=silence or math.inf
            )
        except BaseException:
            hypervisor.close()
            raise
        finally:
            self._boot_console = hypervisor.console.window.lines()
        self._hypervisor = hypervisor
        seconds = time.monotonic() - start
        return MachineInfo(
            kind="qemu",
            accel=accel,
            arch=ready.arch,
            release=ready.release,
            version=ready.kernel_version,
            boot_seconds=seconds,
            slowdown=measured_slowdown(ready.compute, ready.kernel, seconds),
            command_line=arguments,
        )


def open_machine(
    spec: MachineSpec,
    *,
    accel: str = "auto",
    qemu: str | None = None,
    notify: Callable[[str], None] = _default_notify,
) -> QemuMachine:
    """A booted machine.  Raises what :meth:`QemuMachine.boot` raises."""
    machine = QemuMachine(spec, accel=accel, qemu=qemu, notify=notify)
    machine.boot()
    return machine
