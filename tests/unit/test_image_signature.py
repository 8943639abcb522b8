# SPDX-License-Identifier: GPL-2.0-only
"""Comparing function declarations by their types."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.image.types.signature import SignatureError, normal_signature, same_signature
from tests.unit.effort import cpu_below

UDP = "int udp_sendmsg(struct sock *sk, struct msghdr *msg, size_t len)"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (UDP, "int udp_sendmsg(struct sock*,struct msghdr * m,size_t);"),
        (UDP, "extern int\nudp_sendmsg ( struct sock * , struct msghdr * , size_t n )"),
        ("long f(unsigned long)", "long int f(long unsigned int x)"),
        ("short f(unsigned short, unsigned)", "short int f(short unsigned int, unsigned int)"),
        ("unsigned long long f(void)", "long long unsigned int f()"),
        ("void f(const struct a *x)", "void f(struct a const *)"),
        ("void f(const int x, char *const p)", "void f(int, char *)"),
        ("void f(int a[4])", "void f(int *)"),
        ("void f(int a[static 4])", "void f(int *)"),
        ("void f(const char *argv[])", "void f(char const **)"),
        ("void f(int cb(void *))", "void f(int (*)(void *))"),
        ("int (*f(int))(long)", "int (*f(int x))(long int y)"),
        ("void f(void *__user p, const char __user *s)", "void f(void *, const char *)"),
        ("int printk(const char *fmt, ...)", "int printk(const char*,...)"),
        ("void f(_Bool)", "void f(bool b)"),
        ("static inline void f(u8 (*x)[16])", "void f(u8 (*)[16])"),
        ("void *f(void)", "void* f(void)"),
    ],
)
def test_same(one: str, other: str) -> None:
    assert same_signature(one, other), (normal_signature(one), normal_signature(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (UDP, "int udp_sendmsg(struct sock *sk, struct msghdr *msg, int len)"),
        (UDP, "int udp_sendmsg(struct sock *sk, struct msghdr *msg)"),
        (UDP, "int udp_recvmsg(struct sock *sk, struct msghdr *msg, size_t len)"),
        (UDP, "long udp_sendmsg(struct sock *sk, struct msghdr *msg, size_t len)"),
        ("void f(struct a *)", "void f(const struct a *)"),
        ("void f(struct a)", "void f(union a)"),
        ("void f(const char *)", "void f(char *)"),
        ("void f(char)", "void f(signed char)"),
        ("void f(char)", "void f(unsigned char)"),
        ("void f(int *)", "void f(int **)"),
        ("void f(int (*)(int))", "void f(int (*)(long))"),
        ("void f(u8 (*x)[16])", "void f(u8 (*x)[8])"),
        ("void f(char *const *)", "void f(const char **)"),
        ("void f(int, ...)", "void f(int)"),
        ("int (*f(int))(long)", "int *f(int)"),
    ],
)
def test_different(one: str, other: str) -> None:
    assert not same_signature(one, other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int",
        "int x",
        "int f(",
        "int f(int",
        "int f(int))",
        "int f(int) {",
        "int (int)",
        "f(int)",
        "int f(struct)",
        "int f(int, , int)",
        "int f(int;)",
        "int f(…)",
        "int " + "(" * 5000,
        "int f" + "(int (*)" * 1000,
        "x" * 100_000,
    ],
)
def test_no_declaration(text: str) -> None:
    with cpu_below(0.2):
        with pytest.raises(SignatureError) as said:
            normal_signature(text)
        assert "\n" not in str(said.value)


@given(st.text(alphabet="int f(*)[],. constructx3\n", max_size=60))
def test_noise(text: str) -> None:
    with contextlib.suppress(SignatureError):
        normal_signature(text)
