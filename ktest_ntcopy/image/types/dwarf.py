# SPDX-License-Identifier: GPL-2.0-only
"""Types of a kernel, read from its DWARF: slow, for kernels that have nothing else.

Each question looks for one entry, decodes it and what lies inside it, and forgets the
rest, so memory does not grow with the number of questions.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.types.btf import Btf
from ktest_ntcopy.image.types.btf_data import Kind
from ktest_ntcopy.image.types.dwarf_data import Unit
from ktest_ntcopy.image.types.dwarf_find import (
    BASE,
    ENUM,
    ENUMERATOR,
    STRUCT,
    SUBPROGRAM,
    TYPEDEF,
    UNION,
    VARIABLE,
    Finder,
)
from ktest_ntcopy.image.types.dwarf_types import Converter, number_of, text_of
from ktest_ntcopy.image.types.typeinfo import Enumerator, Member, NameKind, TypeInfoError

#: Tells how a search goes: what is sought, and seconds since it began.
Progress = Callable[[str, float], None]

_COMPOUNDS = (STRUCT, UNION)
_ASKED = {"struct": (STRUCT,), "union": (UNION,), "enum": (ENUM,)}
_SHOWN = (STRUCT, UNION, ENUM, ENUMERATOR, TYPEDEF, SUBPROGRAM, VARIABLE, BASE)
_TAG_NAMES = {
    STRUCT: "DW_TAG_structure_type",
    UNION: "DW_TAG_union_type",
    ENUM: "DW_TAG_enumeration_type",
    ENUMERATOR: "DW_TAG_enumerator",
    TYPEDEF: "DW_TAG_typedef",
    SUBPROGRAM: "DW_TAG_subprogram",
    VARIABLE: "DW_TAG_variable",
    BASE: "DW_TAG_base_type",
}
_KEPT = 16  # structs kept decoded

#: What pyelftools raises on damaged input.
_DAMAGE = (
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
)


class Dwarf:
    """DWARF 2 to 5 of one open file as :class:`~ktest_ntcopy.image.types.typeinfo.TypeInfo`.

    Raises TypeInfoError for damaged data and for a search of more than ``seconds``;
    ConfigError if the file is cut off.  ``elf`` must stay open.
    """

    source = "DWARF"

    def __init__(
        self, elf: Elf, *, seconds: float = 60.0, progress: Progress | None = None
    ) -> None:
        self._elf = elf
        self._seconds = seconds
        self._progress = progress
        self._sought, self._begun, self._told = "", 0.0, 0.0
        self._finder = Finder(elf)
        self._compounds: dict[str, Btf | None] = {}

    # One search

    @contextmanager
    def _searching(self, name: str) -> Iterator[None]:
        # Imported when it is needed: it takes a quarter of a second that BTF does not.
        from elftools.common.exceptions import DWARFError, ELFError
        from elftools.construct import ConstructError

        self._sought, self._begun = name, time.monotonic()
        self._told = self._begun
        try:
            yield
        except TypeInfoError:
            raise
        except (DWARFError, ELFError, ConstructError, ValueError, *_DAMAGE) as err:
            said = str(err).splitlines()[0] if str(err) else type(err).__name__
            raise TypeInfoError(f"damaged DWARF about {name} ({said[:200]})") from err

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._begun > self._seconds:
            raise TypeInfoError(
                f"no answer about {self._sought} in {self._seconds:g} s of searching DWARF"
            )
        if self._progress and now - self._told > 0.5:
            self._told = now
            self._progress(self._sought, now - self._begun)

    def _dies(self, name: str, tags: set[int], *, declared: bool = False) -> Iterator[Any]:
        """Entries of that name, decoded one by one with nothing kept between them; see
        :meth:`Finder.find`."""
        from elftools.common.exceptions import DWARFError, ELFError
        from elftools.construct import ConstructError

        for unit, offset, _ in self._finder.find(name, tags, self._tick, declared=declared):
            try:
                die = self._die(unit, offset)
                # What looks like an entry may be bytes of another; only those that the
                # tree of the unit leads to are real.
                real = text_of(die) == name and die.get_parent() is not None
            except (DWARFError, ELFError, ConstructError, ValueError, *_DAMAGE):
                continue
            if real:
                yield die

    def _die(self, unit: Unit, offset: int) -> Any:
        from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo

        def section(name: str) -> Any:
            span: Any = self._finder.span(name)
            return span and DebugSectionDescriptor(span, span.name, 0, span.size, 0)

        used = (
            *("info", "abbrev", "str", "addr", "str_offsets", "line_str", "types"),
            *("loclists", "rnglists", "ranges", "loc"),
        )
        # pyelftools wants every section named, also those it is not to read.
        unused = (*("aranges", "frame", "line", "pubtypes", "pubnames", "sup"),)
        read: Any = DWARFInfo(
            config=DwarfConfig(self._elf.little_endian, self._elf.arch, self._elf.bits // 8),
            **{f"debug_{name}_sec": section(name) for name in used},
            **{f"debug_{name}_sec": None for name in unused},
            eh_frame_sec=None,
            gnu_debugaltlink_sec=None,
        )
        return read.get_CU_at(unit.start).get_DIE_from_refaddr(offset)

    # Answers

    def _build(self, name: str, die: Any) -> Btf:
        """The entry and what lies inside it."""
        convert = Converter(self._elf.order, self._tick)
        if die.tag == "DW_TAG_subprogram":
            convert.writer.add(Kind.FUNC, name, last=convert.proto(die), count=1)
        elif die.tag == "DW_TAG_variable":
            kind = convert.target(die, inside=True)
            convert.writer.add(Kind.VAR, name, last=kind, words=(1,))
        else:
            if die.tag == "DW_TAG_enumerator":
                die = die.get_parent()
            convert.convert(die, inside=True)
        return Btf(convert.writer.build(), pointer_size=self._elf.bits // 8)

    def _first(self, name: str, *tags: int, declared: bool = False) -> Btf | None:
        with self._searching(name):
            for die in self._dies(name, set(tags), declared=declared):
                return self._build(name, die)
        return None

    def _compound(self, name: str) -> Btf | None:
        if name not in self._compounds:
            if len(self._compounds) >= _KEPT:
                del self._compounds[next(iter(self._compounds))]
            self._compounds[name] = self._first(name, *_COMPOUNDS)
        return self._compounds[name]

    def struct_size(self, name: str) -> int | None:
        """Bytes of a struct or union; None if there is none of that name."""
        found = self._compound(name)
        return found.struct_size(name) if found else None

    def members(self, name: str) -> tuple[Member, ...]:
        """Members of a struct or union, those of anonymous ones within it in their place."""
        found = self._compound(name)
        return found.members(name) if found else ()

    def member(self, path: str) -> Member | None:
        """``struct.member``, or ``struct.member.member`` through embedded structs."""
        found = self._compound(path.partition(".")[0])
        return found.member(path) if found else None

    def enumerator(self, name: str) -> Enumerator | None:
        """The first enumerator of that name."""
        with self._searching(name):
            for die in self._dies(name, {ENUMERATOR}):
                value = number_of(die, "DW_AT_const_value")
                return Enumerator(name, value, text_of(die.get_parent()))
        return None

    def prototype(self, name: str) -> str | None:
        """C declaration of a function, with the names of its parameters if it is defined in
        C; what is written in assembly is only declared."""
        found = self._first(name, SUBPROGRAM) or self._first(name, SUBPROGRAM, declared=True)
        return found.prototype(name) if found else None

    def names(self, kind: NameKind) -> Iterable[str]:
        """None: to list names would mean to decode everything."""
        return ()

    def declaration(self, name: str) -> str:
        """The first of each kind of that name as C, with offsets and sizes in bytes."""
        tag, _, bare = name.strip().rpartition(" ")
        asked = _ASKED.get(tag, () if tag else _SHOWN)
        wanted, shown = set(asked), dict[str, str]()
        with self._searching(name):
            for die in self._dies(bare, wanted):
                kind = str(die.tag)
                if kind not in shown:
                    shown[kind] = self._build(bare, die).declaration(f"{tag} {bare}".strip())
                    wanted -= {one for one in asked if _TAG_NAMES[one] == kind}
        if not shown and SUBPROGRAM in asked and (found := self.prototype(bare)):
            shown[""] = f"{found};"
        return "\n\n".join(filter(None, dict.fromkeys(shown.values())))


def load_dwarf(
    elf: Elf, *, seconds: float = 60.0, progress: Progress | None = None
) -> Dwarf | None:
    """The debug information of an open kernel; None without any.

    ``seconds`` bounds each question.  A relocatable file (a module) has none that could
    be read without linking it.  Raises TypeInfoError, ConfigError.
    """
    section = elf.section(".debug_info")
    if section is None or not section.size or section.no_bits or elf.kind == "ET_REL":
        return None
    return Dwarf(elf, seconds=seconds, progress=progress)
