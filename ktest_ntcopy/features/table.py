# SPDX-License-Identifier: GPL-2.0-only
"""Take values out of TOML tables, and say in one line what is wrong with one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ktest_ntcopy.errors import ConfigError

_T = TypeVar("_T")
_NAMES = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}
_REQUIRED: Any = object()


class Table:
    """One TOML table and where it is, e.g. ``msg_ntcopy.toml: program[1].fixture[2]``.

    Every key has to be taken: :meth:`end` refuses what is left, so that a typing
    error cannot silently switch something off.  All methods raise ConfigError.
    """

    def __init__(self, data: Mapping[str, Any], file: str, place: str = "") -> None:
        self._data = data
        self._file = file
        self._place = place
        self._taken: list[str] = []

    def fail(self, text: str) -> NoReturn:
        """Refuse this table."""
        raise ConfigError(": ".join(filter(None, (self._file, self._place, text))))

    def _at(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key

    @property
    def file(self) -> str:
        """The file it is in."""
        return self._file

    def has(self, key: str) -> bool:
        """True if the key is there, whatever its value."""
        return key in self._data

    def take(self, key: str, kind: type[_T], default: _T = _REQUIRED) -> _T:
        """The value of a key, which must be of that type."""
        self._taken.append(key)
        if key not in self._data:
            if default is _REQUIRED:
                self.fail(f"key '{key}' is missing")
            return default
        value = self._data[key]
        # In Python a truth value is an integer as well.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(f"'{key}' is not {_NAMES[kind]}")
        return value

    def text(self, key: str, default: str = _REQUIRED) -> str:
        """A string; empty only if that is the default."""
        value = self.take(key, str, default)
        if not value.strip() and default is _REQUIRED:
            self.fail(f"'{key}' is empty")
        return value

    def name(self, key: str, pattern: str) -> str:
        """A string that matches a pattern from end to end."""
        value = self.text(key)
        if not re.fullmatch(pattern, value):
            self.fail(f"'{key}' is {value!r}, which does not look like {pattern}")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of several strings."""
        value = self.text(key)
        if value not in choices:
            self.fail(f"'{key}' is {value!r}, expected {', '.join(choices)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty if the key is missing."""
        values = self.take(key, list, [])
        if not all(isinstance(v, str) and v for v in values):
            self.fail(f"'{key}' is not a list of strings")
        return tuple(values)

    def table(self, key: str, default: Mapping[str, Any] = _REQUIRED) -> Table:
        """A table inside this one."""
        return Table(self.take(key, dict, default), self._file, self._at(key))

    def tables(self, key: str) -> Iterator[Table]:
        """An array of tables, none if the key is missing; counted from 1 in messages."""
        values = self.take(key, list, [])
        for number, value in enumerate(values, 1):
            if not isinstance(value, dict):
                self.fail(f"'{key}' is not an array of tables")
            yield Table(value, self._file, f"{self._at(key)}[{number}]")

    def items(self, pattern: str) -> Iterator[tuple[str, Any]]:
        """All keys and values of a table whose keys are names."""
        for key, value in self._data.items():
            if not re.fullmatch(pattern, key):
                self.fail(f"key {key!r} does not look like {pattern}")
            self._taken.append(key)
            yield key, value

    def raw(self) -> dict[str, Any]:
        """The table as it is."""
        self._taken += self._data
        return dict(self._data)

    def end(self) -> None:
        """Refuse keys that nobody took."""
        for key in self._data:
            if key not in self._taken:
                import difflib

                close = difflib.get_close_matches(key, self._taken, n=1)
                self.fail(
                    f"unknown key '{key}'" + (f", did you mean '{close[0]}'?" if close else "")
                )

    def unique(self, names: tuple[str, ...], what: str) -> None:
        """Refuse a name that is there twice."""
        for name in names:
            if names.count(name) > 1:
                self.fail(f"two {what} are named '{name}'")


def read_table(path: Path) -> tuple[Table, str]:
    """A TOML file and its text.  Raises ConfigError naming the file and the fault."""
    import tomllib  # takes a while to import, and the quick way to the traces does without

    try:
        text = path.read_text(encoding="utf-8")
        return Table(tomllib.loads(text), str(path)), text
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read: {err.strerror or err}") from err
    except ValueError as err:  # no TOML, or no UTF-8
        raise ConfigError(f"{path}: {str(err).splitlines()[0]}") from err
