"""JSON of dataclasses and pydantic models, and back by their annotations.

Reading is strict: a missing field, an unknown field or a value of another type raises `Misfit`. So a class that was
changed without an upcaster is noticed, and no stored value is dropped.
"""

from __future__ import annotations

import base64
import enum
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from headwater.sourcing.errors import DeciderInvalid

#: Any: a value of a user's class, or JSON.
Read = Callable[[Any], Any]


class Misfit(ValueError):
    """A JSON value does not fit a type."""


def is_model(kind: object) -> bool:
    """Whether a class is a dataclass or a pydantic model."""
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "model_validate"))


class ModelField(NamedTuple):
    """A field that JSON of a class may have; its type as it is written in Python."""

    name: str
    type: str
    required: bool


# Any: a dataclass or a pydantic model.
def model_fields(kind: Any) -> list[ModelField]:
    """The fields that JSON of a class may have.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Withdraw:
    ...     amount: Decimal
    ...     note: str | None = None
    >>> model_fields(Withdraw)
    [ModelField(name='amount', type='Decimal', required=True), ModelField(name='note', type='str | None', required=False)]
    """
    if hasattr(kind, "model_fields"):
        return [
            ModelField(name, _type_text(field.annotation), field.is_required())
            for name, field in kind.model_fields.items()
        ]
    hints = typing.get_type_hints(kind)
    return [
        ModelField(
            field.name,
            _type_text(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
        if field.init
    ]


# Any: an annotation.
def _type_text(kind: Any) -> str:
    """A type as it is written, without modules."""
    is_plain = isinstance(kind, type) and typing.get_origin(kind) is None
    return kind.__name__ if is_plain else re.sub(r"[\w.<>]+\.(?=\w)", "", str(kind))


def dump(value: Any) -> bytes:
    """A value as JSON."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=dump)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value / timedelta(microseconds=1)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")


@cache
def reader(kind: Any) -> Read:
    """A function that makes a value of a type from JSON; raises `DeciderInvalid` for types that have no JSON form."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, typing.NewType):
        return reader(kind.__supertype__)
    if origin is typing.Annotated:
        return reader(arguments[0])
    if origin is typing.Literal:
        return lambda value: value if value in arguments else _misfit(value, f"one of {arguments}")
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin in (list, Sequence) or kind in (list, Sequence):
        return _collection(list, arguments)
    if origin in (set, frozenset) or kind in (set, frozenset):
        return _collection(origin or kind, arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin in (dict, Mapping) or kind in (dict, Mapping):
        return _mapping(arguments or (str, Any))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _converted(kind, kind.__name__)
    if isinstance(kind, type) and hasattr(kind, "model_validate"):
        return _pydantic(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass(kind)
    raise DeciderInvalid(what=f"type {getattr(kind, '__name__', kind)}", why="has no JSON form that can be read back")


def _misfit(value: Any, expected: str) -> Any:
    raise Misfit(f"{str(value)[:80]!r} is not {expected}")


def _of(*kinds: type) -> Read:
    name = kinds[0].__name__
    return lambda value: value if type(value) in kinds else _misfit(value, name)


def _converted(convert: Callable[[Any], Any], name: str) -> Read:
    def read(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise Misfit(f"{str(value)[:80]!r} is not {name}") from error

    return read


_SIMPLE: dict[Any, Read] = {
    Any: lambda value: value,
    object: lambda value: value,
    None: lambda value: value if value is None else _misfit(value, "null"),
    type(None): lambda value: value if value is None else _misfit(value, "null"),
    bool: _of(bool),
    int: _of(int),
    float: lambda value: float(value) if type(value) in (float, int) else _misfit(value, "float"),
    str: _of(str),
    bytes: _converted(lambda value: base64.b64decode(value, validate=True), "base64"),
    datetime: _converted(datetime.fromisoformat, "a datetime"),
    date: _converted(date.fromisoformat, "a date"),
    time: _converted(time.fromisoformat, "a time"),
    timedelta: _converted(lambda value: timedelta(microseconds=value), "a number of microseconds"),
    Decimal: _converted(
        lambda value: Decimal(value if isinstance(value, str) else _misfit(value, "text")), "a decimal"
    ),
    UUID: _converted(UUID, "a UUID"),
}


def _union(arguments: tuple[Any, ...]) -> Read:
    if sum(is_model(kind) for kind in arguments) > 1:
        names = ", ".join(getattr(kind, "__name__", str(kind)) for kind in arguments)
        raise DeciderInvalid(what=f"a field of type {names}", why="could be read back as the wrong class")
    # Types that accept only their own JSON go first, so that text is not read as a date.
    exact = (type(None), bool, int, str, float)
    readers = [reader(kind) for kind in sorted(arguments, key=lambda kind: kind not in exact)]

    def read(value: Any) -> Any:
        for each in readers:
            try:
                return each(value)
            except Misfit:
                continue
        return _misfit(value, " or ".join(getattr(kind, "__name__", str(kind)) for kind in arguments))

    return read


def _collection(make: Any, arguments: tuple[Any, ...]) -> Read:
    each = reader(arguments[0]) if arguments else _SIMPLE[Any]
    return lambda value: make(map(each, value)) if isinstance(value, list) else _misfit(value, "a list")


def _tuple(arguments: tuple[Any, ...]) -> Read:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _collection(tuple, arguments[:1])
    readers = [reader(kind) for kind in arguments]

    def read(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(readers):
            return _misfit(value, f"a list of {len(readers)}")
        return tuple(each(item) for each, item in zip(readers, value, strict=True))

    return read


def _mapping(arguments: tuple[Any, ...]) -> Read:
    key, each = arguments[0], reader(arguments[1])
    if key is str:
        read_key: Read = _SIMPLE[str]
    elif key is int:
        read_key = _converted(int, "int")
    else:
        read_key = reader(key)

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return _misfit(value, "an object")
        return {read_key(name): each(item) for name, item in value.items()}

    return read


def _pydantic(kind: Any) -> Read:
    known = {field.alias or name for name, field in kind.model_fields.items()} | set(kind.model_fields)

    def read(value: Any) -> Any:
        if isinstance(value, dict) and (unknown := value.keys() - known):
            raise Misfit(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise Misfit(str(error)) from error

    return read


def _dataclass(kind: type) -> Read:
    hints = typing.get_type_hints(kind)
    known = [field for field in fields(kind) if field.init]
    readers = {field.name: reader(hints[field.name]) for field in known}
    required = [field.name for field in known if field.default is MISSING and field.default_factory is MISSING]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            return _misfit(value, kind.__name__)
        try:
            given = {name: readers[name](item) for name, item in value.items()}
        except KeyError as error:
            raise Misfit(f"{kind.__name__} has no field {error.args[0]!r}") from None
        for name in required:
            if name not in given:
                raise Misfit(f"{kind.__name__} needs the field {name!r}")
        return kind(**given)

    return read
