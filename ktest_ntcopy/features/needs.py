# SPDX-License-Identifier: GPL-2.0-only
"""What a test cannot run without: the ``needs`` lists of a feature file.

A program, a fixture, a variant, a case and a suite may each have one; a test
needs what all that it belongs to need.  An entry is one of

``"feature"``            the kernel has the feature that the file is about
``"feature NAME"``       the kernel has that feature
``"CONFIG_NAME"``        the option is built in
``"CONFIG_NAME=VALUE"``  the option has that value; ``n``: it is not set
``"symbol NAME"``        the kernel has this function or object
``"struct NAME"``        the kernel has this struct or union
``"member STRUCT.NAME"`` the kernel has this member
``"cpus>=N"``            the virtual machine has so many processors
``"memory>=N"``          the virtual machine has so much memory, in MiB
``"device NAME"``        the virtual machine has this device, named as QEMU does
``"bits=32"``            a compiler makes programs of 32 bits

A variant whose field ``via`` is ``"&NAME"`` also needs what ``transports.toml`` says that
the transport of that name needs.

A need is for what decides whether a test can *run*.  What a test needs to *prove*
that a feature works (kprobes, for one) does not belong here: a kernel that shows
the feature but cannot prove it must fail, and it does so in the guest.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.features.table import Table
from ktest_ntcopy.paths import data_root

_C = r"[A-Za-z_]\w*"
_FORMS = (
    ("feature", re.compile(r"feature(?: ([A-Za-z]\w*))?()")),
    ("config", re.compile(r"(CONFIG_\w+)(?:=(\S.*))?")),
    ("symbol", re.compile(rf"symbol ({_C})()")),
    ("struct", re.compile(rf"struct ({_C})()")),
    ("member", re.compile(rf"member ({_C}(?:\.{_C})+)()")),
    ("cpus", re.compile(r"cpus()>=([1-9]\d{0,2})")),
    ("memory", re.compile(r"memory()>=([1-9]\d{0,6})")),
    ("device", re.compile(r"device ([A-Za-z][\w.-]*)()")),
    ("bits", re.compile(r"bits()=(32)")),
)


@dataclass(frozen=True)
class Need:
    """One entry."""

    kind: str  #: first word of the list above, in lower case
    name: str = ""  #: empty for the feature that the file is about
    value: str = ""  #: of an option, empty: built in; a number of processors, MiB or bits

    def __str__(self) -> str:
        """As it is written in a feature file."""
        if self.kind == "config":
            return f"{self.name}={self.value}" if self.value else self.name
        if self.kind in ("cpus", "memory"):
            return f"{self.kind}>={self.value}"
        if self.kind == "bits":
            return f"{self.kind}={self.value}"
        return f"{self.kind} {self.name}".rstrip()


def parse_need(text: str) -> Need:
    """Read one entry.  Raises ValueError."""
    for kind, form in _FORMS:
        if found := form.fullmatch(text):
            return Need(kind, found[1] or "", found[2] or "")
    raise ValueError(f"{text!r} is no need; see ktest_ntcopy/features/needs.py for the forms")


@cache
def transports() -> Mapping[str, tuple[Need, ...]]:
    """What each transport of the C tests needs, by the name of its object there.

    Raises ConfigError if the file beside the transports is not sound.
    """
    path = data_root() / "tools-testing-net/net/transports.toml"
    try:
        table = Table(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as err:
        raise ConfigError(f"{path}: cannot be read: {str(err).splitlines()[0]}") from err
    found = {}
    for name, _ in table.items(_C):
        entry = table.table(name)
        found[name] = needs(entry)
        entry.end()
    return found


def needs(table: Table) -> tuple[Need, ...]:
    """The key ``needs`` of a table, empty if it is missing.  Raises ConfigError."""
    found = []
    for text in table.texts("needs"):
        try:
            found.append(parse_need(text))
        except ValueError as err:
            table.fail(f"'needs': {err}")
    return tuple(dict.fromkeys(found))
