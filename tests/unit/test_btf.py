# SPDX-License-Identifier: GPL-2.0-only
"""Questions about types, answered from BTF."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.types.btf import Btf, BtfError, Kind, load_btf
from ktest_ntcopy.image.types.btf_write import BtfWriter
from ktest_ntcopy.image.types.typeinfo import Enumerator, TypeInfo
from tests.unit import fake_kernel as fake
from tests.unit.btf_samples import LAYOUT, everything
from tests.unit.effort import cpu_below


@pytest.fixture(params=["<", ">"])
def types(request: pytest.FixtureRequest) -> Btf:
    return Btf(everything(request.param).build())


def test_is_type_info(types: Btf) -> None:
    answers: TypeInfo = types
    assert answers.source == "BTF"


def test_members(types: Btf) -> None:
    found = [(m.name, m.type, m.bit_offset, m.bit_size) for m in types.members("all")]
    assert found == [
        ("as_pointer", "int *", 0, 64),
        ("as_int", "int", 0, 32),
        ("list", "alias", 64, 96),
        ("bits", "int", 160, 3),
        ("more", "int", 163, 7),
        ("where", "char *", 192, 64),
        ("self", "struct all *", 256, 64),
        ("pair", "struct {...}", 320, 64),
        ("real", "double", 384, 64),
        ("colour", "enum colour", 448, 32),
        ("handle", "handler_t", 512, 64),
        ("handlers", "int (*[4])(struct later *, const char *, ...)", 576, 256),
        ("name", "const char *const", 832, 64),
        ("rows", "char (*)[16]", 896, 64),
        ("busy", "volatile int", 960, 32),
        ("only", "int *restrict", 1024, 64),
        ("other", "union later_union *", 1088, 64),
        ("tail", "int [0]", 1152, 0),
    ]


def test_member(types: Btf) -> None:
    high = types.member("all.pair.high")
    assert high is not None
    assert (high.offset, high.size, high.type) == (44, 4, "int")
    for absent in ("all.none", "none.pair", "all.real.x", "all.pair.low.x", "all", "", ".", "all."):
        assert types.member(absent) is None
    assert types.struct_size("all") == 144
    assert types.struct_size("later") is None
    assert types.struct_size("") is None
    assert types.members("none") == ()


def test_pointers_of_32_bits() -> None:
    types = Btf(everything().build(), pointer_size=4)
    member = types.member("all.self")
    assert member is not None
    assert member.size == 4


def test_enumerators(types: Btf) -> None:
    assert types.enumerator("BLUE") == Enumerator("BLUE", -3, "colour")
    assert types.enumerator("TOP_BIT") == Enumerator("TOP_BIT", 1 << 31, "")
    assert types.enumerator("HUGE") == Enumerator("HUGE", 1 << 40, "wide")
    assert types.enumerator("LOWEST") == Enumerator("LOWEST", -(1 << 63), "wide")
    for absent in ("GREEN", "colour", "all", "RE", "ED", ""):
        assert types.enumerator(absent) is None
    assert list(types.enumerators) == ["RED", "BLUE", "TOP_BIT", "HUGE", "LOWEST"]


def test_prototypes(types: Btf) -> None:
    assert types.prototype("deliver") == "int deliver(struct all *all, int n)"
    assert types.prototype("report") == "void report(const char *format, ...)"
    assert types.prototype("nothing") == "int *nothing(void)"
    assert types.prototype("all") is None


def test_names(types: Btf) -> None:
    assert types.names("compound") == ["all"]
    assert types.names("function") == ["deliver", "report", "nothing"]
    assert types.names("typedef") == ["alias", "handler_t"]
    assert types.names("enum") == ["colour", "wide"]
    assert list(types.names("enumerator"))[:2] == ["RED", "BLUE"]


def test_first_of_several_that_has_the_member() -> None:
    make = BtfWriter()
    integer = make.integer("int", 4)
    make.compound(Kind.STRUCT, "twin", 4, [("one", integer, 0, 0)])
    make.compound(Kind.STRUCT, "twin", 8, [("two", integer, 32, 0)])
    types = Btf(make.build())
    assert types.struct_size("twin") == 4
    two = types.member("twin.two")
    assert two is not None
    assert two.offset == 4


def test_numbers_that_look_like_a_name_are_not_taken_for_one() -> None:
    """The place of the name in the strings also stands where sizes, values and types do."""
    make = BtfWriter()
    integer = make.integer("int", 4)
    place = make.text("name")
    make.integer("decoy", place)
    make.enum("values", [("A", place), ("B", place)])
    make.compound(Kind.STRUCT, "outer", place, [("x", integer, place, 0)])
    types = Btf(make.build())
    assert types.enumerator("name") is None
    assert types.struct_size("name") is None
    assert types.prototype("name") is None
    assert types.declaration("name") == ""


def test_old_bitfields() -> None:
    """Before there was a flag for them, they were integers of odd width."""
    make = BtfWriter()
    narrow = make.integer("unsigned int", 4, bits=3, shift=2)
    make.compound(Kind.STRUCT, "old", 4, [("field", narrow, 8, 0)])
    (field,) = Btf(make.build()).members("old")
    assert (field.bit_offset, field.bit_size) == (10, 3)


def test_more_than_65535_elements() -> None:
    """Linux 7 took eight bits more for the number of elements."""
    make = BtfWriter()
    make.enum("many", [(f"E{n}", n) for n in range(70_000)])
    make.enum("behind", [("LAST", 5)])
    types = Btf(make.build())
    assert types.enumerator("E69999") == Enumerator("E69999", 69_999, "many")
    assert types.enumerator("LAST") == Enumerator("LAST", 5, "behind")


# Modules


def module() -> tuple[Btf, bytes]:
    """vmlinux, and a module that has a struct with one of vmlinux in it."""
    vmlinux = everything()
    base = Btf(vmlinux.build())
    number = next(base.data.named("all", Kind.STRUCT))
    make = BtfWriter(first_type=len(base), first_string=len(base.data.text))
    make.compound(Kind.STRUCT, "own", 152, [("embedded", number, 64, 0)])
    make.function("deliver_own", number, [("all", make.add(Kind.PTR, last=number))])
    make.enum("", [("RED", 9)])
    return base, make.build()


def test_module() -> None:
    base, data = module()
    types = Btf(data, base=base)
    high = types.member("own.embedded.pair.high")
    assert high is not None
    assert high.offset == 8 + 44
    assert types.prototype("deliver_own") == "struct all deliver_own(struct all *all)"
    assert types.prototype("deliver") == base.prototype("deliver")
    assert types.enumerator("BLUE") == base.enumerator("BLUE")
    assert base.struct_size("own") is None


def test_module_without_its_base(tmp_path: Path) -> None:
    _, data = module()
    path = tmp_path / "own.ko"
    path.write_bytes(fake.elf(btf_data=data))
    with pytest.raises(ConfigError, match="continue those of its vmlinux"):
        load_btf(path)
    with pytest.raises(BtfError, match="continues the BTF of another file"):
        Btf(data)


def test_module_that_carries_what_it_needs_of_its_base(tmp_path: Path) -> None:
    """.BTF.base: names and sizes of what the module uses of vmlinux."""
    small = BtfWriter()
    number = small.compound(Kind.STRUCT, "all", 144, [])
    distilled = small.build()
    base = Btf(distilled)
    make = BtfWriter(first_type=len(base), first_string=len(base.data.text))
    make.compound(Kind.STRUCT, "own", 152, [("embedded", number, 64, 0)])
    path = tmp_path / "own.ko"
    path.write_bytes(fake.elf(btf_data=make.build(), more=[(".BTF.base", 1, distilled)]))
    types = load_btf(path)
    assert types is not None
    member = types.member("own.embedded")
    assert member is not None
    assert (member.offset, member.size, member.type) == (8, 144, "struct all")


# Newer formats


def test_sizes_of_kinds_in_the_file() -> None:
    assert Btf(everything().build(layout=LAYOUT)).struct_size("all") == 144


def test_kind_from_the_future_is_skipped_if_the_file_tells_its_size() -> None:
    make = BtfWriter()
    make.add(20, "novelty", count=2, words=(1, 2, 3, 4, 5))
    make.function("after", 0, [])
    layout = (*LAYOUT, (4, 8))
    types = Btf(make.build(layout=layout))
    assert types.prototype("after") == "void after(void)"
    assert types.struct_size("novelty") is None
    with pytest.raises(BtfError, match="unknown kind 20"):
        Btf(make.build(layout=LAYOUT))
    with pytest.raises(BtfError, match="unknown kind 20"):
        Btf(make.build())


# Damage and malice


def fails_soon(data: bytes, *questions: str) -> None:
    """Every question ends as a BtfError, or as no answer, in well under a second."""
    for question in questions:
        with cpu_below(0.5):
            types = Btf(data)
            with pytest.raises(BtfError) as said:
                eval(question, {"x": types})
            assert "\n" not in str(said.value)
            assert len(str(said.value)) < 200


def test_typedef_of_itself() -> None:
    make = BtfWriter()
    loop = make.reserve()
    make.put(loop, Kind.TYPEDEF, "loop", last=loop)
    make.compound(Kind.STRUCT, "outer", 4, [("x", loop, 0, 0)])
    make.function("f", loop, [("x", make.add(Kind.CONST, last=loop))])
    fails_soon(make.build(), "x.members('outer')", "x.member('outer.x')", "x.declaration('loop')")


def test_pointers_and_qualifiers_in_a_circle() -> None:
    make = BtfWriter()
    one, two = make.reserve(), make.reserve()
    make.put(one, Kind.PTR, last=two)
    make.put(two, Kind.CONST, last=one)
    make.compound(Kind.STRUCT, "outer", 8, [("x", one, 0, 0)])
    make.function("f", one, [])
    fails_soon(make.build(), "x.members('outer')", "x.declaration('outer')", "x.prototype('f')")


def test_array_of_itself() -> None:
    make = BtfWriter()
    loop = make.reserve()
    make.put(loop, Kind.ARRAY, words=(loop, loop, 0xFFFFFFFF))
    make.compound(Kind.STRUCT, "outer", 8, [("x", loop, 0, 0)])
    fails_soon(make.build(), "x.members('outer')", "x.declaration('outer')")


def test_struct_in_itself() -> None:
    make = BtfWriter()
    outer = make.reserve()
    make.compound(Kind.STRUCT, "outer", 8, [("", outer, 0, 0)], number=outer)
    fails_soon(make.build(), "x.members('outer')", "x.member('outer.x')")


def test_function_type_that_takes_itself() -> None:
    make = BtfWriter()
    loop = make.reserve()
    make.put(loop, Kind.FUNC_PROTO, count=1, words=(0, make.add(Kind.PTR, last=loop)))
    make.compound(Kind.STRUCT, "outer", 8, [("x", loop, 0, 0)])
    make.add(Kind.FUNC, "f", last=loop)
    fails_soon(make.build(), "x.members('outer')", "x.declaration('outer')", "x.prototype('f')")


def test_anonymous_structs_that_double_at_each_level() -> None:
    make = BtfWriter()
    inner = make.compound(Kind.STRUCT, "", 4, [("x", make.integer("int", 4), 0, 0)])
    for _ in range(40):
        inner = make.compound(Kind.STRUCT, "", 4, [("", inner, 0, 0), ("", inner, 0, 0)])
    make.compound(Kind.STRUCT, "bomb", 4, [("", inner, 0, 0)])
    fails_soon(make.build(), "x.members('bomb')", "x.member('bomb.y')", "x.declaration('bomb')")


def test_function_types_that_double_at_each_level() -> None:
    make = BtfWriter()
    inner = make.proto(0, [])
    for _ in range(40):
        pointer = make.add(Kind.PTR, last=inner)
        inner = make.proto(0, [("", pointer), ("", pointer)])
    make.add(Kind.FUNC, "bomb", last=inner)
    fails_soon(make.build(), "x.prototype('bomb')", "x.declaration('bomb')")


def test_long_name_used_often() -> None:
    make = BtfWriter()
    integer = make.integer("int", 4)
    make.compound(Kind.STRUCT, "outer", 4, [("n" * 100_000, integer, 0, 0)] * 50_000)
    fails_soon(make.build(), "x.members('outer')", "x.declaration('outer')")


def test_name_that_the_strings_repeat() -> None:
    make = everything()
    data = bytearray(make.build())
    data += b"\0name" * 10_000 + b"\0"
    struct.pack_into("<I", data, 20, len(data) - 24 - struct.unpack_from("<I", data, 16)[0])
    fails_soon(bytes(data), "x.struct_size('name')")


def test_references_to_what_is_not_there() -> None:
    make = BtfWriter()
    make.compound(Kind.STRUCT, "outer", 8, [("x", 99, 0, 0)])
    make.function("f", 0, [("x", 0xFFFFFFFF)])
    fails_soon(make.build(), "x.members('outer')", "x.declaration('outer')", "x.prototype('f')")


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 0x9FEB),  # another byte order, and then wrong in everything else
        (2, 2),  # version
        (4, 4),  # size of the header
        (4, 0xFFFFFFFF),
        (8, 0xFFFFFFF0),  # offset of the types
        (12, 0xFFFFFFF0),  # and their size
        (12, 5),
        (16, 0xFFFFFFF0),  # offset of the strings
        (20, 0xFFFFFFF0),
        (20, 3),  # the strings end within one
        (28, 0x04FFFFFF),  # a struct of 16 million members
        (28, 0x7F000000),  # an unknown kind
        (28, 0),  # void has no bytes
    ],
)
def test_damaged_in_one_place(at: int, value: int) -> None:
    data = bytearray(everything().build())
    if at in (0, 2):
        struct.pack_into("<H", data, at, value)
    else:
        struct.pack_into("<I", data, at, value)
    with cpu_below(0.2):
        with pytest.raises(BtfError) as said:
            Btf(bytes(data))
        assert "\n" not in str(said.value)


def test_cut_off_anywhere() -> None:
    data = everything().build()
    for end in range(len(data)):
        with pytest.raises(BtfError):
            Btf(data[:end])


def test_names_for_a_terminal() -> None:
    make = BtfWriter()
    make.compound(Kind.STRUCT, "s", 4, [("\x1b[31m\n", make.integer("int", 4), 0, 0)])
    types = Btf(make.build())
    assert "\x1b" not in types.declaration("s")
    assert types.members("s")[0].name == r"\x1b[31m\n"


def test_damage_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(fake.elf(btf_data=everything().build()[:100]))
    with pytest.raises(ConfigError, match=r"vmlinux: damaged \.BTF section: .*build it again"):
        load_btf(path)
    path.write_bytes(fake.elf())
    assert load_btf(path) is None


def test_lookups_do_not_decode_the_rest() -> None:
    """A hundred thousand types, about as many as a distribution's kernel has."""
    make = BtfWriter()
    integer = make.integer("int", 4)
    for n in range(25_000):
        make.function(f"function_{n}", integer, [("x", integer)])
        make.compound(Kind.STRUCT, f"struct_{n}", 4, [(f"member_{n % 100}", integer, 0, 0)])
        make.enum(f"enum_{n}", [(f"VALUE_{n}", n)])
    data = make.build()
    # Decoding all of it takes half a second and more.
    with cpu_below(0.25):
        types = Btf(data)
        for n in range(0, 25_000, 5_000):
            assert types.prototype(f"function_{n}") == f"int function_{n}(int x)"
            assert types.member(f"struct_{n}.member_{n % 100}") is not None
            assert types.enumerator(f"VALUE_{n}") == Enumerator(f"VALUE_{n}", n, f"enum_{n}")
            assert types.enumerator(f"VALUE_{n}_") is None
