# SPDX-License-Identifier: GPL-2.0-only
"""Records behave like the frozen dataclasses that type checkers take them for."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest

from ktest_ntcopy.record import field, record, replace


@record(frozen=True)
class Place:
    """Somewhere."""

    name: str
    at: int = 0
    note: str = field(default="", compare=False)

    @cached_property
    def twice(self) -> int:
        return 2 * self.at


@dataclass(frozen=True)
class _Dataclass:
    name: str
    at: int = 0


@record(frozen=True, kw_only=True)
class Named:
    """Takes no positions."""

    why: str = ""
    name: str


def test_takes_positions_names_and_defaults() -> None:
    place = Place("here", at=3)
    assert (place.name, place.at, place.note, place.twice) == ("here", 3, "", 6)
    assert Named(name="a") == Named(why="", name="a")
    assert repr(place) == "Place(name='here', at=3, note='')"


def test_is_equal_and_hashed_by_what_is_compared() -> None:
    assert Place("a", 1, "x") == Place("a", 1, "y")
    assert len({Place("a", 1, "x"), Place("a", 1, "y"), Place("a", 2)}) == 2
    other: Any = _Dataclass("a", 1)
    assert Place("a", 1) != other
    assert Place("a", 1).twice == 2  # what is remembered is not compared
    assert Place("a", 1) == Place("a", 1)


def test_cannot_be_changed_but_copied() -> None:
    place = Place("a")
    changing: Any = place
    with pytest.raises(AttributeError):
        changing.at = 5
    with pytest.raises(AttributeError):
        del changing.at
    assert replace(place, at=5) == Place("a", 5)
    assert place.at == 0
    assert pickle.loads(pickle.dumps(place)) == copy.deepcopy(place) == place


@pytest.mark.parametrize(
    ("positions", "names"),
    [((), {}), (("a", 1, "", 2), {}), (("a",), {"name": "b"}), (("a",), {"odd": 1})],
)
def test_refuses_other_arguments(positions: tuple[Any, ...], names: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Place(*positions, **names)
    with pytest.raises(TypeError):
        Named(*positions, **names)
