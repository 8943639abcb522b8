# SPDX-License-Identifier: GPL-2.0-only
"""Questions about types, answered from DWARF that compilers wrote."""

from __future__ import annotations

import contextlib
import platform
import random
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.image.file.elf import Elf
from ktest_ntcopy.image.types.dwarf import Dwarf, load_dwarf
from ktest_ntcopy.image.types.typeinfo import Enumerator, Member, TypeInfo, TypeInfoError
from tests.unit import fake_kernel as fake
from tests.unit.effort import cpu_below

SOURCE = """
enum colour { RED, GREEN = 7, BLUE = -3 };
enum { WITHOUT_NAME = 5, HUGE_ONE = 0xfffffffffULL };
union both { int a; long long b; };
struct later;
typedef unsigned int u32;
typedef int (*handler_t)(struct later *, const char *, ...);
struct inner { char c; double d; };
struct outer {
	u32 first;
	unsigned int bit_a : 3, bit_b : 7;
	long long wide : 33;
	struct { short s; union both u; } named;
	struct { int direct; union { char anon_c; struct inner anon_s; }; };
	const struct inner *const ptr;
	struct inner arr[2][3];
	handler_t handle;
	int (*ops[4])(struct outer *self, void *);
	char (*rows)[16];
	volatile u32 busy;
	enum colour colour;
	struct outer *next;
	int none[0];
	int flexible[];
};
typedef struct { int hidden; } opaque_t;
struct outer global_outer;
opaque_t global_opaque;
__attribute__((noinline)) int deliver(struct outer *o, const char *name, int len, handler_t cb)
{ return o->first + len + !!cb + name[0] + BLUE + global_outer.colour
	+ global_opaque.hidden + WITHOUT_NAME + (HUGE_ONE > len); }
void report(const char *format, ...) { (void)format; }
int abc(void) { return 1; }
extern int elsewhere(const char *, union both *);
void _start(void) { deliver(&global_outer, "", abc(), 0); elsewhere("", 0); }
"""
#: In a unit of its own, with names that end others' names: linkers may share their bytes.
OTHER = """
struct ter { int x; };
struct outer;
enum after { AFTER_ALL = 70000 };
enum after keep;
union both;
int elsewhere(const char *deliver_name, union both *both)
{ struct ter t = { keep }; return t.x + !both + !deliver_name; }
"""
BUILDS = [
    *("gcc -gdwarf-2 -gstrict-dwarf", "gcc -gdwarf-3 -gstrict-dwarf", "gcc -gdwarf-4"),
    *("gcc -gdwarf-5", "gcc -gdwarf-5 -gz=zlib", "gcc -gdwarf-5 -flto"),
    *("clang -gdwarf-4", "clang -gdwarf-5", "clang -gdwarf-5 -gz=zlib"),
    *("gcc -gdwarf-5 -m32", "gcc -gdwarf-2 -gstrict-dwarf -m32"),
    *("aarch64-linux-gnu-gcc -gdwarf-5", "aarch64-linux-gnu-gcc -gdwarf-5 -mbig-endian"),
]


def compiled(folder: Path, build: str) -> Path:
    """A program of both units, linked without any library."""
    compiler, *options = build.split()
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    if "-m32" in options and platform.machine() != "x86_64":
        pytest.skip("the compiler of this machine has no 32-bit twin")
    for name, text in (("main.c", SOURCE), ("other.c", OTHER)):
        (folder / name).write_text(text)
    out = folder / "program"
    link = ["-nostdlib", "-static", "-fno-pic", "-no-pie", "-O1", "-ffreestanding", "-w"]
    command = [compiler, *options, *link, "-o", out.name, "main.c", "other.c"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module", params=BUILDS)
def types(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dwarf]:
    with Elf(compiled(tmp_path_factory.mktemp("dwarf"), request.param)) as elf:
        found = load_dwarf(elf)
        assert found is not None
        yield found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("dwarf"), "gcc -gdwarf-5")


def spelt(text: object) -> str:
    """Compilers differ in what they call a type: "long long int" or "long long"."""
    return re.sub(r"\b(long long|short) int\b", r"\1", " ".join(str(text).split()))


def test_is_type_info(types: Dwarf) -> None:
    answers: TypeInfo = types
    assert answers.source == "DWARF"
    assert list(answers.names("compound")) == []


def test_members(types: Dwarf) -> None:
    wide = types._elf.bits == 64
    found = {m.name: (spelt(m.type), m.bit_offset) for m in types.members("outer")}
    assert list(found) == [
        *("first", "bit_a", "bit_b", "wide", "named", "direct", "anon_c", "anon_s", "ptr", "arr"),
        *("handle", "ops", "rows", "busy", "colour", "next", "none", "flexible"),
    ]
    assert found["first"] == ("u32", 0)
    assert found["ptr"][0] == "const struct inner *const"
    assert found["arr"][0] == "struct inner [2][3]"
    assert found["handle"][0] == "handler_t"
    assert found["ops"][0] == "int (*[4])(struct outer *, void *)"
    assert found["rows"][0] == "char (*)[16]"
    assert found["next"][0] == "struct outer *"
    assert found["none"] == ("int [0]", found["flexible"][1])
    bits = [types.member(f"outer.{name}") for name in ("bit_a", "bit_b", "wide")]
    assert [m and m.bit_size for m in bits] == [3, 7, 33]
    if types._elf.little_endian:
        # i386 aligns a long long to four bytes, so that this one shares them.
        assert [m and m.bit_offset for m in bits] == [32, 35, 64 if wide else 42]
    inner = types.member("outer.anon_s.d")
    assert inner is not None
    assert (inner.type, inner.size) == ("double", 8)
    if wide:
        assert types.struct_size("outer") == 224
        assert inner == Member("d", "double", 384, 64)


def test_sizes(types: Dwarf) -> None:
    assert types.struct_size("ter") == 4
    assert types.struct_size("both") == 8
    for absent in ("er", "later", "colour", "deliver", "u32", "", "no_such"):
        assert types.struct_size(absent) is None
        assert types.members(absent) == ()
        assert types.member(f"{absent}.x") is None


def test_enumerators(types: Dwarf) -> None:
    assert types.enumerator("GREEN") == Enumerator("GREEN", 7, "colour")
    assert types.enumerator("RED") == Enumerator("RED", 0, "colour")
    assert types.enumerator("BLUE") == Enumerator("BLUE", -3, "colour")
    assert types.enumerator("HUGE_ONE") == Enumerator("HUGE_ONE", 0xFFFFFFFFF, "")
    assert types.enumerator("AFTER_ALL") == Enumerator("AFTER_ALL", 70_000, "after")
    for absent in ("LUE", "colour", "ED", "first", "", "NO_SUCH"):
        assert types.enumerator(absent) is None


def test_prototypes(types: Dwarf) -> None:
    whole = "int deliver(struct outer *o, const char *name, int len, handler_t cb)"
    assert types.prototype("deliver") == whole
    assert types.prototype("report") == "void report(const char *format, ...)"
    assert types.prototype("abc") == "int abc(void)"
    # Declared in one unit without, defined in another with the names of its parameters.
    assert (
        types.prototype("elsewhere") == "int elsewhere(const char *deliver_name, union both *both)"
    )
    for absent in ("liver", "outer", "", "no_such"):
        assert types.prototype(absent) is None


def test_declarations(types: Dwarf) -> None:
    shown = spelt(types.declaration("outer"))
    for part in ("union both u;", "} named;", "struct outer *next;", "int flexible[0];"):
        assert part in shown
    assert types.declaration("struct outer") == types.declaration("outer")
    assert types.declaration("union outer") == ""
    assert spelt(types.declaration("colour")).startswith("enum colour { RED = 0, GREEN = 7, BLUE")
    assert types.declaration("BLUE") == types.declaration("enum colour")
    assert spelt(types.declaration("opaque_t")).startswith("typedef struct { int hidden; /* 0 4 */")
    assert spelt(types.declaration("global_outer")).startswith("struct outer global_outer;")
    assert types.declaration("deliver").startswith("int deliver(struct outer *o,")
    assert types.declaration("no_such") == ""


# What cannot be read


def test_nothing_to_read(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(fake.elf())
    with Elf(path) as elf:
        assert load_dwarf(elf) is None


def test_relocatable_file(program: Path) -> None:
    out = program.with_name("other.o")
    subprocess.run(["gcc", "-g", "-c", "-o", out, program.with_name("other.c")], check=True)
    with Elf(out) as elf:
        assert load_dwarf(elf) is None


def test_format_of_64_bits(tmp_path: Path) -> None:
    with (
        Elf(compiled(tmp_path, "gcc -gdwarf-5 -gdwarf64")) as elf,
        pytest.raises(TypeInfoError, match="64-bit format"),
    ):
        load_dwarf(elf)


def test_search_ends_in_time(program: Path) -> None:
    with Elf(program) as elf:
        types = load_dwarf(elf, seconds=0.0)
        assert types is not None
        with pytest.raises(TypeInfoError, match="no answer about outer in 0 s"):
            types.struct_size("outer")


def test_progress(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    told: list[tuple[str, float]] = []
    with Elf(program) as elf:
        types = load_dwarf(elf, seconds=1000.0, progress=lambda *said: told.append(said))
        assert types is not None
        types.struct_size("outer")
    assert told
    assert all(name == "outer" and seconds > 0 for name, seconds in told)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """What goes wrong inside is told in one line."""
    said = ""
    try:
        yield
    except (TypeInfoError, ConfigError) as err:
        said = str(err)
    assert "\n" not in said
    assert len(said) < 400


def ask(path: Path) -> None:
    with Elf(path) as elf:
        types = load_dwarf(elf, seconds=5.0)
        if types is None:
            return
        for question in (
            lambda: types.members("outer"),
            lambda: types.enumerator("BLUE"),
            lambda: types.prototype("deliver"),
            lambda: types.declaration("global_outer"),
        ):
            with one_line():
                question()


@pytest.mark.parametrize("section", ["info", "abbrev", "str"])
def test_damaged(program: Path, tmp_path: Path, section: str) -> None:
    """Damage in a section ends as one line, soon, and never as another exception."""
    data = program.read_bytes()
    with Elf(program) as elf:
        place = elf.section(f".debug_{section}")
        assert place is not None
    path = tmp_path / "damaged"
    for seed in range(25):
        chance = random.Random(seed)
        raw = bytearray(data)
        for _ in range(chance.randint(1, 30)):
            raw[place.offset + chance.randrange(place.size)] = chance.choice((0, 1, 127, 128, 255))
        path.write_bytes(bytes(raw))
        with cpu_below(2.0), one_line():
            ask(path)


@pytest.mark.parametrize(
    ("at", "value"), [(0, 0xFFFFFFFF), (0, 0x7FFFFFFF), (0, 3), (0, 0), (4, 9), (4, 0)]
)
def test_damaged_unit(program: Path, tmp_path: Path, at: int, value: int) -> None:
    raw = bytearray(program.read_bytes())
    with Elf(program) as elf:
        place = elf.section(".debug_info")
        assert place is not None
    struct.pack_into("<I" if at == 0 else "<H", raw, place.offset + at, value)
    path = tmp_path / "damaged"
    path.write_bytes(bytes(raw))
    with Elf(path) as elf, pytest.raises(TypeInfoError) as said:
        load_dwarf(elf)
    assert "\n" not in str(said.value)
