# SPDX-License-Identifier: GPL-2.0-only
"""Calls through registers that hold the function's address, as in User Mode Linux."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.image.code.large import resolve
from ktest_ntcopy.image.code.paths import CodePaths
from ktest_ntcopy.image.code.x86 import decode
from tests.unit.assembled import assembled, code_of, function

LEAVES = "".join(function(name, "nop", "ret") for name in ("one", "two"))


def edges(code: CodePaths, name: str = "caller") -> list[tuple[str, str | None]]:
    return [(call.kind, call.name) for call in code.calls(name)]


def caller(folder: Path, *lines: str) -> CodePaths:
    return assembled(folder, LEAVES + function("caller", *lines))


@pytest.mark.parametrize(
    "between",
    [
        (),
        ("mov %rax, %rdi", "mov 8(%rbx), %rsi", "xor %edx, %edx", "cmp %rax, %rcx"),
        ("push %rax", "pop %rcx", "mov %rax, -8(%rbp)", "movb $1, (%rax)", "test %eax, %eax"),
        ("cmpl $3, %eax", "bt $3, %ecx", "movzbl %cl, %ecx", "ud2", "endbr64", "nopw 8(%rax)"),
    ],
)
@pytest.mark.parametrize("register", ["rax", "r11"])
def test_a_call_through_a_register(tmp_path: Path, between: tuple[str, ...], register: str) -> None:
    code = caller(tmp_path, f"movabs $one, %{register}", *between, f"call *%{register}", "ret")
    assert edges(code) == [("call", "one")]
    path = code.path("caller", "one")
    assert path.found
    assert "caller -> one (at 0x" in path.detail


@pytest.mark.parametrize(
    "between",
    [
        "mov 8(%rbx), %rax",
        "mov %rcx, %rax",
        "mov %eax, %eax",
        "mov %rax, %rcx; mov $0, %eax",
        "mov $0, %al",
        "mov $0, %ah",
        "pop %rax",
        "xchg %rax, %rcx",
        "lea 8(%rbx), %rax",
        "add %rcx, %rax",
        "add $8, %rax",
        "neg %rax",
        "mul %rcx",
        "cltq",
        "cmovne %rcx, %rax",
        "sete %al",
        "lock cmpxchg %rcx, (%rdx)",
        "cpuid",
        "rdtsc",
        "call two",
        "call *%rcx",
        "vmovq %xmm0, %rax",
        "movq %xmm0, %rax",
        "jmp .",
        "ret",
        "in (%dx), %eax",
        "lods (%rsi), %rax",
        "bswap %rax",
        "rdrand %rax",
        "shl $3, %rax",
        "popcnt %rcx, %rax",
    ],
)
def test_a_register_that_may_hold_something_else_by_then(tmp_path: Path, between: str) -> None:
    code = caller(tmp_path, "movabs $one, %rax", between, "call *%rax", "ret")
    assert ("call", "one") not in edges(code)
    path = code.path("caller", "one")
    assert path.found is None
    assert path.detail.endswith(
        "not one, but takes its address, and whether to call it cannot be told (-mcmodel=large)"
    )


def test_a_register_that_calls_keep_holds_the_function_through_a_loop(tmp_path: Path) -> None:
    code = caller(
        tmp_path,
        *("movabs $one, %r15", "1: movabs $two, %rax", "call *%rax", "dec %ebx", "je 2f"),
        *("call *%r15", "jmp 1b", "2: ret"),
    )
    assert edges(code) == [("call", "two"), ("call", "one")]


def test_two_ways_to_one_call(tmp_path: Path) -> None:
    code = caller(
        tmp_path,
        *("test %edi, %edi", "je 1f", "movabs $one, %rax", "jmp 2f"),
        *("1: movabs $two, %rax", "2: call *%rax", "ret"),
    )
    assert edges(code) == [("call", "one"), ("call", "two")]
    assert code.path("caller", "one").found
    assert code.path("caller", "two").found


def test_tail_calls(tmp_path: Path) -> None:
    code = caller(tmp_path, "movabs $one, %rax", "pop %rbp", "jmp *%rax")
    assert edges(code) == [("jump", "one")]


def test_an_address_that_is_only_stored_is_no_call(tmp_path: Path) -> None:
    code = caller(
        tmp_path, "movabs $one, %rax", "mov %rax, 8(%rdi)", "mov 8(%rsi), %rax", "call *%rax"
    )
    assert edges(code) == [("reference", "one"), ("indirect", None)]


def test_what_a_compiler_makes_of_it(tmp_path: Path) -> None:
    source = """
    __attribute__((noinline)) int one(int a) { __asm__ volatile(""); return a; }
    __attribute__((noinline)) int two(int a) { __asm__ volatile(""); return a + 1; }
    int caller(int n, int *p) {
        for (int i = 0; i < n; i++) p[i] = p[i] > 3 ? one(p[i]) : two(i);
        return one(n);
    }
    int tail(int n) { return n ? two(n) : one(n + 1); }
    int _start(void) { return 0; }
    """
    code = compiled(tmp_path, source)
    assert {name for _, name in edges(code)} == {"one", "two"}
    assert {kind for kind, _ in edges(code)} <= {"call", "jump"}
    assert set(edges(code, "tail")) == {("jump", "one"), ("jump", "two")}


def compiled(folder: Path, source: str) -> CodePaths:
    flags = ["-O2", "-mcmodel=large", "-fno-pic", "-no-pie", "-static", "-nostdlib", "-w"]
    flags += ["-fcf-protection=none", "-fno-ipa-ra"]
    (folder / "a.c").write_text(source)
    subprocess.run(["gcc", *flags, "-o", folder / "a", folder / "a.c"], check=True)
    return code_of(folder / "a")


@given(st.binary(max_size=64).map(lambda b: b"\x48\xb8" + bytes(8) + b + b"\xff\xd0"))
def test_any_bytes(data: bytes) -> None:
    starts: list[int] = []
    found = decode(data, 0x1000, starts=starts)
    resolved = resolve(data, 0x1000, found, starts, lambda address: not address)
    assert {t.at for t in resolved} <= {t.at for t in found}
