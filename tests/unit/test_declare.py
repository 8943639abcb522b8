# SPDX-License-Identifier: GPL-2.0-only
"""Types shown as C."""

from __future__ import annotations

import pytest

from ktest_ntcopy.image.types.btf import Btf
from ktest_ntcopy.image.types.btf_data import Kind
from ktest_ntcopy.image.types.btf_write import BtfWriter
from tests.unit.btf_samples import everything

TYPES = Btf(everything().build())
ALL = """\
struct all {
	union {
		int *as_pointer;                        /*     0     8 */
		int as_int;                             /*     0     4 */
	};                                              /*     0     8 */
	alias list;                                     /*     8    12 */
	int bits:3;                                     /*    20: 0  4 */
	int more:7;                                     /*    20: 3  4 */

	/* XXX 2 bytes 6 bits hole */

	char *where;                                    /*    24     8 */
	struct all *self;                               /*    32     8 */
	struct {
		int low;                                /*    40     4 */
		int high;                               /*    44     4 */
	} pair;                                         /*    40     8 */
	double real;                                    /*    48     8 */
	enum colour colour;                             /*    56     4 */

	/* XXX 4 bytes hole */

	handler_t handle;                               /*    64     8 */
	int (*handlers[4])(struct later *, const char *, ...); /*    72    32 */
	const char *const name;                         /*   104     8 */
	char (*rows)[16];                               /*   112     8 */
	volatile int busy;                              /*   120     4 */

	/* XXX 4 bytes hole */

	int *restrict only;                             /*   128     8 */
	union later_union *other;                       /*   136     8 */
	int tail[0];                                    /*   144     0 */

	/* size: 144, members: 17, holes: 3, sum holes: 10 bytes 6 bits */
};"""
COLOUR = """\
enum colour {
	RED = 0,
	BLUE = -3,
};                                                      /* size: 4 */"""


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_struct() -> None:
    assert TYPES.declaration("all") == ALL
    assert TYPES.declaration("struct all") == ALL
    assert TYPES.declaration("union all") == ""


@pytest.mark.parametrize("asked", ["colour", "enum colour", "BLUE"])
def test_enum(asked: str) -> None:
    assert TYPES.declaration(asked) == COLOUR


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("alias", "typedef const int alias[3]; /* size: 12 */"),
        (
            "handler_t",
            "typedef int (*handler_t)(struct later *, const char *, ...); /* size: 8 */",
        ),
        ("deliver", "int deliver(struct all *all, int n); /* tags: kfunc */"),
        ("report", "void report(const char *format, ...);"),
        ("counter", "int counter; /* size: 4 */"),
        (".data", ".data { int counter; /* 8 4 */ }; /* size: 16 */"),
        ("later", "struct later; /* no definition */"),
        ("struct later", "struct later; /* no definition */"),
        ("union later_union", "union later_union; /* no definition */"),
        ("union later", ""),
        ("int", "int; /* size: 4 */"),
        ("double", "double; /* size: 8 */"),
        ("enum wide", "enum wide { HUGE = 1099511627776, LOWEST = -9223372036854775808, }; "
         "/* size: 8 */"),
        ("none", ""),
        ("", ""),
        (" ", ""),
        ("enum ", ""),
        ("class all", ""),
        ("a\0b", ""),
    ],
)  # fmt: skip
def test_others(name: str, shown: str) -> None:
    assert squeezed(TYPES.declaration(name)) == shown


def test_all_of_one_name() -> None:
    make = BtfWriter()
    integer = make.integer("int", 4)
    make.compound(Kind.STRUCT, "x", 4, [("a", integer, 0, 0)])
    make.compound(Kind.UNION, "x", 4, [("b", integer, 0, 0)])
    make.compound(Kind.STRUCT, "x", 8, [("c", integer, 0, 0)])
    make.add(Kind.TYPEDEF, "x", last=integer)
    make.function("x", integer, [])
    make.enum("", [("x", 1)])
    types = Btf(make.build())
    shown = squeezed(types.declaration("x"))
    for part in ("int a;", "int b;", "int c;", "typedef int x;", "int x(void);", "enum { x = 1, }"):
        assert part in shown
    assert "int b;" not in types.declaration("struct x")
    assert squeezed(types.declaration("union x")).startswith("union x { int b;")


def test_padding() -> None:
    make = BtfWriter()
    integer = make.integer("int", 4)
    make.compound(Kind.STRUCT, "x", 12, [("a", integer, 0, 0), ("b", integer, 32, 5)])
    assert "size: 12, members: 2, padding: 7 bytes 3 bits" in Btf(make.build()).declaration("x")


def test_anonymous_in_arrays_and_behind_pointers() -> None:
    make = BtfWriter()
    integer = make.integer("int", 4)
    inner = make.compound(Kind.STRUCT, "", 8, [("a", integer, 0, 0), ("b", integer, 32, 0)])
    rows = [
        ("pad", integer, 0, 0),
        ("many", make.array(inner, 3), 64, 0),
        ("far", make.add(Kind.PTR, last=make.add(Kind.CONST, last=inner)), 256, 0),
        ("mode", make.enum("", [("ON", 1)]), 320, 0),
    ]
    make.compound(Kind.STRUCT, "x", 48, rows)
    shown = squeezed(Btf(make.build()).declaration("x"))
    assert "struct { int a; /* 8 4 */ int b; /* 12 4 */ } many[3]; /* 8 24 */" in shown
    # What a pointer leads to has its own offsets.
    assert "const struct { int a; /* 0 4 */ int b; /* 4 4 */ } *far; /* 32 8 */" in shown
    assert "enum { ON = 1, } mode; /* 40 4 */" in shown


def test_member_that_is_an_unnamed_struct_with_a_tag() -> None:
    """An extension of Plan 9 and Microsoft that Linux 7 began to use."""
    make = BtfWriter()
    integer = make.integer("int", 4)
    inner = make.compound(Kind.STRUCT, "inner", 4, [("a", integer, 0, 0)])
    make.compound(Kind.STRUCT, "x", 8, [("", inner, 32, 0)])
    types = Btf(make.build())
    assert "struct inner; /* 4 4 */" in squeezed(types.declaration("x"))
    assert [(m.name, m.offset) for m in types.members("x")] == [("a", 4)]
