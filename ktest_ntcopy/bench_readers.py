# SPDX-License-Identifier: GPL-2.0-only
"""One question about a vmlinux, answered by one reader, as a process of its own.

``python -m ktest_ntcopy.bench_readers READER QUESTION VMLINUX NAME...`` prints a JSON
object: "answer", and "seconds", the processor time from the end of imports to the answer.
Every reader does what its manual suggests, no more.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Answer = Callable[[Path, Sequence[str]], Any]


def _ours(question: str) -> Answer:
    from ktest_ntcopy.features.traces import load_traces
    from ktest_ntcopy.image import check
    from ktest_ntcopy.image.facts import Image
    from ktest_ntcopy.image.file.kernel_file import open_kernel
    from ktest_ntcopy.image.names import exports  # noqa: F401  what it will need

    def symbols(image: Image, names: Sequence[str]) -> int:
        assert image.symbols is not None
        return sum(name in image.symbols for name in names)

    def enumerator(image: Image, names: Sequence[str]) -> int | None:
        found = image.types.enumerator(names[0]) if image.types else None
        return found.value if found else None

    def struct(image: Image, names: Sequence[str]) -> int | None:
        assert image.types is not None
        return image.types.struct_size(names[0]) if image.types.members(names[0]) else None

    def path(image: Image, names: Sequence[str]) -> str:
        assert image.code is not None
        return image.code.path(names[0], names[-1], through=names[1:-1]).detail

    def absent(image: Image, names: Sequence[str]) -> bool:
        return not symbols(image, names) and enumerator(image, names) is None

    def everything(image: Image, names: Sequence[str]) -> int:
        report = check.examine(image, load_traces())
        return sum(len(one.findings) for one in report.features)

    ask: dict[str, Callable[[Image, Sequence[str]], Any]] = {
        "symbols": symbols,
        "enumerator": enumerator,
        "struct": struct,
        "path": path,
        "absent": absent,
        "everything": everything,
    }
    return lambda vmlinux, names: ask[question](Image(open_kernel(vmlinux)), names)


def _pyelftools(question: str) -> Answer:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    def symbols(elf: ELFFile, names: Sequence[str]) -> int:
        wanted = set(names)
        section = elf.get_section_by_name(".symtab")
        assert isinstance(section, SymbolTableSection)
        return len(wanted & {symbol.name for symbol in section.iter_symbols()})

    def die(elf: ELFFile, names: Sequence[str]) -> int | None:
        tag, key = {
            "enumerator": ("DW_TAG_enumerator", "DW_AT_const_value"),
            "struct": ("DW_TAG_structure_type", "DW_AT_byte_size"),
        }[question]
        name = names[0].encode()
        for unit in elf.get_dwarf_info().iter_CUs():
            for one in unit.iter_DIEs():
                if one.tag != tag or key not in one.attributes:
                    continue
                called = one.attributes.get("DW_AT_name")
                if called is not None and called.value == name:
                    return int(one.attributes[key].value)
        return None

    def answer(vmlinux: Path, names: Sequence[str]) -> Any:
        with vmlinux.open("rb") as file:
            elf = ELFFile(file)
            if question == "absent":
                return not symbols(elf, names)
            return symbols(elf, names) if question == "symbols" else die(elf, names)

    return answer


def _drgn(question: str) -> Answer:
    import drgn

    def answer(vmlinux: Path, names: Sequence[str]) -> Any:
        program = drgn.Program()
        module = program.extra_module("vmlinux", create=True)
        module.try_file(str(vmlinux), force=True)
        if question == "enumerator":
            return program.constant(names[0]).value_()
        if question == "struct":
            return program.type(f"struct {names[0]}").size
        found = sum(1 for name in names if program.symbols(name))
        if question == "symbols":
            return found
        try:
            program.constant(names[0])
        except LookupError:
            return not found
        return False

    return answer


READERS = {"ours": _ours, "pyelftools": _pyelftools, "drgn": _drgn}


def main(argv: Sequence[str]) -> int:
    """See the module."""
    reader, question, vmlinux, *names = argv
    answer = READERS[reader](question)
    start = time.process_time()
    said = answer(Path(vmlinux), names)
    print(json.dumps({"seconds": time.process_time() - start, "answer": said}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
