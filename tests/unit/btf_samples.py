# SPDX-License-Identifier: GPL-2.0-only
"""BTF with one of everything, for the tests of its reader."""

from __future__ import annotations

from ktest_ntcopy.image.types.btf_data import Kind
from ktest_ntcopy.image.types.btf_write import BtfWriter

#: Bytes once and per element of the 20 kinds, as Linux 7 and later tell them.
LAYOUT = (
    *((0, 0), (4, 0), (0, 0), (12, 0), (0, 12), (0, 12), (0, 8), (0, 0), (0, 0), (0, 0)),
    *((0, 0), (0, 0), (0, 0), (0, 8), (4, 0), (0, 12), (0, 0), (4, 0), (0, 0), (0, 12)),
)


def everything(order: str = "<") -> BtfWriter:
    """A type of every kind, most of them reached from ``struct all``."""
    make = BtfWriter(order)
    integer = make.integer("int", 4)
    char = make.integer("char", 1)
    pointer = make.add(Kind.PTR, last=integer)
    array = make.array(integer, 3)
    const_array = make.add(Kind.CONST, last=array)
    alias = make.add(Kind.TYPEDEF, "alias", last=const_array)
    volatile = make.add(Kind.VOLATILE, last=integer)
    restrict = make.add(Kind.RESTRICT, last=pointer)
    later = make.add(Kind.FWD, "later")
    later_union = make.add(Kind.FWD, "later_union", flag=True)
    later_pointer = make.add(Kind.PTR, last=later)
    union_pointer = make.add(Kind.PTR, last=later_union)
    text = make.add(Kind.PTR, last=make.add(Kind.CONST, last=char))
    double = make.add(Kind.FLOAT, "double", last=8)
    tagged = make.add(Kind.PTR, last=make.add(Kind.TYPE_TAG, "user", last=char))
    enum = make.enum("colour", [("RED", 0), ("BLUE", -3)])
    make.enum("", [("TOP_BIT", 1 << 31)])
    make.enum("wide", [("HUGE", 1 << 40), ("LOWEST", -(1 << 63))], size=8)
    proto = make.proto(integer, [("", later_pointer), ("", text), ("", 0)])
    handler = make.add(Kind.TYPEDEF, "handler_t", last=make.add(Kind.PTR, last=proto))
    handlers = make.array(make.add(Kind.PTR, last=proto), 4)
    const_pointer = make.add(Kind.CONST, last=text)
    rows = make.add(Kind.PTR, last=make.array(char, 16))
    inside = make.compound(
        Kind.UNION, "", 8, [("as_pointer", pointer, 0, 0), ("as_int", integer, 0, 0)]
    )
    named = make.compound(Kind.STRUCT, "", 8, [("low", integer, 0, 0), ("high", integer, 32, 0)])
    struct = make.reserve()
    self_pointer = make.add(Kind.PTR, last=struct)
    flexible = make.array(integer, 0)
    members = [
        ("", inside, 0, 0),
        ("list", alias, 64, 0),
        ("bits", integer, 160, 3),
        ("more", integer, 163, 7),
        ("where", tagged, 192, 0),
        ("self", self_pointer, 256, 0),
        ("pair", named, 320, 0),
        ("real", double, 384, 0),
        ("colour", enum, 448, 0),
        ("handle", handler, 512, 0),
        ("handlers", handlers, 576, 0),
        ("name", const_pointer, 832, 0),
        ("rows", rows, 896, 0),
        ("busy", volatile, 960, 0),
        ("only", restrict, 1024, 0),
        ("other", union_pointer, 1088, 0),
        ("tail", flexible, 1152, 0),
    ]
    make.compound(Kind.STRUCT, "all", 144, members, number=struct)
    function = make.function("deliver", integer, [("all", self_pointer), ("n", integer)])
    make.function("report", 0, [("format", text), ("", 0)])
    make.function("nothing", pointer, [])
    variable = make.add(Kind.VAR, "counter", last=integer, words=(1,))
    make.add(Kind.DATASEC, ".data", last=16, count=1, words=(variable, 8, 4))
    make.add(Kind.DECL_TAG, "kfunc", last=function, words=(0xFFFFFFFF,))
    return make
