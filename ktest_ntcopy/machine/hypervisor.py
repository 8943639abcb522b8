# SPDX-License-Identifier: GPL-2.0-only
"""A QEMU process and the three lines to it: agent, monitor, console."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ktest_ntcopy.errors import MachineError
from ktest_ntcopy.machine.channel import Decoder, Exit, Message
from ktest_ntcopy.machine.console import Console
from ktest_ntcopy.machine.qemu_command import Layout
from ktest_ntcopy.machine.qmp import Qmp, QmpError

#: Starts QEMU, tells its number, and ends it when the starter writes a word, or is killed
#: and the pipe closes by itself; then nobody else would remove the temporary files.
#: setpriv covers the case that this shell is killed.
_GUARD = """
log=$1; scratch=$2; shift 2
"$@" </dev/null >"$log" 2>&1 &
echo $!
read -r word
kill -9 $! 2>/dev/null
wait $!
status=$?
[ "$word" ] || rm -rf -- "$scratch"
exit $status
"""
#: Seconds until QEMU has connected to all sockets; it does so before it starts the guest.
_CONNECT = 15.0
_READ_SIZE = 1 << 18
#: Bytes of console output that may wait for us.
_CONSOLE_ROOM = 1 << 20
#: What QEMU says of a signal that it obeys.
_TERMINATED = "terminating on signal"
#: Bytes of one line taken in one go; a flood must not starve the other lines.
_READ_MAX = 4 << 20


class HypervisorGone(Exception):
    """QEMU ended before it ran a guest: in one line, and all that it said."""

    def __init__(self, words: str, said: list[str], *, killed: bool) -> None:
        super().__init__(words)
        self.said = said
        self.killed = killed  #: by a signal


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    return listener


def _read_all(read: Callable[[], bytes]) -> bytes:
    """What there is now.  An end of file is nothing: the pidfd tells that QEMU ended."""
    data = bytearray()
    while len(data) < _READ_MAX:
        try:
            piece = read()
        except OSError:
            break
        if not piece:
            break
        data += piece
    return bytes(data)


class Hypervisor:
    """One QEMU.  Not thread safe; nothing happens unless :meth:`pump` is called."""

    def __init__(self, arguments: Sequence[str], layout: Layout, *, token: int) -> None:
        """Start QEMU.  Raises MachineError, or HypervisorGone if it ends at once."""
        self._layout = layout
        self._guard: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._outgoing = bytearray()
        self._decoder = Decoder(token)
        self._control: socket.socket | None = None
        self._console_fd = -1
        self._selector = selectors.DefaultSelector()
        self.pid = 0
        self.gone = False
        self.qmp: Qmp | None = None
        self.console = Console(layout.log.with_name("console.log"))
        try:
            self._start(arguments)
        except BaseException:
            self.close()
            raise

    # Starting

    def _start(self, arguments: Sequence[str]) -> None:
        self._open_console()
        with contextlib.ExitStack() as stack:
            wanted = (self._layout.monitor, self._layout.control)
            listeners = [stack.enter_context(_listen(path)) for path in wanted]
            self._spawn(arguments)
            monitor, self._control = self._accept(listeners)
        self.qmp = Qmp(monitor)
        self._control.setblocking(False)
        for line in (monitor, self._console_fd, self._control, self._pidfd):
            self._selector.register(line, selectors.EVENT_READ)
        with contextlib.suppress(QmpError):  # gone already: pump() will find out
            self.qmp.send("qmp_capabilities")

    def _open_console(self) -> None:
        """Make the pair of pipes that QEMU takes for a serial line, and open ours.

        QEMU writes single bytes.  In a socket each takes the room of hundreds, and when
        there is no more the guest drops what it prints; a pipe packs them.
        """
        base = str(self._layout.console)
        for suffix in (".in", ".out"):
            os.mkfifo(base + suffix, 0o600)
        self._console_fd = os.open(base + ".out", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # more than the system's limit for this user
            fcntl.fcntl(self._console_fd, fcntl.F_SETPIPE_SZ, _CONSOLE_ROOM)

    def _spawn(self, arguments: Sequence[str]) -> None:
        leash = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
        files = (self._layout.log, self._layout.scratch)
        try:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", *map(str, files), *leash, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the starter's business
            )
            assert self._guard.stdout is not None
            self.pid = int(self._guard.stdout.readline() or b"0")
            self._pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it has ended, and the shell has taken note of it
            self.gone = True
            raise HypervisorGone(self.last_words(), self.said(), killed=self.killed) from None
        except (OSError, ValueError) as err:
            raise MachineError(f"cannot start {arguments[0]}: {err}") from err

    def _accept(self, listeners: Sequence[socket.socket]) -> list[socket.socket]:
        accepted: dict[socket.socket, socket.socket] = {}
        deadline = time.monotonic() + _CONNECT
        while len(accepted) < len(listeners):
            waiting = [s for s in listeners if s not in accepted]
            left = deadline - time.monotonic()
            polled: list[socket.socket | int] = [*waiting, self._pidfd]
            ready, _, _ = select.select(polled, [], [], max(0.0, left))
            for listener in waiting:
                if listener in ready:
                    accepted[listener] = listener.accept()[0]
            if not ready or (len(ready) == 1 and self._pidfd in ready):
                for sock in accepted.values():
                    sock.close()
                self.gone = True
                if not ready:
                    raise MachineError(f"QEMU did not start within {_CONNECT:g} s")
                raise HypervisorGone(self.last_words(), self.said(), killed=self.killed)
        return [accepted[listener] for listener in listeners]

    # Talking

    def send(self, data: bytes) -> None:
        """Queue bytes for the agent; :meth:`pump` sends them."""
        self._outgoing += data
        self._flush()

    def pump(self, timeout: float) -> list[Message]:
        """Wait up to ``timeout`` seconds for anything, then take all there is.

        What the console got before a command ended is in :attr:`console` when
        the command's :class:`Exit` is returned.
        """
        if self.gone:
            return []
        assert self._control is not None
        assert self.qmp is not None
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._control, wanted)
        ready = {key.fileobj for key, _ in self._selector.select(timeout)}
        self._flush()
        ended = self._pidfd in ready
        self._read_console()
        self.qmp.pump()
        if self.qmp.closed and self.qmp in self._selector.get_map():
            self._selector.unregister(self.qmp)
        control = self._control
        data = _read_all(lambda: control.recv(_READ_SIZE))
        messages = list(self._decoder.feed(data))
        if ended or any(isinstance(m, Exit) for m in messages):
            self._read_console()
        if ended:
            self.gone = True
            self.console.flush(time.monotonic())
        return messages

    def listen(self, seconds: float) -> None:
        """Let the console speak until time is up or QEMU is gone; drop messages."""
        deadline = time.monotonic() + seconds
        while not self.gone and (left := deadline - time.monotonic()) > 0:
            self.pump(left)

    @property
    def noise(self) -> int:
        """Bytes on the agent's line that the agent did not send."""
        return self._decoder.noise

    def _flush(self) -> None:
        if not self._outgoing or self._control is None:
            return
        try:
            sent = self._control.send(self._outgoing)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._outgoing)  # nobody will ever read it
        del self._outgoing[:sent]

    def _read_console(self) -> None:
        data = _read_all(lambda: os.read(self._console_fd, _READ_SIZE))
        if data:
            self.console.feed(data, time.monotonic())

    # Ending

    def nmi(self) -> bool:
        """Send every processor a non-maskable interrupt; False if that is not possible."""
        if self.qmp is None or self.gone:
            return False
        try:
            self.qmp.call("inject-nmi", timeout=2.0)
        except QmpError:
            return False
        return True

    def said(self) -> list[str]:
        """What QEMU wrote to its own output."""
        try:
            text = self._layout.log.read_text(encoding="utf-8", errors="backslashreplace")
        except OSError:
            return []
        return text.splitlines()

    @property
    def killed(self) -> bool:
        """Whether a signal ended QEMU.  Only to be asked when it is gone."""
        status = self._finish()
        # QEMU takes SIGTERM and its like as a wish, and says so on its way out.
        return not 0 <= status <= 128 or any(_TERMINATED in line for line in self.said())

    def last_words(self) -> str:
        """How QEMU ended and its last line, in one line."""
        status = self._finish()
        if status > 128:
            with contextlib.suppress(ValueError):
                how = f"killed by {signal.Signals(status - 128).name}"
                return ": ".join([how, *self._last_line()])
        return ": ".join([f"exit status {status}", *self._last_line()])

    def _last_line(self) -> list[str]:
        # What follows an error, such as a dump of registers, is only its consequence.
        said = [line for line in self.said() if line.strip()]
        errors = [line for line in said if "error" in line.lower()]
        return errors[:1] or said[-1:]

    def _finish(self) -> int:
        """End QEMU and the guard; the status QEMU ended with."""
        guard = self._guard
        if guard is None:
            return 0
        assert guard.stdin is not None
        assert guard.stdout is not None
        with contextlib.suppress(OSError, ValueError):  # gone, or told before
            guard.stdin.write(b"end\n")
            guard.stdin.close()
        guard.stdout.close()
        try:
            return guard.wait(timeout=10)
        except subprocess.TimeoutExpired:
            guard.kill()
            return guard.wait()

    def close(self) -> None:
        """End QEMU, whatever it is doing.  Never raises; may be called again."""
        self._finish()
        self.gone = True
        self._selector.close()
        if self.qmp is not None:
            self.qmp.close()
        if self._control is not None:
            self._control.close()
        for fd in (self._pidfd, self._console_fd):
            if fd >= 0:
                os.close(fd)
        self._pidfd = self._console_fd = -1
        self.console.close()
