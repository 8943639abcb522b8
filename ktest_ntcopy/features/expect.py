# SPDX-License-Identifier: GPL-2.0-only
"""What a feature must leave in vmlinux: the ``[[expect]]`` tables of a feature file.

Every kind takes ``name`` and ``why``, and may take

``versions``  kernels it holds for, e.g. ``">=6.12, <7.0"``; all if it is missing
``arches``    architectures it holds for, as ``uname -m`` names them; all if it is missing
``needs``     options (``["CONFIG_MPTCP"]``) without which it does not apply
``marker``    this trace alone tells that a kernel has the feature
``shared``    kernels without the feature have it, too
``absent``    the trace must not be there

and the keys of its kind:

=========== ================================ ==============================================
kind        name                             further keys
=========== ================================ ==============================================
symbol      ``function_or_object``           ``type`` ("func", "object")
export      ``function_or_object``           ``gpl`` (true, false), ``namespace``
member      ``struct.member[.member]``       ``offset``, ``size`` (bytes), ``type`` (as in C)
struct      ``name`` of a struct or union    ``size`` (bytes)
enumerator  ``NAME``                         ``value``
prototype   ``function``                     ``signature`` (as in C, names of parameters
                                             and white space do not matter)
config      ``CONFIG_NAME``                  ``value``: "y", "m", "n" (must not be set) or what
                                             it is set to; "y" or "m" if it is missing
call        ``source -> target``             ``through``: functions between, in this order
pointer     ``variable.member``              ``struct`` (what the variable is), ``target``
initial     ``variable.member``              ``struct`` (what the variable is), ``value``
=========== ================================ ==============================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktest_ntcopy.features.versions import ANY, Versions

if TYPE_CHECKING:
    from ktest_ntcopy.features.table import Table

_C = "[A-Za-z_][A-Za-z0-9_]*"
_OPTION = "CONFIG_[A-Za-z0-9_]+"


@dataclass(frozen=True)
class _Kind:
    """What one kind of expectation looks like."""

    name: str  #: pattern of its name
    shape: str  #: the same for people
    keys: tuple[str, ...] = ()  #: what it may take besides the common keys
    required: tuple[str, ...] = ()  #: which of them it must take
    absent: bool = True  #: may be negated


KINDS = {
    "symbol": _Kind(_C, "a function or object", ("type",)),
    "export": _Kind(_C, "a function or object", ("gpl", "namespace")),
    "member": _Kind(rf"{_C}(\.{_C})+", "struct.member", ("offset", "size", "type")),
    "struct": _Kind(_C, "a struct or union", ("size",)),
    "enumerator": _Kind(_C, "an enumerator", ("value",)),
    "prototype": _Kind(_C, "a function", ("signature",), ("signature",), absent=False),
    "config": _Kind(_OPTION, "CONFIG_NAME", ("value",), absent=False),
    "call": _Kind(rf"{_C} -> {_C}", "source -> target", ("through",)),
    "pointer": _Kind(
        rf"{_C}(\.{_C})+",
        "variable.member",
        ("struct", "target"),
        ("struct", "target"),
        absent=False,
    ),
    "initial": _Kind(
        rf"{_C}(\.{_C})+",
        "variable.member",
        ("struct", "value"),
        ("struct", "value"),
        absent=False,
    ),
}
_OWN_KEYS = frozenset(key for kind in KINDS.values() for key in kind.keys)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One trace.  See the module for what each kind means and takes."""

    kind: str
    name: str
    why: str
    versions: Versions = ANY
    arches: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  #: options, with CONFIG_
    marker: bool = False
    shared: bool = False
    absent: bool = False
    offset: int | None = None  #: bytes
    size: int | None = None  #: bytes
    type: str = ""
    value: int | str | None = None  #: a number, an option's text
    signature: str = ""
    gpl: bool | None = None
    namespace: str | None = None
    through: tuple[str, ...] = ()
    struct: str = ""  #: what a variable is, without "struct"
    target: str = ""  #: function a pointer leads to
    file: str = field(default="", compare=False)  #: name of the feature file
    line: int = field(default=0, compare=False)  #: in the feature file, from 1; 0: unknown

    @property
    def id(self) -> str:
        """Stands for it in node ids and reports: "call.a->b", without blanks."""
        return f"{self.kind}.{self.name}".replace(" ", "")

    @property
    def source(self) -> str:
        """Where it is stated: "msg_ntcopy.toml:42"."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def ends(self) -> tuple[str, str]:
        """Source and target of a call."""
        source, _, target = self.name.partition(" -> ")
        return source, target

    def __str__(self) -> str:
        """For people: kind, name and what is demanded of it."""
        parts = [f"no {self.kind}" if self.absent else self.kind, self.name]
        if self.signature:
            parts = [self.kind, self.signature]
        demands = [
            f"{key} {value}"
            for key, value in (
                ("type", self.type or None),
                ("at byte", self.offset),
                ("size", self.size),
                ("value", self.value),
                ("namespace", self.namespace),
                ("through", " -> ".join(self.through) or None),
                ("to", self.target or None),
            )
            if value is not None
        ]
        if self.gpl is not None:
            demands.append("GPL only" if self.gpl else "not GPL only")
        return " ".join(parts) + (f" ({', '.join(demands)})" if demands else "")

    def outside(self, version: str, arch: str) -> str:
        """Why it does not hold for such kernels at all; empty if it does."""
        if version not in self.versions:
            return f"it is about Linux {self.versions}"
        if self.arches and arch not in self.arches:
            return f"it is about {' and '.join(self.arches)}"
        return ""


def expectations(table: Table, text: str) -> tuple[Expectation, ...]:
    """All ``[[expect]]`` tables of a file; ``text`` is the file, to tell lines.

    Raises ConfigError.
    """
    lines = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if re.match(r"\s*\[\[\s*expect\s*\]\]", line)
    ]
    found: list[Expectation] = []
    for number, one in enumerate(table.tables("expect")):
        expectation = _expectation(one, lines[number] if number < len(lines) else 0)
        for other in found:
            if other.id == expectation.id and _both(other, expectation):
                # In the words of Table.unique, which cannot know of versions.
                table.fail(f"two expectations are named '{expectation.id}'")
        found.append(expectation)
    return tuple(found)


def _both(one: Expectation, other: Expectation) -> bool:
    """True if both can hold for one kernel."""
    arches = not one.arches or not other.arches or set(one.arches) & set(other.arches)
    return one.versions.overlaps(other.versions) and bool(arches)


def _versions(table: Table) -> Versions:
    text = table.text("versions", "")
    if not text:
        return ANY
    try:
        return Versions.parse(text)
    except ValueError as err:
        table.fail(f"'versions': {err}")


def _number(table: Table, key: str, *, lowest: int = 0) -> int | None:
    if not table.has(key):
        return None
    value = table.take(key, int)
    if not lowest <= value < 1 << 64:
        table.fail(f"'{key}' is {value}, which no kernel can have")
    return value


def _value(table: Table, kind: str) -> int | str | None:
    if not table.has("value"):
        return None
    if kind in ("enumerator", "initial"):
        return _number(table, "value", lowest=-(1 << 63))
    return table.text("value")


def _expectation(table: Table, line: int) -> Expectation:
    name = table.choice("kind", tuple(KINDS))
    kind = KINDS[name]
    for key in sorted(_OWN_KEYS - set(kind.keys)):
        if table.has(key):
            table.fail(f"a {name} takes no '{key}'")
    for key in kind.required:
        table.take(key, object)
    options: dict[str, Any] = {
        key: table.text(key) for key in ("type", "signature", "struct", "target") if table.has(key)
    }
    expectation = Expectation(
        kind=name,
        name=_name(table, name, kind),
        why=table.text("why"),
        versions=_versions(table),
        arches=table.texts("arches"),
        needs=table.texts("needs"),
        marker=table.take("marker", bool, False),
        shared=table.take("shared", bool, False),
        absent=table.take("absent", bool, False),
        offset=_number(table, "offset"),
        size=_number(table, "size"),
        value=_value(table, name),
        gpl=table.take("gpl", bool) if table.has("gpl") else None,
        namespace=table.take("namespace", str) if table.has("namespace") else None,
        through=table.texts("through"),
        file=Path(table.file).name,
        line=line,
        **options,
    )
    _sense(table, expectation, kind)
    table.end()
    return expectation


def _name(table: Table, kind: str, shape: _Kind) -> str:
    name = table.text("name")
    if not re.fullmatch(shape.name, name):
        table.fail(f"'name' is {name!r}; a {kind}'s is {shape.shape}")
    return name


def _sense(table: Table, expectation: Expectation, kind: _Kind) -> None:
    """Refuse what can never hold, or says nothing."""
    if expectation.marker and expectation.shared:
        table.fail("'marker' and 'shared' exclude each other")
    if expectation.absent:
        if not kind.absent:
            hint = '; say value = "n"' if expectation.kind == "config" else ""
            table.fail(f"a {expectation.kind} takes no 'absent'{hint}")
        if expectation.marker:
            table.fail("'marker' and 'absent' exclude each other: absence tells nothing")
        extra = [k for k in kind.keys if k != "through" and table.has(k)]
        if extra:
            table.fail(f"'{extra[0]}' of something absent")
    for option in expectation.needs:
        if not re.fullmatch(_OPTION, option):
            table.fail(f"'needs' has {option!r}, which is no CONFIG_NAME")
    for function in expectation.through:
        if not re.fullmatch(_C, function) or function in expectation.ends:
            table.fail(f"'through' has {function!r}, which cannot lie between")
    for key in ("struct", "target"):
        value = getattr(expectation, key)
        if value and not re.fullmatch(_C, value):
            table.fail(f"'{key}' is {value!r}, which is no name")
    if "signature" in kind.keys and not re.search(
        rf"\b{re.escape(expectation.name)}\s*\(.*\)\s*;?\s*$", expectation.signature
    ):
        table.fail(f"'signature' declares no function {expectation.name}")
