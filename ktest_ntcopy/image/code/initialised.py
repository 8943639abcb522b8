# SPDX-License-Identifier: GPL-2.0-only
"""Values that a kernel's variables start with."""

from __future__ import annotations

import struct

from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.names.symbols import Symbol, SymbolTable

_RELATIVE = {"EM_X86_64": 8, "EM_AARCH64": 1027}  # relocation: base plus addend


class Initialised:
    """Reads pointers out of initialised data."""

    def __init__(self, elf: Elf, symbols: SymbolTable) -> None:
        self._elf = elf
        self._symbols = symbols

    def pointer(self, name: str, offset: int) -> int:
        """The address at ``offset`` bytes into a variable.

        Raises ValueError with one line if there is no such variable, it is shorter, or the
        file holds no value for it.
        """
        symbol = self._symbols.get(name)
        if symbol is None or symbol.type == "func":
            raise ValueError(f"no variable {name}")
        width = self._elf.bits // 8
        if offset < 0 or (symbol.size and offset + width > symbol.size):
            raise ValueError(
                f"{name} has {symbol.size} bytes, so no pointer of {width} at {offset}"
            )
        address = symbol.address + offset
        data = self._elf.at(address, width)
        if len(data) < width:
            raise ValueError(f"{name} is not initialised in the file but at run time")
        value = int.from_bytes(data, "little" if self._elf.little_endian else "big")
        return value or self._relocated(address)

    def _relocated(self, address: int) -> int:
        """What a kernel that can be loaded anywhere puts at an address when it starts."""
        section = self._elf.section(".rela.dyn") or self._elf.section(".rela")
        kind = _RELATIVE.get(self._elf.machine)
        if section is None or kind is None or self._elf.bits != 64:
            return 0
        table = self._elf.read(section)
        order = self._elf.order
        head = struct.pack(order + "QQ", address, kind)
        at = table.find(head)
        while at >= 0 and at % 24:
            at = table.find(head, at + 1)
        if at < 0 or at + 24 > len(table):
            return 0
        (value,) = struct.unpack_from(order + "Q", table, at + 16)
        return int(value)

    def name_at(self, address: int) -> str:
        """``variable+0x10`` for an address in a variable; the address itself if there is none."""
        best: Symbol | None = None
        for row, start in enumerate(self._symbols.addresses):
            if start <= address and (best is None or start >= best.address):
                symbol = self._symbols.row(row)
                if symbol.name and symbol.type == "object" and address < start + symbol.size:
                    best = symbol
        if best is None:
            return f"*{address:#x}"
        inside = address - best.address
        return f"{best.name}+{inside:#x}" if inside else best.name
