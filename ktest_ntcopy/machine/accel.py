# SPDX-License-Identifier: GPL-2.0-only
"""Which accelerator runs guests here: found out by booting one, and remembered.

That ``/dev/kvm`` opens proves nothing: in many containers and nested clouds it
does, and the guest dies or stands still.  So the first boot is tried under KVM
for a few seconds, and only a guest that reports back counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ktest_ntcopy.errors import KtestError

#: Seconds a guest has to report back under KVM.
PROBE_LIMIT = 2.8

_T = TypeVar("_T")


@dataclass(frozen=True)
class Verdict:
    """Whether KVM runs this kernel in this QEMU on this host, and why not."""

    usable: bool
    reason: str = ""


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def verdict_key(kernel: Path, qemu: Path) -> str:
    """Names what a verdict holds for: kernel file, QEMU binary and the host's kernel."""
    host = os.uname()
    parts = (_stamp(kernel), _stamp(qemu), host.release, host.version, host.machine)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def device_problem(device: Path = Path("/dev/kvm")) -> str:
    """Why KVM cannot even be tried; empty if it can."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as err:
        return f"{device}: {err.strerror}"
    return ""


class Verdicts:
    """Verdicts on disk, one small file each.  A file that does not parse counts as none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def load(self, key: str) -> Verdict | None:
        try:
            data = json.loads(self.path(key).read_text(encoding="utf-8"))
            usable, reason = data["usable"], data["reason"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(usable, bool) or not isinstance(reason, str):
            return None
        return Verdict(usable, reason)

    def store(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict; a cache that cannot be written costs a probe next time, no more."""
        text = json.dumps({"usable": verdict.usable, "reason": verdict.reason})
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".new-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self.path(key))

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """One process probes, the others wait for its verdict."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._folder / f"{key}.lock", os.O_CREAT | os.O_RDWR, 0o666)
        except OSError:
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


_said: set[str] = set()


def _say_once(notify: Callable[[str], None], text: str) -> None:
    if text not in _said:
        _said.add(text)
        notify(text)


def boot_with_best(
    boot: Callable[[str, float | None], _T],
    *,
    key: str,
    verdicts: Verdicts,
    notify: Callable[[str], None],
    problem: Callable[[], str] = device_problem,
) -> _T:
    """Boot under KVM if that works here, else under TCG; return what ``boot`` returns.

    ``boot`` takes "kvm" or "tcg" and the seconds the guest has to report back, None
    for the usual; it raises KtestError if the guest does not.  KVM is blamed only
    if the same kernel then boots under TCG.
    """
    if why := problem():
        _say_once(notify, f"KVM is not used ({why}): guests are emulated, which is slower")
        return boot("tcg", None)
    verdict = verdicts.load(key)
    if verdict is None:
        with verdicts.lock(key):
            verdict = verdicts.load(key)
            if verdict is None:
                return _probe(boot, key=key, verdicts=verdicts, notify=notify)
    if not verdict.usable:
        _say_once(
            notify,
            f"KVM is not used ({verdict.reason}; found earlier, remove {verdicts.path(key)} "
            "to try again): guests are emulated, which is slower",
        )
        return boot("tcg", None)
    try:
        return boot("kvm", None)
    except KtestError:
        # The verdict may be out of date.  Only a guest that boots otherwise proves that.
        result = boot("tcg", None)
        verdicts.path(key).unlink(missing_ok=True)
        return result


def proven_accel(
    plain: Callable[[], str],
    *,
    key: str,
    verdicts: Verdicts,
    problem: Callable[[], str] = device_problem,
) -> str:
    """The accelerator for a kernel that runs tests before it reports back.

    Such a guest is not booted again under TCG if it dies under KVM: its tests may pass
    there.  Nor does KVM get the blame, so without a verdict ``plain`` has to find one: it
    boots the kernel without the tests and returns what it came up with.
    """
    if problem():
        return "tcg"
    verdict = verdicts.load(key)
    if verdict is None:
        return plain()
    return "kvm" if verdict.usable else "tcg"


def _probe(
    boot: Callable[[str, float | None], _T],
    *,
    key: str,
    verdicts: Verdicts,
    notify: Callable[[str], None],
) -> _T:
    try:
        result = boot("kvm", PROBE_LIMIT)
    except KtestError as err:
        reason = str(err).splitlines()[0]
        result = boot("tcg", None)
        verdicts.store(key, Verdict(False, reason))
        _say_once(notify, f"KVM is not used ({reason}): guests are emulated, which is slower")
        return result
    verdicts.store(key, Verdict(True))
    return result
