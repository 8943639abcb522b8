# SPDX-License-Identifier: GPL-2.0-only
"""What functions call and variables point to, in programs assembled for the purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktest_ntcopy.image.code.paths import CodeError, CodePaths
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.names.symbols import read_symbols
from tests.unit import fake_kernel as fake
from tests.unit.assembled import assembled, code_of, function, leaves
from tests.unit.effort import cpu_below


def edges(code: CodePaths, name: str) -> list[tuple[str, str | None]]:
    return [(call.kind, call.name) for call in code.calls(name)]


# Calls on x86


def test_every_way_to_call(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("one", "two", "three", "four", "five", "six")
        + function(
            "caller",
            *("call one", "test %eax, %eax", "jne two", "lea three(%rip), %rdi"),
            *("mov $four, %rsi", "movabs $five, %rdx", "cmp $six, %rax", "call *%rax"),
            *("call *16(%rbx)", "call *ops(%rip)", "jmp one"),
        )
        + "\t.data\n\t.type ops, @object\nops:\n\t.quad one\n\t.size ops, 8\n",
    )
    assert edges(code, "caller") == [
        ("call", "one"),
        ("jump", "two"),
        ("reference", "three"),
        ("reference", "four"),
        ("reference", "five"),
        ("reference", "six"),
        ("indirect", None),
        ("indirect", None),
        ("indirect", None),
        ("jump", "one"),
    ]
    assert [c.via for c in code.calls("caller") if c.kind == "indirect"] == ["", "", "ops"]


def test_address_of_an_instruction(tmp_path: Path) -> None:
    code = assembled(tmp_path, leaves("one") + function("caller", "nop", "call one", "ret"))
    symbols = code._functions.symbols
    (call,) = code.calls("caller")
    assert call.at == symbols["caller"].address + 1
    assert call.target == symbols["one"].address


def test_branches_within_are_no_calls_but_recursion_is(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        function("looping", "1: dec %eax", "jne 1b", "jmp 2f", "nop", "2: jmp 1b", "ret")
        + function("recursive", "dec %edi", "call recursive", "ret"),
    )
    assert edges(code, "looping") == []
    assert edges(code, "recursive") == [("call", "recursive")]
    assert code.path("recursive", "recursive").found


def test_retpolines_are_indirect_and_return_thunks_are_returns(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("__x86_indirect_thunk_rax", "__x86_return_thunk")
        + function("caller", "call __x86_indirect_thunk_rax", "jmp __x86_return_thunk"),
    )
    assert edges(code, "caller") == [("indirect", None)]


def test_static_calls_lead_where_their_trampolines_do(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("real")
        + function("__SCT__set", ".byte 0xe9", ".long real - . - 4", "ud1 %esp, %ecx")
        + function("__SCT__unset", "ret", "int3", "nop", "nop", "nop")
        + function("caller", "call __SCT__set", "call __SCT__unset", "ret"),
    )
    set_, unset = code.calls("caller")
    assert (set_.name, set_.via) == ("real", "static call")
    assert (unset.name, unset.via) == ("__SCT__unset", "")
    assert code.path("caller", "real").found
    assert "static call" in code.path("caller", "real").detail


@pytest.mark.parametrize("count", [1, 7, 12])
@pytest.mark.parametrize(
    "flags", [".long 0; .byte 5, 5", ".short 0; .byte 5, 5", ".short 0; .byte 5, 5, 0"]
)
def test_alternatives_count_as_code_of_the_function(tmp_path: Path, flags: str, count: int) -> None:
    numbers = range(count)
    code = assembled(
        tmp_path,
        leaves("slow", "fast")
        + function("caller", "nop", *(f".Lold{n}: call slow" for n in numbers), "ret")
        + '\t.section .altinstr_replacement,"ax"\n'
        + "".join(f".Lnew{n}:\tcall fast\n" for n in numbers)
        + '\t.section .altinstructions,"a"\n'
        + "".join(f"\t.long .Lold{n} - ., .Lnew{n} - .; {flags}\n" for n in numbers),
    )
    assert [(c.kind, c.name, c.via) for c in code.calls("caller")] == [
        ("call", "fast", "alternative"),
        ("call", "slow", ""),
    ] * count
    assert len({c.at for c in code.calls("caller")}) == count
    assert code.path("caller", "fast").found


# What belongs to a function


def test_parts_and_copies_are_the_function(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("end", "other")
        + function("foo", "test %eax, %eax", "jne foo.cold", "call other", "ret")
        + function("foo.cold", "call end", "jmp foo + 4", binding="local")
        + function("bar.constprop.0", "call bar.part.0", "ret", binding="local")
        + function("bar.part.0", "call foo", "ret", binding="local")
        + function("caller", "call bar.constprop.0", "ret"),
    )
    assert edges(code, "foo") == [("call", "other"), ("call", "end")]
    assert edges(code, "bar") == [("call", "foo")]
    assert edges(code, "caller") == [("call", "bar")]
    assert [name for name, _ in code.path("caller", "end").steps] == ["caller", "bar", "foo"]


def test_namesakes_in_two_files(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("left", "right")
        + function("helper", "call left", "ret", binding="local")
        + function("from_left", "call helper", "ret"),
        function("helper", "call right", "ret", binding="local")
        + function("from_right", "call helper", "ret"),
    )
    assert code.path("from_left", "left").found
    assert code.path("from_right", "right").found
    assert not code.path("from_left", "right").found
    assert not code.path("from_right", "left").found
    assert code.path("helper", "left").found
    assert code.path("helper", "right").found


def test_aliases_are_one_function(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        "\t.globl __x64_alias\n\t.type __x64_alias, @function\n\t.set __x64_alias, plain\n"
        + leaves("plain")
        + function("caller", "call __x64_alias", "ret"),
    )
    assert edges(code, "caller") == [("call", "plain")]
    assert code.path("caller", "plain").found
    assert code.path("caller", "__x64_alias").found


def test_labels_before_a_function_are_not_it(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("end")
        + function("__pfx_foo", *["nop"] * 16)
        + function("foo", "call end", "ret")
        + function("caller", "call foo", "ret"),
    )
    assert edges(code, "caller") == [("call", "foo")]
    assert edges(code, "foo") == [("call", "end")]


def test_symbols_without_sizes_reach_to_the_next(tmp_path: Path) -> None:
    code = assembled(
        tmp_path, leaves("end") + function("foo", "call end", "ret", size="0") + leaves("next")
    )
    assert edges(code, "foo") == [("call", "end")]


# Hostile programs


def test_a_function_of_two_gigabytes(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("end")
        + function("huge", "call end", "ret", size="0x7fffffff")
        + "\t.skip 300000, 0x90\n",
    )
    with cpu_below(3):  # a tenth of it on a quiet machine
        assert edges(code, "huge") == [("call", "end")]


def test_many_large_overlapping_functions(tmp_path: Path) -> None:
    chained = "".join(
        function(f"f{n}", f"call f{n + 1}", "ret", size="0x7fffffff") for n in range(100)
    )
    code = assembled(tmp_path, chained + leaves("f100", "far") + "\t.skip 200000, 0x90\n")
    with cpu_below(5):  # a tenth of it on a quiet machine
        path = code.path("f0", "far")
        assert path.found is None
        assert "gave up after 1 MiB of machine code" in path.detail
        assert "\n" not in path.detail


def test_other_architectures_are_said_not_to_be_known(tmp_path: Path) -> None:
    file = tmp_path / "vmlinux"
    file.write_bytes(fake.elf(machine=fake.S390, symbols=["one", "two"], order=">"))
    code = code_of(file)
    path = code.path("one", "two")
    assert path.found is None
    assert "no decoder for s390x machine code" in path.detail
    with pytest.raises(CodeError, match="no decoder for s390x"):
        code.calls("one")


def test_objects_are_said_not_to_be_linked(tmp_path: Path) -> None:
    file = tmp_path / "file.o"
    file.write_bytes(fake.elf(kind=fake.REL, symbols=["one", "two"]))
    with Elf(file) as elf:
        symbols = read_symbols(elf)
        assert symbols is not None
        assert "not linked" in CodePaths(elf, symbols).path("one", "two").detail


# Pointers in variables

TABLE = (
    leaves("open_it", "close_it")
    + "\t.data\n\t.globl ops\n\t.type ops, @object\n\t.balign 8\n"
    + "ops:\n\t.quad 2, open_it, 0, close_it, ops\n\t.size ops, 40\n"
    + "\t.bss\n\t.globl late\n\t.type late, @object\nlate:\n\t.skip 64\n\t.size late, 64\n"
)


@pytest.mark.parametrize("machine", ["x86_64", "arm64", "arm64-pie"])
def test_pointers_of_a_structure(tmp_path: Path, machine: str) -> None:
    code = assembled(tmp_path, TABLE, machine=machine)
    assert code.pointer("ops", 8) == "open_it"
    assert code.pointer("ops", 16) is None
    assert code.pointer("ops", 24) == "close_it"
    for name, offset, said in [
        ("ops", 0, "holds 0x2, where no function begins"),
        ("ops", 32, "where no function begins"),
        ("ops", 40, "ops has 40 bytes, so no pointer of 8 at 40"),
        ("ops", -8, "no pointer of 8 at -8"),
        ("late", 8, "late is not initialised in the file but at run time"),
        ("opz", 8, "no variable opz"),
        ("open_it", 0, "no variable open_it"),
    ]:
        with pytest.raises(CodeError, match=said):
            code.pointer(name, offset)


def test_pointers_to_a_function_of_two_names(tmp_path: Path) -> None:
    alias = "\t.globl _alias\n\t.type _alias, @function\n\t.set _alias, open_it\n"
    code = assembled(tmp_path, TABLE + alias)
    assert code.pointer("ops", 8) == "open_it"
    assert code.pointer("ops", 8, prefer="_alias") == "_alias"
    assert code.pointer("ops", 24, prefer="_alias") == "close_it"


# Other machines


def test_32_bit_x86(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("one", "two", "three", "four")
        + function(
            "caller",
            *("call one", "jne two", "mov $three, %eax", "push $four", "call *%eax", "jmp two"),
        )
        + "\t.data\n\t.type ops, @object\nops:\n\t.long 0, one\n\t.size ops, 8\n",
        machine="i386",
    )
    assert edges(code, "caller") == [
        ("call", "one"),
        ("jump", "two"),
        ("reference", "three"),
        ("reference", "four"),
        ("indirect", None),
        ("jump", "two"),
    ]
    assert code.pointer("ops", 4) == "one"


def test_arm64(tmp_path: Path) -> None:
    code = assembled(
        tmp_path,
        leaves("one", "two", "three", "four", "five")
        + function("__two_veneer", "b two")
        + function(
            "caller",
            *("bl one", "cbz x0, two", "tbnz x0, #3, two", "b.ne two", "adrp x1, three"),
            *("add x1, x1, :lo12:three", "adr x2, four", "blr x1", "br x2", "bl __two_veneer"),
            *("1: cbz x0, 1b", "b five"),
        )
        + function("returns", "ret"),
        machine="arm64",
    )
    assert edges(code, "caller") == [
        ("call", "one"),
        ("jump", "two"),
        ("jump", "two"),
        ("jump", "two"),
        ("reference", "three"),
        ("reference", "four"),
        ("indirect", None),
        ("indirect", None),
        ("call", "two"),
        ("jump", "five"),
    ]
    assert code.path("caller", "two").found
    assert edges(code, "returns") == []
