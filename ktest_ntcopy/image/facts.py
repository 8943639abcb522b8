# SPDX-License-Identifier: GPL-2.0-only
"""Everything that can be asked about one kernel file, each part read when it is asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.file.kernel_file import KernelFile
from ktest_ntcopy.image.types.typeinfo import TypeInfoError

if TYPE_CHECKING:
    from ktest_ntcopy.image.code.paths import CodePaths
    from ktest_ntcopy.image.names.exports import Exports
    from ktest_ntcopy.image.names.symbols import Symbol, SymbolTable
    from ktest_ntcopy.image.types.typeinfo import Member, TypeInfo


class Image:
    """The facts of one kernel.  A property is None where the file has no such thing.

    ``dwarf`` lets DWARF answer where BTF is missing, which takes seconds.
    Properties raise ConfigError for damaged sections.
    """

    def __init__(self, kernel: KernelFile, *, dwarf: bool = False) -> None:
        self.kernel = kernel
        self._dwarf = dwarf
        self._members: dict[str, Member | None] = {}

    @cached_property
    def _elf(self) -> Elf | None:
        return Elf(self.kernel.vmlinux) if self.kernel.vmlinux else None

    @cached_property
    def symbols(self) -> SymbolTable | None:
        """The symbol table, the kernel's own (kallsyms) where the file is stripped."""
        from ktest_ntcopy.image.names.symbols import read_symbols

        if self._elf is None:
            return None
        if table := read_symbols(self._elf):
            return table
        from ktest_ntcopy.image.file.stripped import read_kallsyms

        return read_kallsyms(self._elf)

    @cached_property
    def types(self) -> TypeInfo | None:
        """Types from BTF, or from DWARF if that was allowed."""
        from ktest_ntcopy.image.types.btf import read_btf

        if self._elf is None:
            return None
        if types := read_btf(self._elf):
            return types
        if self._dwarf:
            from ktest_ntcopy.image.types.dwarf import load_dwarf

            try:
                return load_dwarf(self._elf)
            except TypeInfoError as err:
                raise self.damaged(f"damaged debug information: {err}") from err
        return None

    def member(self, path: str) -> Member | None:
        """``types.member(path)``; many expectations are about few members."""
        if path not in self._members:
            self._members[path] = self.types.member(path) if self.types else None
        return self._members[path]

    @cached_property
    def exports(self) -> Exports | None:
        """Symbols that modules may use."""
        from ktest_ntcopy.image.names.exports import read_exports

        return read_exports(self._elf, self.symbols) if self._elf else None

    @cached_property
    def code(self) -> CodePaths | None:
        """What calls what."""
        from ktest_ntcopy.image.code.paths import CodePaths

        if self._elf is None or self.symbols is None:
            return None
        return CodePaths(self._elf, self.symbols)

    def initial(self, symbol: Symbol, member: Member) -> int | None:
        """The number that a member of a variable starts with; None if the file has none."""
        if self._elf is None:
            return None
        first, end = member.bit_offset // 8, (member.bit_offset + member.bit_size + 7) // 8
        data = self._elf.at(symbol.address + first, end - first)
        if len(data) != end - first:
            return None
        value = int.from_bytes(data, "little" if self._elf.little_endian else "big")
        # BTF counts the bits of a bit-field from the end that comes first in memory.
        shift = member.bit_offset - 8 * first
        if not self._elf.little_endian:
            shift = 8 * end - member.bit_offset - member.bit_size
        return value >> shift & (1 << member.bit_size) - 1

    def lacks(self, what: str, hint: str) -> str:
        """One line for a part that the file does not have."""
        if self.kernel.vmlinux is None:
            return f"{self.kernel.image_problem}; no vmlinux beside it"
        return f"{self.kernel.vmlinux}: has no {what} ({hint})"

    def damaged(self, what: object) -> ConfigError:
        """The error for a part that contradicts itself."""
        return ConfigError(f"{self.kernel.vmlinux}: {what}; build it again")

    def close(self) -> None:
        """Close the file.  A second call does nothing."""
        if elf := self.__dict__.pop("_elf", None):
            elf.__exit__(None, None, None)
