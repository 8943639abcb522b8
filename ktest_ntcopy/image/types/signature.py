# SPDX-License-Identifier: GPL-2.0-only
"""Compares function declarations by their types.

``int f(struct sock *sk, unsigned long)`` and ``int f(struct sock*, long unsigned int n)``
declare the same; how they are spaced and what parameters are called does not count.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d\w*|\.\.\.|[()\[\]*,]")
_SPACE = re.compile(r"\s+")
_DEPTH = 32  # nesting of parentheses; real declarations stay below five
_LENGTH = 20_000  # characters of one declaration

_QUALIFIERS = frozenset({"const", "volatile", "restrict", "_Atomic"})
_TAGS = frozenset({"struct", "union", "enum"})
# How often each of these is said makes one arithmetic type, in whatever order.
_ARITHMETIC = frozenset({"signed", "unsigned", "short", "long", "int", "char", "__int128"})
# Written in sources, but no part of the type as compilers record it.
_SILENT = re.compile(
    r"extern|static|inline|__inline|__inline__|__always_inline|noinline|noinline_for_stack"
    r"|asmlinkage|notrace|noinstr|__init|__exit|__meminit|__sched|__must_check|__noreturn"
    r"|__user|__kernel|__rcu|__iomem|__percpu|__force|__nocast|__private|__maybe_unused"
    r"|__cold|__pure|__attribute_const__|__visible|__weak|__ref|__bpf_kfunc"
    r"|INDIRECT_CALLABLE_SCOPE"
)
_SPELT = {"__restrict": "restrict", "_Bool": "bool"}


class SignatureError(ValueError):
    """The text is no C function declaration; says where it stops making sense."""


def normal_signature(text: str) -> str:
    """The declaration without parameter names, in one spelling.

    Types keep the names they are given: a typedef is not replaced by what it stands for.
    Qualifiers of a parameter itself are dropped, and arrays and functions as parameters
    become pointers, as C says.  Raises SignatureError.
    """
    if len(text) > _LENGTH:
        raise SignatureError(f"a declaration of {len(text)} characters")
    return _Parser(text).whole()


def same_signature(one: str, other: str) -> bool:
    """Whether both declare the same function.  Raises SignatureError."""
    return normal_signature(one) == normal_signature(other)


class _Parser:
    """A recursive descent over the part of C's grammar that declares functions.

    Types come out as prefix text that reads in one way only: a constant pointer to a
    function that takes an int and returns a constant char is ``const *(int)->const char``.
    """

    def __init__(self, text: str) -> None:
        text = text.strip().rstrip(";")
        self._text = text
        self._tokens = [_SPELT.get(t, t) for t in _TOKEN.findall(text)]
        if len("".join(_TOKEN.findall(text))) != len(_SPACE.sub("", text)):
            odd = _SPACE.sub("", _TOKEN.sub("", text))
            raise SignatureError(f"{odd[:1]!r} in {text!r}")
        self._tokens = [t for t in self._tokens if not _SILENT.fullmatch(t)]
        self._at = 0

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise SignatureError(f"no {token!r} where one belongs in {self._text!r}")

    def whole(self) -> str:
        name, declared = self._declaration(0)
        if self._at != len(self._tokens):
            raise SignatureError(f"{self._peek()!r} is not understood in {self._text!r}")
        if not name:
            raise SignatureError(f"no function's name in {self._text!r}")
        if not declared.startswith("("):
            raise SignatureError(f"{self._text!r} declares no function")
        return f"{name}{declared}"

    def _declaration(self, depth: int) -> tuple[str, str]:
        base = self._specifiers()
        name, wrap = self._declarator(depth)
        for kind, detail in wrap:
            if kind == "*":
                base = f"{detail}*{base}"
            else:
                base = f"[{detail}]{base}" if kind == "[" else f"({detail})->{base}"
        return name, base

    def _specifiers(self) -> str:
        qualifiers: set[str] = set()
        arithmetic: list[str] = []
        named = ""
        while token := self._peek():
            if token in _QUALIFIERS:
                qualifiers.add(self._take())
            elif token in _ARITHMETIC:
                if named:
                    break
                arithmetic.append(self._take())
            elif token in _TAGS and not named and not arithmetic:
                self._at += 1
                named = f"{token} {self._take()}"
            elif _is_word(token) and not named and not arithmetic:
                named = self._take()
            else:
                break
        if arithmetic:
            named = _arithmetic(arithmetic)
        if not named:
            raise SignatureError(f"no type before {self._peek()!r} in {self._text!r}")
        return "".join(f"{q} " for q in sorted(qualifiers)) + named

    def _declarator(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """The name, and what to make of the base type, in the order of making it."""
        if depth > _DEPTH:
            raise SignatureError("parentheses are nested too deeply")
        pointers: list[tuple[str, str]] = []
        while self._peek() == "*":
            self._at += 1
            qualifiers = set()
            while self._peek() in _QUALIFIERS:
                qualifiers.add(self._take())
            pointers.append(("*", "".join(f"{q} " for q in sorted(qualifiers))))
        name = ""
        inner: list[tuple[str, str]] = []
        if self._peek() == "(" and self._groups():
            self._at += 1
            name, inner = self._declarator(depth + 1)
            self._expect(")")
        elif _is_word(self._peek()):
            name = self._take()
        suffixes: list[tuple[str, str]] = []
        while self._peek() in ("(", "["):
            if self._take() == "[":
                count = self._take()
                if count != "]":
                    self._expect("]")
                suffixes.append(("[", "" if count in ("]", "0") else count))
            else:
                suffixes.append(("(", self._parameters(depth + 1)))
        return name, [*pointers, *reversed(suffixes), *inner]

    def _groups(self) -> bool:
        """Whether the parenthesis here encloses a declarator, not parameters."""
        after = self._peek(1)
        return after in ("*", "(") or (
            _is_word(after) and self._peek(2) == ")" and self._peek(3) == "("
        )

    def _parameters(self, depth: int) -> str:
        if depth > _DEPTH:
            raise SignatureError("parentheses are nested too deeply")
        found: list[str] = []
        if self._peek() == ")":
            self._at += 1
            return ""
        while True:
            if self._peek() == "...":
                found.append(self._take())
            else:
                found.append(_as_parameter(self._declaration(depth)[1]))
            if self._take() != ",":
                self._at -= 1
                break
        self._expect(")")
        return "" if found == ["void"] else ",".join(found)


def _is_word(token: str) -> bool:
    return bool(token) and (token[0].isalpha() or token[0] == "_") and token not in _QUALIFIERS


def _arithmetic(words: list[str]) -> str:
    """One spelling of e.g. "long unsigned int"."""
    sign = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return "signed char" if "signed" in words else f"{sign}char"
    width = "short" if "short" in words else " ".join(["long"] * words.count("long"))
    if "__int128" in words:
        width = "__int128"
    return sign + (width or "int")


def _as_parameter(declared: str) -> str:
    """What C makes of a parameter's type."""
    if declared.startswith("["):
        return "*" + declared.partition("]")[2]
    if declared.startswith("("):
        return "*" + declared
    while declared.partition(" ")[0] in _QUALIFIERS:
        declared = declared.partition(" ")[2]
    return declared
