# SPDX-License-Identifier: GPL-2.0-only
"""Frozen dataclasses that are quick to declare.

For each class ``dataclasses`` compiles half a dozen functions, and it imports ``inspect``:
a fifth of what ``ktest-ntcopy check`` took.  So the classes which that needs are records.  To
type checkers these are dataclasses, and they behave like frozen ones, with the same methods
for all of them.  There is no inheritance of fields and no ``__post_init__``.
"""

from __future__ import annotations

from operator import itemgetter

__all__ = ["field", "record", "replace"]

TYPE_CHECKING = False  # type checkers know the name; importing it takes time as well
if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as record
    from dataclasses import field, replace
else:

    class _Field:
        def __init__(self, default: object, compare: bool) -> None:
            self.default, self.compare = default, compare

    def field(*, default: object, compare: bool = True) -> _Field:
        """A field with a default that may be left out of comparisons."""
        return _Field(default, compare)

    def replace(one: object, **changes: object) -> object:
        """A copy with some fields changed."""
        fields = type(one).__match_args__
        return type(one)(**{n: getattr(one, n) for n in fields} | changes)

    def record(*, frozen: bool, kw_only: bool = False) -> Callable[[type], type]:
        """Make a class of annotated fields a record; the arguments are those of dataclass."""
        assert frozen

        def make(cls: type) -> type:
            _make(cls, kw_only)
            return cls

        return make

    def _make(cls: type, kw_only: bool) -> None:
        names = tuple(cls.__annotations__)
        compared = []
        for name in names:
            own = cls.__dict__.get(name)
            if isinstance(own, _Field):
                setattr(cls, name, own.default)
            if not isinstance(own, _Field) or own.compare:
                compared.append(name)
        known = frozenset(names)
        defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
        key = itemgetter(*compared)

        def __init__(self: object, *args: object, **given: object) -> None:
            values = self.__dict__
            values.update(defaults)
            if args:
                if (
                    kw_only
                    or len(args) > len(names)
                    or not given.keys().isdisjoint(names[: len(args)])
                ):
                    raise TypeError(f"{cls.__name__}: too many arguments, or one given twice")
                values.update(zip(names, args, strict=False))
            values.update(given)
            if len(values) != len(names) or not known.issuperset(values):
                odd = ", ".join(sorted(known ^ values.keys()))
                raise TypeError(f"{cls.__name__}: missing or unknown: {odd}")

        def __eq__(self: object, other: object) -> bool:
            if other.__class__ is not cls:
                return NotImplemented
            return key(self.__dict__) == key(other.__dict__)

        def __hash__(self: object) -> int:
            return hash(key(self.__dict__))

        def __repr__(self: object) -> str:
            values = ", ".join(f"{name}={self.__dict__[name]!r}" for name in names)
            return f"{cls.__qualname__}({values})"

        def __setattr__(self: object, name: str, _: object) -> None:
            raise AttributeError(f"{cls.__name__} is frozen: {name}")

        def __delattr__(self: object, name: str) -> None:
            raise AttributeError(f"{cls.__name__} is frozen: {name}")

        for method in (__init__, __eq__, __hash__, __repr__, __setattr__, __delattr__):
            setattr(cls, method.__name__, method)
        cls.__match_args__ = names
