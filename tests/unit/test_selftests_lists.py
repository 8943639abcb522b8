# SPDX-License-Identifier: GPL-2.0-only
"""Names entered into Makefile, .gitignore and config: in place, once, in either style."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktest_ntcopy.errors import ConfigError
from ktest_ntcopy.kernel.kbuild_lists import add_ignored, add_options, add_programs

ONE_PER_LINE = """\
# Makefile for tests
CFLAGS += -Wall
TEST_PROGS := a.sh \\
\t      b.sh
TEST_GEN_PROGS = alpha beta
TEST_GEN_FILES += helper
TEST_GEN_PROGS += gamma
TEST_PROGS += c.sh

include ../lib.mk

$(OUTPUT)/beta: LDLIBS += -lcap
$(OUTPUT)/alpha: CFLAGS += -I../x

include bpf.mk
"""

SORTED = """\
CFLAGS += -Wall

TEST_GEN_FILES := \\
\thelper \\
\tzebra \\
# end of TEST_GEN_FILES

TEST_GEN_PROGS := \\
\talpha \\
\tnext \\
# end of TEST_GEN_PROGS

TEST_GEN_PROGS += $(YNL_GEN_PROGS)

include ../lib.mk

$(OUTPUT)/alpha: LDLIBS += -lcap
$(OUTPUT)/next: LDLIBS += -lpthread
"""


def test_one_per_line_style_gets_a_line_behind_the_last() -> None:
    text = add_programs(ONE_PER_LINE, {"msg": ("-lpthread",)})
    assert "TEST_GEN_PROGS += gamma\nTEST_GEN_PROGS += msg\nTEST_PROGS += c.sh\n" in text
    assert (
        "$(OUTPUT)/alpha: CFLAGS += -I../x\n$(OUTPUT)/msg: LDLIBS += -lpthread\n\ninclude bpf.mk\n"
        in text
    )
    assert len(text.splitlines()) == len(ONE_PER_LINE.splitlines()) + 2


def test_sorted_style_gets_an_entry_in_place() -> None:
    text = add_programs(SORTED, {"msg": ("-lpthread",), "zz": ()})
    assert "\talpha \\\n\tmsg \\\n\tnext \\\n\tzz \\\n# end of TEST_GEN_PROGS\n" in text
    assert "-lcap\n$(OUTPUT)/msg: LDLIBS += -lpthread\n$(OUTPUT)/next" in text
    assert "\thelper \\\n\tzebra \\\n# end of TEST_GEN_FILES\n" in text


@pytest.mark.parametrize("makefile", [ONE_PER_LINE, SORTED])
def test_second_pass_changes_nothing(makefile: str) -> None:
    programs = {"msg": ("-lpthread",), "alpha": (), "zz": ("-lm", "-lcap")}
    once = add_programs(makefile, programs)
    assert add_programs(once, programs) == once
    assert once.count("alpha") == makefile.count("alpha")


def test_changed_libraries_replace_the_old_ones() -> None:
    once = add_programs(ONE_PER_LINE, {"msg": ("-lpthread",)})
    again = add_programs(once, {"msg": ("-lm",)})
    assert "$(OUTPUT)/msg: LDLIBS += -lm\n" in again
    assert "-lpthread" not in again


def test_a_library_that_was_added_by_hand_stays() -> None:
    once = add_programs(ONE_PER_LINE, {"msg": ("-lpthread",)})
    mine = once.replace("LDLIBS += -lpthread", "LDLIBS += -lpthread -lmine")
    assert add_programs(mine, {"msg": ("-lpthread",)}) == mine


def test_odd_characters_in_lines_of_others_stay() -> None:
    odd = "a\x0cb\u2028c\n"
    assert add_ignored(odd, ["msg"]) == f"{odd}msg\n"
    assert add_options(f"# {odd}", {"CONFIG_C": "y"}) == f"# {odd}CONFIG_C=y\n"


def test_a_name_inside_another_is_not_taken_for_it() -> None:
    text = add_programs(ONE_PER_LINE, {"gam": ()})
    assert "TEST_GEN_PROGS += gam\n" in text


def test_directory_without_programs_gets_its_first() -> None:
    text = add_programs("TEST_PROGS := a.sh\ninclude ../../lib.mk\n", {"msg": ("-lm",)})
    assert text == (
        "TEST_PROGS := a.sh\nTEST_GEN_PROGS := msg\n\ninclude ../../lib.mk\n"
        "\n$(OUTPUT)/msg: LDLIBS += -lm\n"
    )
    assert add_programs(text, {"msg": ("-lm",)}) == text


def test_makefile_without_lib_mk_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lib\.mk"):
        add_programs("all:\n", {"msg": ()})


def test_gitignore_keeps_its_order() -> None:
    text = "# SPDX-License-Identifier: GPL-2.0-only\nlog.txt\nmsg_oob\ntls\n"
    assert add_ignored(text, ["zz", "msg_ntcopy"]) == (
        "# SPDX-License-Identifier: GPL-2.0-only\nlog.txt\nmsg_ntcopy\nmsg_oob\ntls\nzz\n"
    )


def test_config_keeps_values_and_order() -> None:
    text = "CONFIG_B=m\nCONFIG_D=y\n"
    assert add_options(text, {"CONFIG_C": "y", "CONFIG_B": "y", "CONFIG_E": "8"}) == (
        "CONFIG_B=m\nCONFIG_C=y\nCONFIG_D=y\nCONFIG_E=8\n"
    )


def test_config_without_order_is_left_alone_and_appended_to() -> None:
    text = "CONFIG_D=y\nCONFIG_B=m\n"
    assert add_options(text, {"CONFIG_C": "y", "CONFIG_A": "y"}) == (
        "CONFIG_D=y\nCONFIG_B=m\nCONFIG_A=y\nCONFIG_C=y\n"
    )


@given(
    st.sets(st.from_regex(r"[a-z_0-9]{1,8}", fullmatch=True)),
    st.sets(st.from_regex(r"[a-z_0-9]{1,8}", fullmatch=True)),
)
def test_gitignore_is_sorted_and_complete_for_any_names(old: set[str], new: set[str]) -> None:
    text = "\n".join(sorted(old)) + "\n" if old else ""
    result = add_ignored(text, new).split()
    assert result == sorted(old | new)
    assert add_ignored(add_ignored(text, new), new) == add_ignored(text, new)
