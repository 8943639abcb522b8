# SPDX-License-Identifier: GPL-2.0-only
"""``ktest-ntcopy check --show NAME``: all that a kernel file says about one name.

JSON has one key in place of "features"::

    "show": {"name", "declaration", "types_from",
             "symbols": [{"name", "address", "size", "type", "binding"}],
             "export": {"gpl", "namespace"},
             "calls": [{"name", "kind", "via", "at"}],
             "config": {"value", "source", "menu", "defined"},
             "nearest": [], "unknown": []}

What does not apply to the name is null or empty; "unknown" says what could not be asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ktest_ntcopy.image.check import envelope, head
from ktest_ntcopy.image.expectations import describe, describe_export
from ktest_ntcopy.image.facts import Image
from ktest_ntcopy.image.file.kernel_file import KernelFile
from ktest_ntcopy.image.names.nearest import nearest
from ktest_ntcopy.image.names.symbols import Symbol
from ktest_ntcopy.image.types.typeinfo import TypeInfoError

if TYPE_CHECKING:
    from ktest_ntcopy.image.code.paths import Call
    from ktest_ntcopy.image.names.exports import Export

_TAGS = ("struct ", "union ", "enum ")


@dataclass(kw_only=True)
class Answer:
    """Everything found under one name."""

    kernel: KernelFile
    name: str
    declaration: str = ""  #: as C
    types_from: str = ""  #: "BTF" or "DWARF"
    symbols: tuple[Symbol, ...] = ()
    export: Export | None = None
    exporting: bool = True  #: the kernel has a table of exports
    calls: tuple[Call, ...] = ()
    config: str = ""  #: value of an option, "n" if it is not set; empty for other names
    config_known: bool = True  #: the option is set, or a source tree has it
    menu: str = ""
    defined: str = ""  #: FILE:LINE of an option
    nearest: tuple[str, ...] = ()
    unknown: list[str] = field(default_factory=list)  #: one line each

    @property
    def found(self) -> bool:
        """True if there is anything to show."""
        option = bool(self.config) and self.config_known
        return bool(self.declaration or self.symbols or option)

    @property
    def status(self) -> int:
        """Exit status: 0 found, 1 there is none, 2 the file cannot tell."""
        if self.found:
            return 0
        return 2 if self.unknown else 1


def show(image: Image, name: str, tree: Path | None = None) -> Answer:
    """Look a name up everywhere.  ``tree`` has the menus of options.  Raises ConfigError."""
    answer = Answer(kernel=image.kernel, name=name)
    if name.startswith("CONFIG_"):
        _option(image, answer, tree or image.kernel.source_tree)
        return answer
    _types(image, answer)
    if not name.startswith(_TAGS):
        _symbols(image, answer)
    if not answer.found:
        answer.nearest = nearest(name.split(" ")[-1], _names(image))
    return answer


def _option(image: Image, answer: Answer, tree: Path | None) -> None:
    config = image.kernel.config
    if config is None:
        answer.unknown.append(
            f"{image.kernel.path}: no configuration in it or beside it (set CONFIG_IKCONFIG=y)"
        )
        return
    answer.config = config[answer.name]
    answer.config_known = answer.name in config.values
    if tree is not None:
        from ktest_ntcopy.kernel.kconfig_menu import Menus

        for place in Menus(tree, image.kernel.arch).find(answer.name)[:1]:
            answer.menu, answer.defined = place.path, f"{place.file}:{place.line}"
            answer.config_known = True
    if not answer.config_known:
        answer.nearest = nearest(answer.name, config.values)


def _types(image: Image, answer: Answer) -> None:
    if image.types is None:
        answer.unknown.append(image.lacks("BTF", "set CONFIG_DEBUG_INFO_BTF=y, or try --dwarf"))
        return
    try:
        answer.declaration = image.types.declaration(answer.name)
    except TypeInfoError as err:
        raise image.damaged(f"damaged type information: {err}") from err
    answer.types_from = image.types.source


def _symbols(image: Image, answer: Answer) -> None:
    if image.symbols is None:
        answer.unknown.append(image.lacks("symbol table", "stripped"))
        return
    answer.symbols = image.symbols.find(answer.name)
    if not answer.symbols:
        return
    answer.exporting = image.exports is not None
    if image.exports is not None:
        answer.export = image.exports.get(answer.name)
    if answer.symbols[0].type == "func" and image.code is not None:
        from ktest_ntcopy.image.code.paths import CodeError

        try:
            answer.calls = image.code.calls(answer.name)
        except CodeError as err:
            answer.unknown.append(str(err))


def _names(image: Image) -> set[str]:
    names = set(image.symbols.names()) if image.symbols else set()
    if image.types:
        for kind in ("compound", "enumerator", "typedef", "enum"):
            names.update(image.types.names(kind))
    return names


def to_text(answer: Answer) -> str:
    """For people."""
    lines = [head(answer.kernel), ""]
    if answer.config and answer.config_known and answer.kernel.config:
        state = "not set" if answer.config == "n" else f"= {answer.config}"
        lines.append(f"{answer.name} {state}, by {answer.kernel.config.source}")
        if answer.menu:
            lines.append(f"  {answer.menu}  ({answer.defined})")
    if answer.declaration:
        lines += [answer.declaration, ""]
    lines += [describe(symbol) for symbol in answer.symbols]
    if answer.export:
        lines.append(describe_export(answer.export))
    elif answer.symbols and answer.exporting:
        lines.append("not exported")
    if answer.calls:
        lines += ["calls:", *(f"  {text}" for text in _calls(answer.calls))]
    if not answer.found:
        alike = f"; nearest: {', '.join(answer.nearest)}" if answer.nearest else ""
        lines.append(f"nothing is known of {answer.name}{alike}")
    lines += [f"not looked up: {text}" for text in answer.unknown]
    return "\n".join(lines).rstrip("\n")


def _calls(calls: tuple[Call, ...]) -> list[str]:
    """Each callee once, in the order of the code."""
    seen: dict[str, None] = {}
    for call in calls:
        target = call.name or (f"{call.target:#x}" if call.target else "(through a pointer)")
        notes = [n for n in (call.kind if call.kind != "call" else "", call.via) if n]
        seen[target + (f"  [{', '.join(notes)}]" if notes else "")] = None
    return list(seen)


def to_json(answer: Answer) -> dict[str, Any]:
    """For scripts.  See the module for its shape."""
    config = None
    if answer.config and answer.config_known and answer.kernel.config:
        config = {
            "value": answer.config,
            "source": answer.kernel.config.source,
            "menu": answer.menu or None,
            "defined": answer.defined or None,
        }
    export = answer.export
    return {
        **envelope(answer.kernel, answer.status),
        "show": {
            "name": answer.name,
            "declaration": answer.declaration or None,
            "types_from": answer.types_from or None,
            "symbols": [
                {
                    "name": s.name,
                    "address": s.address,
                    "size": s.size,
                    "type": s.type,
                    "binding": s.binding,
                }
                for s in answer.symbols
            ],
            "export": {"gpl": export.gpl, "namespace": export.namespace} if export else None,
            "calls": [
                {"name": c.name, "kind": c.kind, "via": c.via, "at": c.at} for c in answer.calls
            ],
            "config": config,
            "nearest": list(answer.nearest),
            "unknown": answer.unknown,
        },
    }
