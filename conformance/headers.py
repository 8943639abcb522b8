# SPDX-License-Identifier: GPL-2.0-only
"""What a C program that includes the installed headers would know: asked of the compiler."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from conformance.layouts import Layout, Place, Shape
from ktest_ntcopy.compiler import Compiler

_SECTION = "conformance"
#: The C library's come first: the kernel's give way to them, not the other way round.
_ALWAYS = ("stddef.h", "time.h", "sys/socket.h")
_LIMIT = 60  # seconds


class HeadersError(Exception):
    """The headers do not have what was asked for; says what the compiler said."""


@dataclass(frozen=True)
class Headers:
    """The headers of one compiler, behind those of a folder if there is one."""

    compiler: Compiler
    folder: Path | None = None  #: what `make headers` of a kernel left

    @property
    def source(self) -> str:
        """Where the answers come from, for people."""
        return str(self.folder) if self.folder else "the installed headers"

    def numbers(self, header: str, expressions: Sequence[str], scratch: Path) -> list[int]:
        """The values of constant C expressions.  Raises HeadersError.

        ``scratch`` is a folder for files that may be overwritten.
        """
        lines = [f"#include <{name}>" for name in dict.fromkeys((*_ALWAYS, header))]
        values = ",\n".join(f"(long long)({one})" for one in expressions)
        place = f'__attribute__((section("{_SECTION}"), used))'
        lines.append(f"static const long long numbers[] {place} = {{\n{values}\n}};")
        source, made = scratch / "numbers.c", scratch / "numbers.o"
        source.write_text("\n".join(("#define _GNU_SOURCE", *lines, "")), encoding="utf-8")
        include = ["-I", str(self.folder)] if self.folder else []
        command = [*self.compiler.argv, *include, "-c", "-o", str(made), str(source)]
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT,
            check=False,
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error:" in line]
            raise HeadersError((said or ["the compiler failed"])[0].partition("error: ")[2])
        with made.open("rb") as file:
            elf = ELFFile(file)
            section = elf.get_section_by_name(_SECTION)
            assert section is not None  # the compiler was told to keep it
            code = f"{'<' if elf.little_endian else '>'}{len(expressions)}q"
            return list(struct.unpack(code, section.data()))

    def layout(self, shape: Shape, scratch: Path) -> Layout:
        """The layout of a structure, in our names for its members.  Raises HeadersError."""
        names = [name for name, *_ in shape.ours._fields_]
        expressions = [f"sizeof({shape.c})"]
        for name in names:
            theirs = shape.header_names.get(name, name)
            expressions += [f"offsetof({shape.c}, {theirs})"]
            # A flexible array has no size in C; ours has none either.
            flexible = getattr(shape.ours, name).size == 0
            expressions += ["0" if flexible else f"sizeof((({shape.c} *)0)->{theirs})"]
        size, *rest = self.numbers(shape.header, expressions, scratch)
        places = map(Place, rest[::2], rest[1::2])
        return Layout(f"{self.source} ({shape.c})", size, dict(zip(names, places, strict=True)))

    def pointer_size(self, scratch: Path) -> int:
        """Bytes of a pointer of the compiler's target."""
        return self.numbers("stddef.h", ["sizeof(void *)"], scratch)[0]


def native(pointer_size: int) -> bool:
    """True if this Python has pointers of that size."""
    return pointer_size == (8 if sys.maxsize > 2**32 else 4)
