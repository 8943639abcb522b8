# SPDX-License-Identifier: GPL-2.0-only
"""What a line of the journal holds: a run's header or a result, as JSON and back.  No I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from ktest_ntcopy.machine.base import MachineInfo

from .model import Cause, Result, Status

CaseId = tuple[str, str, str]  #: target, program, case


@dataclass(frozen=True, kw_only=True)
class Header:
    """Facts about a run.  An empty field means that the writer does not know it."""

    run: str = ""  #: unique id of the run
    tool: str = ""  #: version of this package
    command: tuple[str, ...] = ()  #: what was typed
    start: float = 0.0  #: time.time()
    kernel: str = ""  #: path of the kernel file
    release: str = ""  #: uname -r
    version: str = ""  #: uname -v
    arch: str = ""  #: uname -m
    machine: str = ""  #: "qemu", "uml", "host"
    accel: str = ""  #: "kvm", "tcg", "native"
    slowdown: float = 0.0  #: 1.0 = reference speed
    boot_seconds: float = 0.0
    machine_command: tuple[str, ...] = ()  #: what starts the machine
    config_hash: str = ""  #: of the kernel's .config
    commit: str = ""  #: of the kernel's source
    properties: Mapping[str, str] = field(default_factory=dict)
    planned: tuple[CaseId, ...] = ()  #: every case that was going to run, in order

    @classmethod
    def of_machine(cls, info: MachineInfo) -> Header:
        """What a booted machine adds to the run's header."""
        return cls(
            release=info.release,
            version=info.version,
            arch=info.arch,
            machine=info.kind,
            accel=info.accel,
            slowdown=info.slowdown,
            boot_seconds=info.boot_seconds,
            machine_command=info.command_line,
        )


def to_json(item: Header | Result) -> dict[str, Any]:
    """Fields as JSON values; those that are empty by default and still are, are left out."""
    record: dict[str, Any] = {}
    for entry in fields(item):
        value = getattr(item, entry.name)
        if isinstance(value, float) and not math.isfinite(value):
            value = 0.0
        elif isinstance(value, Mapping):
            value = {str(k): str(v) for k, v in value.items()}
        if value or isinstance(value, int) or entry.default is MISSING:
            record[entry.name] = value
    return record


def to_result(record: Mapping[str, Any]) -> Result:
    """Raises KeyError, TypeError or ValueError if a field is missing or of another type."""
    values = _known(Result, record)
    values["status"] = Status(values["status"])
    # A cause that a later version added is still a result.
    cause = values.get("cause", "")
    values["cause"] = Cause(cause) if cause in set(Cause) else Cause.OTHER
    return Result(**values)


def to_header(record: Mapping[str, Any]) -> Header:
    """Raises TypeError or ValueError if a field is of another type."""
    values = _known(Header, record)
    for name in ("command", "machine_command"):
        values[name] = tuple(str(x) for x in values.get(name, ()))
    values["planned"] = tuple((str(t), str(p), str(c)) for t, p, c in values.get("planned", ()))
    return Header(**values)


#: Facts of which a run has one; another value means that two runs share the file.
_FACTS = frozenset({"run", "kernel", "release", "arch", "accel", "config_hash", "commit"})


def joined(known: Header, new: Header, problems: list[str]) -> Header:
    """Both headers' facts: the first to state one is believed, plans add up.

    Adds a line to ``problems`` for each fact that they disagree on.
    """
    changes: dict[str, Any] = {}
    for entry in fields(Header):
        name = entry.name
        old, value = getattr(known, name), getattr(new, name)
        if not value:
            continue
        if not old:
            changes[name] = value
        elif name == "planned":
            changes[name] = tuple(dict.fromkeys((*old, *value)))
        elif name == "properties":
            changes[name] = {**value, **old}
        elif name == "start":
            changes[name] = min(old, value)
        elif name in ("slowdown", "boot_seconds"):
            changes[name] = max(old, value)
        elif name in _FACTS and value != old:
            problems.append(f"two headers disagree on {name}: {old!r} and {value!r}")
    return replace(known, **changes)


def _known(cls: type[Header] | type[Result], record: Mapping[str, Any]) -> dict[str, Any]:
    """The record's fields that ``cls`` has; others were added by a later version."""
    kinds = _FIELDS[cls]
    return {n: _typed(n, v, kinds[n]) for n, v in record.items() if n in kinds}


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"field {name} is {type(value).__name__}, expected {kind.__name__}")
    if isinstance(value, dict):
        return {str(k): str(v) for k, v in value.items()}
    return value


def _json_type(annotation: str) -> type:
    """The JSON type that holds a field with this annotation."""
    for start, kind in (("float", float), ("int", int), ("Mapping", dict), ("tuple", list)):
        if annotation.startswith(start):
            return kind
    return str


_FIELDS: dict[type[Header] | type[Result], dict[str, type]] = {
    cls: {entry.name: _json_type(str(entry.type)) for entry in fields(cls)}
    for cls in (Header, Result)
}
