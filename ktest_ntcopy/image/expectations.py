# SPDX-License-Identifier: GPL-2.0-only
"""Hold what a feature file expects against one kernel."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ktest_ntcopy.features.expect import Expectation
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.names.nearest import nearest
from ktest_ntcopy.image.names.symbols import Symbol
from ktest_ntcopy.image.types.signature import SignatureError, same_signature
from ktest_ntcopy.image.types.typeinfo import Member, TypeInfo, TypeInfoError

if TYPE_CHECKING:
    from ktest_ntcopy.image.names.exports import Export

_NO_BTF = ("BTF", "set CONFIG_DEBUG_INFO_BTF=y")
_NO_SYMBOLS = ("symbol table", "stripped")


class Found(enum.StrEnum):
    """Answer to one expectation."""

    FOUND = "found"
    MISSING = "missing"  #: not there, or not as expected
    UNKNOWN = "unknown"  #: the file cannot tell; ``detail`` says what it lacks
    NOT_APPLICABLE = "not applicable"  #: does not hold for such kernels


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One expectation held against one kernel."""

    expectation: Expectation
    found: Found
    detail: str  #: one line: what was found, or why that is not known
    nearest: tuple[str, ...] = ()  #: names that look alike, best first

    @property
    def message(self) -> str:
        """One line for reports, with where the expectation comes from unless it is met."""
        if self.found is Found.FOUND:
            return self.detail
        wanted = self.expectation
        alike = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        origin = f"{wanted.source}: {wanted.why}" if wanted.source else wanted.why
        if self.found is Found.MISSING:
            return f"expected {wanted}, found {self.detail}{alike} [{origin}]"
        verb = "does not apply" if self.found is Found.NOT_APPLICABLE else "cannot be told"
        return f"{wanted}: {verb}: {self.detail} [{origin}]"


class _UnknownError(Exception):
    """The file cannot tell; one line."""


@dataclass(frozen=True)
class _Miss:
    """Nothing of that name, or not as expected."""

    detail: str
    name: str = ""  #: that was not found
    among: Callable[[], Iterable[str]] = tuple  #: where it could have been
    prefix: str = ""  #: of the names that look alike
    look: Callable[[], tuple[str, ...]] = tuple  #: finds names that look alike in its own way

    def nearest(self) -> tuple[str, ...]:
        """Names that look alike.  Takes a tenth of a second among a kernel's symbols."""
        if not self.name:
            return self.look()
        return tuple(self.prefix + name for name in nearest(self.name, self.among()))


_Answer = str | _Miss


def check(image: Image, expectation: Expectation, *, alike: bool = True) -> Finding:
    """Hold one expectation against a kernel.  Raises ConfigError for a damaged file.

    ``alike`` looks for names near one that is missing, which takes its time.
    """
    if reason := void(image, expectation):
        return _finding(expectation, Found.NOT_APPLICABLE, reason)
    try:
        answer = _ASK[expectation.kind](image, expectation)
    except TypeInfoError as err:
        raise image.damaged(f"damaged type information: {err}") from err
    except _UnknownError as err:
        return _finding(expectation, Found.UNKNOWN, str(err))
    if expectation.absent:
        if isinstance(answer, str):
            return _finding(expectation, Found.MISSING, answer)
        # A search for calls says how far it went: what is near is looked at first.
        none = f"no {expectation.kind} {expectation.name}"
        said = answer.detail.partition(";")[0] if expectation.kind == "call" else none
        return _finding(expectation, Found.FOUND, said)
    if isinstance(answer, str):
        return _finding(expectation, Found.FOUND, answer)
    if expectation.needs and image.kernel.config is None:
        unsure = f"but whether {' and '.join(expectation.needs)} is set is not known"
        return _finding(expectation, Found.UNKNOWN, f"{answer.detail}, {unsure}")
    try:
        names = answer.nearest() if alike else ()
    except TypeInfoError as err:
        raise image.damaged(f"damaged type information: {err}") from err
    return _finding(expectation, Found.MISSING, answer.detail, names)


def prepare(image: Image, wanted: Iterable[Expectation]) -> None:
    """Look up together the symbols that these expectations are about: one pass over the
    table instead of an index of it.  No answer changes."""
    names: set[str] = set()
    for one in wanted:
        if one.kind == "call":
            names.update((*one.ends, *one.through))
        elif one.kind in ("symbol", "export", "pointer", "initial"):
            names.add(one.name.partition(".")[0])
            names.update([one.target] if one.target else [])
    if image.symbols is not None:
        image.symbols.prepare(names)


def _finding(
    expectation: Expectation, found: Found, detail: str, alike: tuple[str, ...] = ()
) -> Finding:
    return Finding(expectation=expectation, found=found, detail=detail, nearest=alike)


def void(image: Image, expectation: Expectation) -> str:
    """Why an expectation does not hold for such a kernel; empty if it does, or may."""
    kernel, config = image.kernel, image.kernel.config
    if reason := expectation.outside(kernel.version, kernel.arch):
        return reason
    for option in expectation.needs if config else ():
        if config and config[option] != "y":
            state = "a module" if config[option] == "m" else "not set"
            return f"{option} is {state} ({config.source})"
    return ""


def _types(image: Image) -> TypeInfo:
    if image.types is None:
        raise _UnknownError(image.lacks(*_NO_BTF))
    return image.types


def _nothing(expectation: Expectation, names: Callable[[], Iterable[str]]) -> _Miss:
    return _Miss("nothing of that name", expectation.name, names)


def describe(symbol: Symbol) -> str:
    """A symbol in one line."""
    size = f", {symbol.size} bytes" if symbol.size else ""
    return f"{symbol.binding} {symbol.type} {symbol.name} at {symbol.address:#x}{size}"


def _symbol(image: Image, expectation: Expectation) -> _Answer:
    if image.symbols is None:
        raise _UnknownError(image.lacks(*_NO_SYMBOLS))
    hits = image.symbols.find(expectation.name)
    if not hits:
        look = partial(image.symbols.alike, expectation.name)
        return _Miss("nothing of that name", look=look)
    if expectation.type and not any(s.type == expectation.type for s in hits):
        return _Miss(describe(hits[0]))
    also = f", also {', '.join(s.name for s in hits[1:])}" if hits[1:] else ""
    return describe(hits[0]) + also


def describe_export(export: Export) -> str:
    """An export in one line."""
    kind = "GPL only" if export.gpl else "not GPL only"
    space = f", namespace {export.namespace}" if export.namespace else ""
    return f"{export.name} exported, {kind}{space}"


def _export(image: Image, expectation: Expectation) -> _Answer:
    exports = image.exports
    if exports is None:
        from ktest_ntcopy.image.names.exports import hint

        raise _UnknownError(image.lacks("table of exports", hint(image.kernel)))
    export = exports.get(expectation.name)
    if export is None:
        symbols = image.symbols
        if symbols is not None and expectation.name in symbols:
            return _Miss(f"{describe(symbols[expectation.name])}, which is not exported")
        return _nothing(expectation, lambda: exports)
    said = describe_export(export)
    if expectation.gpl is not None and export.gpl is not expectation.gpl:
        return _Miss(said)
    if expectation.namespace is not None and export.namespace != expectation.namespace:
        return _Miss(said)
    return said


def _member(image: Image, expectation: Expectation) -> _Answer:
    types = _types(image)
    member = image.member(expectation.name)
    outer, _, _ = expectation.name.partition(".")
    if member is None:
        way = expectation.name.removeprefix(f"{outer}.")
        if inside := [m.name for m in types.members(outer)]:
            return _Miss(f"{outer} without it", way, lambda: inside, f"{outer}.")
        return _Miss(f"no struct or union {outer}", outer, lambda: types.names("compound"))
    said = f"{member.type} {expectation.name} at byte {member.offset}, {member.size} bytes"
    if expectation.offset is not None and member.bit_offset != 8 * expectation.offset:
        return _Miss(said)
    if expectation.size is not None and member.size != expectation.size:
        return _Miss(said)
    if expectation.type and not _same_type(member.type, expectation.type):
        return _Miss(said)
    return said


def _same_type(one: str, other: str) -> bool:
    def plain(text: str) -> str:
        return "".join(text.split())

    if plain(one) == plain(other):
        return True
    try:
        # "unsigned long" and "long unsigned int"; arrays would lose their length.
        same = same_signature(f"{one} f(void)", f"{other} f(void)")
    except SignatureError:
        return False
    return same and "[" not in one + other


def _struct(image: Image, expectation: Expectation) -> _Answer:
    types = _types(image)
    size = types.struct_size(expectation.name)
    if size is None:
        return _nothing(expectation, lambda: types.names("compound"))
    said = f"{expectation.name}, {size} bytes"
    return _Miss(said) if expectation.size not in (None, size) else said


def _enumerator(image: Image, expectation: Expectation) -> _Answer:
    types = _types(image)
    found = types.enumerator(expectation.name)
    if found is None:
        return _nothing(expectation, lambda: types.names("enumerator"))
    said = f"{found.name} = {found.value}" + (f" in enum {found.enum}" if found.enum else "")
    return _Miss(said) if expectation.value not in (None, found.value) else said


def _prototype(image: Image, expectation: Expectation) -> _Answer:
    types = _types(image)
    found = types.prototype(expectation.name)
    if found is None:
        symbols = image.symbols
        if symbols is not None and symbols.find(expectation.name):
            raise _UnknownError(f"{types.source} does not describe {expectation.name}()")
        return _nothing(expectation, lambda: types.names("function"))
    try:
        return found if same_signature(found, expectation.signature) else _Miss(found)
    except SignatureError as err:
        raise _UnknownError(f"signatures cannot be compared: {err}") from err


def _config(image: Image, expectation: Expectation) -> _Answer:
    config = image.kernel.config
    if config is None:
        where = f"{image.kernel.path}: no configuration in it or beside it"
        raise _UnknownError(f"{where} (set CONFIG_IKCONFIG=y)")
    value = config[expectation.name]
    wanted = ("y", "m") if expectation.value is None else (expectation.value,)
    state = f"{expectation.name}={value}" if value != "n" else f"{expectation.name} not set"
    said = f"{state} in {config.source}"
    if value in wanted:
        return said
    known = expectation.name in config.values or "n" in wanted
    return _Miss(said, "" if known else expectation.name, lambda: config.values)


def _call(image: Image, expectation: Expectation) -> _Answer:
    from ktest_ntcopy.image.code.paths import CodeError

    if image.code is None:
        raise _UnknownError(image.lacks(*_NO_SYMBOLS))
    source, _ = expectation.ends
    if expectation.absent and image.symbols and not image.symbols.find(source):
        # A function that is not there calls nothing, which proves nothing.
        raise _UnknownError(f"no function {source}: not built, or inlined wherever it is called")
    try:
        path = image.code.path(*expectation.ends, through=expectation.through)
    except CodeError as err:
        raise _UnknownError(str(err)) from err
    if path.found is None:
        raise _UnknownError(path.detail)
    return path.detail if path.found else _Miss(path.detail, look=path.look)


def _variable(image: Image, expectation: Expectation) -> tuple[Symbol, Member] | _Miss:
    """The variable, and the member of its type that the expectation is about."""
    variable, _, way = expectation.name.partition(".")
    if image.symbols is None:
        raise _UnknownError(image.lacks(*_NO_SYMBOLS))
    if variable not in image.symbols:
        if image.symbols.source == "kallsyms":
            raise _UnknownError(f"no {variable} in kallsyms, where not every variable is")
        return _Miss(f"no variable {variable}", variable, image.symbols.names)
    types = _types(image)
    member = image.member(f"{expectation.struct}.{way}")
    if member is None:
        inside = [m.name for m in types.members(expectation.struct)]
        return _Miss(f"struct {expectation.struct} without {way}", way, lambda: inside)
    return image.symbols[variable], member


def _pointer(image: Image, expectation: Expectation) -> _Answer:
    from ktest_ntcopy.image.code.paths import CodeError

    place = _variable(image, expectation)
    if isinstance(place, _Miss):
        return place
    symbol, member = place
    if image.code is None:
        raise _UnknownError(image.lacks(*_NO_SYMBOLS))
    try:
        found = image.code.pointer(symbol.name, member.offset, prefer=expectation.target)
    except CodeError as err:
        raise _UnknownError(str(err)) from err
    said = f"{expectation.name} = {found or 'NULL'}"
    return said if found == expectation.target else _Miss(said)


def _initial(image: Image, expectation: Expectation) -> _Answer:
    place = _variable(image, expectation)
    if isinstance(place, _Miss):
        return place
    symbol, member = place
    value = image.initial(symbol, member)
    if value is None:
        raise _UnknownError(f"{expectation.name} is set at run time")
    said = f"{expectation.name} = {value}"
    return said if value == expectation.value else _Miss(said)


_ASK: dict[str, Callable[[Image, Expectation], _Answer]] = {
    "symbol": _symbol,
    "export": _export,
    "member": _member,
    "struct": _struct,
    "enumerator": _enumerator,
    "prototype": _prototype,
    "config": _config,
    "call": _call,
    "pointer": _pointer,
    "initial": _initial,
}
