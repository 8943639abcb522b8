# SPDX-License-Identifier: GPL-2.0-only
"""Claims of the documentation, and the numbers of the features, are found or missed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.claims import CLAIMS, Claim, claim, section, stale
from conformance.features import constant, feature

TEXT = """
=====
Title
=====

First
=====

It counts from
zero.

Deeper
------

More   words.

1.3 With numbers (also X)
~~~~~~~~~~~~~~~~~~~~~~~~~~

::

	code();
	=====

The end.
"""


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Title", ""),
        ("First", "It counts from zero."),
        ("Deeper", "More words."),
        ("1.3 With numbers (also X)", ":: code(); ===== The end."),
        ("Fir", None),
        ("Absent", None),
    ],
)
def test_sections_end_at_the_next_heading(heading: str, expected: str | None) -> None:
    assert section(TEXT, heading) == expected


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (Claim("x.rst", "First", ("counts from zero",), "t"), ""),
        (Claim("x.rst", "First", ("counts", "from one"), "t"), "does not say 'from one'"),
        (Claim("x.rst", "Deeper", ("counts",), "t"), "does not say 'counts'"),
        (Claim("x.rst", "Second", ("counts",), "t"), "has no section 'Second'"),
    ],
)
def test_what_a_document_says_no_more_is_told(made: Claim, why: str) -> None:
    found = stale(made, TEXT)
    assert (why in found) if why else not found


@given(st.text(), st.text())
def test_any_text_can_be_looked_through(text: str, heading: str) -> None:
    found = section(text, heading)
    assert found is None or found == " ".join(found.split())


def test_claims_are_noted_in_the_order_they_are_made(pytestconfig: pytest.Config) -> None:
    pytestconfig.addinivalue_line("markers", "documented: as conformance/conftest.py has it")
    before = list(CLAIMS)
    try:

        @claim("x.rst", "First", "zero")
        def check() -> None:
            """Holds it to that."""

        assert CLAIMS[len(before) :] == [Claim("x.rst", "First", ("zero",), "check")]
        assert [mark.name for mark in check.pytestmark] == ["documented"]
    finally:
        CLAIMS[:] = before


def test_numbers_come_from_the_feature_files() -> None:
    flag = constant("MSG_NTCOPY")
    assert flag in [define.value for define in feature("msg_ntcopy").defines]
    assert constant("SOF_TIMESTAMPING_SOFTWARE") == 16
    for name in ("MSG_ABSENT", "SOCK_TIMESTAMPING_ANY"):  # a name without a number
        with pytest.raises(LookupError, match=name):
            constant(name)
    with pytest.raises(LookupError, match="absent"):
        feature("absent")
