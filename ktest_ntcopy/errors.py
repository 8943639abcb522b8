# SPDX-License-Identifier: GPL-2.0-only
"""What can go wrong, by who has to act on it.

Every error carries one line: what, where, what to do.  The command line prints
that line and exits with :data:`USAGE`; pytest turns it into a usage error.
"""

from __future__ import annotations

#: Exit status of the command line for bad input or a missing prerequisite.
USAGE = 2


class KtestError(Exception):
    """Base of all errors that a person is told about in one line."""


class ConfigError(KtestError):
    """The caller's input or this host cannot do what was asked (fix the input)."""


class SourceError(KtestError):
    """Kernel source cannot be obtained, or a tree is not one we know."""


class PatchError(KtestError):
    """A series does not apply; names the file, the hunk and the version it was made for."""


class BuildError(KtestError):
    """A kernel or a test program does not compile or does not get its options."""


class BootError(KtestError):
    """The kernel under test did not reach the agent: the kernel's fault, not the host's.

    ``end`` is how the guest ended, one of machine.base.End; empty if it did not start.
    """

    def __init__(self, text: str, *, end: str = "") -> None:
        super().__init__(text)
        self.end = end


class MachineError(KtestError):
    """The host could not run a machine at all (no QEMU, no memory, no disk)."""


class MachineLost(MachineError):
    """Something on the host ended the machine while it booted: another try may do."""
