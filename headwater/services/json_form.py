"""The JSON form of arguments and answers of services, for HTTP, the remote services and the command line.

A dataclass is an object of its fields and its public properties, a named tuple one of its fields, bytes are text where
they are UTF-8 and `{"base64": …}` otherwise. An Arrow schema is `{"columns": …}`; it may also be given as text, or as an
object of names and types. The same type annotation writes a value, reads it back, and describes it in
the OpenAPI document.
"""

from __future__ import annotations

import base64
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.schema import parse_schema, schema_from_json, schema_to_json

INTEGER_MAX = 2**63 - 1

# Any: JSON, and values of every type; here and below.


def to_json(value: Any) -> Any:
    """A value as JSON.

    >>> to_json({"a": (1, b"x"), "b": b"\\xff"})
    {'a': [1, 'x'], 'b': {'base64': '/w=='}}
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if is_dataclass(value):
        return {name: to_json(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(getattr(value, name)) for name in value._fields}
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, range):
        return [value.start, value.stop - 1]
    if isinstance(value, pa.Schema):
        return schema_to_json(value)
    if isinstance(value, (Sequence, set, frozenset)):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def from_json(kind: Any, value: Any, *, name: str = "body", text: bool = False) -> Any:
    """A value of this type, from its JSON form. With `text`, numbers and flags may be text, as in a query string.

    >>> from_json(list[int] | None, ["1", "2"], text=True), from_json(dict[int, float], {"3": 1})
    ([1, 2], {3: 1.0})
    >>> from_json(int, True, name="limit")
    Traceback (most recent call last):
    ...
    headwater.errors.ArgumentInvalid: `limit` is True. Give an integer.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(parts, value, name, text)
    if origin is Literal:
        if value not in parts:
            raise ArgumentInvalid(name=name, value=value, expected="one of " + ", ".join(map(str, parts)))
        return value
    if kind is pa.Schema:
        return _schema_from_json(value, name)
    if kind is range:
        first, last = from_json(tuple[int, int], value, name=name)
        return range(first, last + 1)
    if origin in (dict, Mapping, typing.Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        _expect(isinstance(value, Mapping), name, value, "an object")
        key, item = parts if len(parts) == 2 else (parts[0], int)  # a Counter names its keys only
        plain = {
            from_json(key, k, name=name, text=True): from_json(item, v, name=f"{name}.{k}") for k, v in value.items()
        }
        return plain if origin in (dict, Mapping) else origin(plain)
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return _object(kind, value, name)
    if origin is tuple and (len(parts) != 2 or parts[1] is not Ellipsis):
        _expect(isinstance(value, list) and len(value) == len(parts), name, value, f"a list of {len(parts)}")
        return tuple(from_json(part, item, name=name, text=text) for part, item in zip(parts, value, strict=True))
    if origin in (list, tuple, set, frozenset, Sequence):
        _expect(isinstance(value, list), name, value, "a list")
        items = [from_json(parts[0], item, name=f"{name}[{at}]", text=text) for at, item in enumerate(value)]
        return items if origin in (list, Sequence) else origin(items)
    return _scalar(kind, value, name, text)


def json_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type, for the OpenAPI document.

    >>> json_schema(list[int] | None)["anyOf"][0]["items"]["type"]
    'integer'
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [json_schema(part) for part in parts]}
    if origin is Literal:
        return {"enum": list(parts)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": json_schema(parts[1] if len(parts) == 2 else int)}
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return _object_schema(kind)
    if kind is pa.Schema:
        return {"anyOf": [{"type": "string"}, {"type": "object"}]}
    if kind is range:
        return {"type": "array", "items": json_schema(int), "minItems": 2, "maxItems": 2}
    if origin is tuple and (len(parts) != 2 or parts[1] is not Ellipsis):
        each = [json_schema(part) for part in parts]
        kinds = (
            {"items": each[0], "maxItems": len(each)} if all(one == each[0] for one in each) else {"prefixItems": each}
        )
        return {"type": "array", "minItems": len(each), **kinds}
    if origin in (list, tuple, set, frozenset, Sequence):
        return {"type": "array", "items": json_schema(parts[0])}
    if kind is int:
        return {"type": "integer", "minimum": -INTEGER_MAX, "maximum": INTEGER_MAX}
    simple = {str: "string", float: "number", bool: "boolean", types.NoneType: "null"}
    return {"type": simple[kind]} if kind in simple else {}


@functools.cache
def type_hints(kind: Any) -> dict[str, Any]:
    """The types of a class's fields or of a function's parameters, with names resolved."""
    return typing.get_type_hints(kind)


def _names(kind: type) -> list[str]:
    """The fields of a dataclass and its public properties."""
    known = [field.name for field in fields(kind) if not field.name.startswith("_")]
    properties = [name for name in dir(kind) if isinstance(getattr(kind, name, None), property)]
    return known + [name for name in properties if not name.startswith("_")]


class _Column(NamedTuple):
    """A column of a schema."""

    name: str
    type: str
    nullable: bool = True


def _schema_from_json(value: Any, name: str) -> Any:
    if isinstance(value, Mapping) and isinstance(value.get("columns"), list):
        columns = from_json(list[_Column], value["columns"], name=f"{name}.columns")
        return schema_from_json({"columns": [column._asdict() for column in columns]})
    return parse_schema(from_json(str if isinstance(value, str) else dict[str, str], value, name=name))


def _object(kind: Any, value: Any, name: str) -> Any:
    _expect(isinstance(value, Mapping), name, value, "an object")
    hints = type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind._fields)
    given = {
        one: from_json(hints[one], value[one], name=one if name == "body" else f"{name}.{one}")
        for one in names
        if one in value
    }
    missing = [one for one in names if one not in given and not _has_default(kind, one)]
    _expect(not missing, name, sorted(value), f"an object with {', '.join(missing)}")
    return kind(**given)


def _object_schema(kind: Any) -> dict[str, Any]:
    hints = type_hints(kind)
    names = list(kind._fields) if hasattr(kind, "_fields") else _names(kind)
    known = {name: hints.get(name) or type_hints(getattr(kind, name).fget)["return"] for name in names}
    return {"type": "object", "properties": {name: json_schema(hint) for name, hint in known.items()}}


def _has_default(kind: Any, name: str) -> bool:
    if not is_dataclass(kind):
        return name in kind._field_defaults
    [field] = [one for one in fields(kind) if one.name == name]
    return field.default is not MISSING or field.default_factory is not MISSING


def _one_of(parts: tuple[Any, ...], value: Any, name: str, text: bool) -> Any:
    if value is None and types.NoneType in parts:
        return None
    others = [part for part in parts if part is not types.NoneType]
    problem: ArgumentInvalid | None = None
    for part in others:
        try:
            return from_json(part, value, name=name, text=text)
        except ArgumentInvalid as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _scalar(kind: Any, value: Any, name: str, text: bool) -> Any:
    if kind is bytes:
        return _bytes_from_json(value, name)
    if text and isinstance(value, str):
        value = _from_text(kind, value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    words = {str: "a text", int: "an integer", float: "a number", bool: "true or false"}
    _expect(kind in words and isinstance(value, kind) and not (kind is int and isinstance(value, bool)), name, value,
            words.get(kind, "another value"))  # fmt: skip
    if kind is int:
        _expect(abs(value) <= INTEGER_MAX, name, value, "an integer of 64 bits")
    if kind is str and not value.isascii():
        is_text = value.encode(errors="ignore").decode() == value
        _expect(is_text, name, "…", "a text without lone surrogates")
    return value


def _from_text(kind: Any, value: str) -> Any:
    """The value of a text in a query string; the text itself if it is no such value."""
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
        return kind(value) if kind in (int, float) and len(value) < 40 else value
    except ValueError:
        return value


def _bytes_from_json(value: Any, name: str) -> bytes:
    if isinstance(value, Mapping) and isinstance(value.get("base64"), str):
        return base64.b64decode(value["base64"])
    _expect(isinstance(value, str), name, value, "a text, or an object with base64")
    return str(value).encode()


def _expect(holds: bool, name: str, value: Any, expected: str) -> None:
    if not holds:
        shown = value if isinstance(value, (str, int, float, bool, types.NoneType)) else type(value).__name__
        raise ArgumentInvalid(name=name, value=shown, expected=expected)
