# SPDX-License-Identifier: GPL-2.0-only
"""Whether a kernel shows the traces that a feature must leave in it."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ktest_ntcopy.features.model import Expectation, Feature
from ktest_ntcopy.image.btf import Btf, BtfError, load_btf
from ktest_ntcopy.image.kernel_file import KernelFile
from ktest_ntcopy.image.symbols import SymbolTable, load_symbols


class Found(enum.StrEnum):
    """Answer to one expectation."""

    FOUND = "found"
    MISSING = "missing"
    UNKNOWN = "unknown"  #: the file cannot tell; ``detail`` says what it lacks


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One expectation held against one kernel."""

    expectation: Expectation
    found: Found
    detail: str  #: one line: where it is, what is missing, or why that is not known
    nearest: tuple[str, ...] = ()  #: names that look alike, best first

    @property
    def message(self) -> str:
        """One line for reports."""
        alike = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        return f"{self.detail}{alike}"


class Image:
    """The facts of one kernel, each read once and only when asked for.

    Properties raise ConfigError for damaged sections.
    """

    def __init__(self, kernel: KernelFile) -> None:
        self.kernel = kernel

    @cached_property
    def symbols(self) -> SymbolTable | None:
        return load_symbols(self.kernel.vmlinux) if self.kernel.vmlinux else None

    @cached_property
    def btf(self) -> Btf | None:
        return load_btf(self.kernel.vmlinux) if self.kernel.vmlinux else None

    def check(self, expectation: Expectation) -> Finding:
        """Hold one expectation against the kernel."""
        ask = {
            "symbol": self._symbol,
            "member": self._member,
            "enumerator": self._enumerator,
            "config": self._config,
        }[expectation.kind]
        try:
            return ask(expectation)
        except BtfError as err:
            return _unknown(expectation, f"{self.kernel.vmlinux}: damaged .BTF section: {err}")

    def _lacking(self, what: str, option: str) -> str:
        if self.kernel.vmlinux is None:
            return f"{self.kernel.path}: no vmlinux beside it; give the build directory"
        return f"{self.kernel.vmlinux}: has no {what} ({option})"

    def _symbol(self, expectation: Expectation) -> Finding:
        if self.symbols is None:
            return _unknown(expectation, self._lacking("symbol table", "stripped"))
        hits = self.symbols.find(expectation.name)
        if not hits:
            return _missing(expectation, self.symbols.names())
        first = hits[0]
        also = f", also {', '.join(s.name for s in hits[1:])}" if hits[1:] else ""
        return _found(
            expectation,
            f"{first.type} {first.name} at {first.address:#x}, {first.size} bytes{also}",
        )

    def _member(self, expectation: Expectation) -> Finding:
        if self.btf is None:
            return _unknown(expectation, self._lacking("BTF", "set CONFIG_DEBUG_INFO_BTF=y"))
        if member := self.btf.member(expectation.name):
            where = f"byte {member.offset}, {member.size} bytes"
            return _found(expectation, f"{member.type} {expectation.name} at {where}")
        outer, _, _ = expectation.name.partition(".")
        names = [f"{outer}.{m.name}" for m in self.btf.members(outer)]
        return _missing(expectation, names or self.btf.compounds())

    def _enumerator(self, expectation: Expectation) -> Finding:
        if self.btf is None:
            return _unknown(expectation, self._lacking("BTF", "set CONFIG_DEBUG_INFO_BTF=y"))
        values = self.btf.enumerators
        if expectation.name in values:
            return _found(expectation, f"{expectation.name} = {values[expectation.name]}")
        return _missing(expectation, values)

    def _config(self, expectation: Expectation) -> Finding:
        config = self.kernel.config
        if config is None:
            where = f"{self.kernel.path}: no configuration in it or beside it"
            return _unknown(expectation, f"{where} (set CONFIG_IKCONFIG=y)")
        if config[expectation.name] in ("y", "m"):
            said = f"{expectation.name}={config[expectation.name]}"
            return _found(expectation, f"{said} in {config.source}")
        return _missing(expectation, config.values)


def _found(expectation: Expectation, detail: str) -> Finding:
    return Finding(expectation=expectation, found=Found.FOUND, detail=detail)


def _unknown(expectation: Expectation, detail: str) -> Finding:
    return Finding(expectation=expectation, found=Found.UNKNOWN, detail=detail)


def _missing(expectation: Expectation, names: Iterable[str]) -> Finding:
    return Finding(
        expectation=expectation,
        found=Found.MISSING,
        detail=f"{expectation.kind} {expectation.name} is missing: {expectation.why}",
        nearest=nearest(expectation.name, names),
    )


def nearest(name: str, names: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """The names most like ``name``, best first.

    Comparing fully with every symbol of a kernel would take seconds, so only
    names that share a good part of their three-letter pieces are compared.
    """
    pieces = {name[i : i + 3] for i in range(len(name) - 2)}
    close = [
        other
        for other in names
        if abs(len(other) - len(name)) <= len(name) // 2 + 1
        and sum(piece in other for piece in pieces) * 3 >= len(pieces)
    ]
    return tuple(difflib.get_close_matches(name, close, n=count, cutoff=0.6))


def feature_present(image: Image, feature: Feature) -> bool | None:
    """Whether the kernel has the feature, or a part of it; None if that cannot be told.

    True if any trace is found that no kernel without the feature has: half a feature is
    one to fail, not one to skip.  False if a marker is missing and so is the rest, as
    far as the file can tell.
    """
    kernel = image.kernel
    own = [e for e in feature.expected(kernel.version, kernel.arch) if not e.shared]
    markers: set[Found] = set()
    others: set[Found] = set()
    for expectation in sorted(own, key=lambda e: not e.marker):
        found = image.check(expectation).found
        if found is Found.FOUND:
            return True
        (markers if expectation.marker else others).add(found)
    answers = markers or others
    if not answers or Found.UNKNOWN in answers:
        return False if Found.MISSING in answers else None
    return False
