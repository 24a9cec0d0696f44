"""Python values as Arrow arrays: fast for values of the type's own Python class, lossless coercion for others.

Each column is converted as a whole. If all its values have the type's own Python class, Arrow converts them in C;
otherwise each value is coerced by rules that never lose anything: `1.0` is an integer and `1.5` is not.
Nested types are divided into flat columns first, so that the same two paths apply.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.schema.cast import Misfit, cast_array, first_line, is_bytes, is_text
from headwater.schema.notation import format_type, nearest

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY_0 = datetime.date(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LONG_FRACTION = re.compile(r"([.,]\d{6})(\d{1,3})(?!\d)")
_SECONDS = re.compile(r"(-?)PT(\d{1,10}(?:\.\d{1,9})?)S\Z")
_ARROW_ERRORS = (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError)


class Ticks(int):
    """A time or duration in the unit of its column; a plain number would mean microseconds."""


def to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array of this type; raise `Misfit` if one of them does not fit.

    >>> to_array([1, None, 2.0], pa.int64()).to_pylist()
    [1, None, 2]
    >>> to_array(["2024-01-01T12:00:00Z"], pa.timestamp("us", tz="UTC"))[0].value
    1704110400000000
    """
    if pa.types.is_struct(kind):
        return _to_structs(values, kind)
    if pa.types.is_map(kind):
        return _to_maps(values, kind)
    if pa.types.is_nested(kind):
        return _to_lists(values, kind)
    classes = set(map(type, values))
    try:
        if classes <= _own_classes(kind):
            return pa.array(values, kind)
        if classes <= _TEXT and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            return _of_texts(values, kind)
        return pa.array(list(map(_coercion(kind), values)), kind)
    except Misfit:
        raise
    except _ARROW_ERRORS as error:
        raise Misfit(f"does not fit {format_type(kind)} ({first_line(error)})") from error


def _own_classes(kind: pa.DataType) -> frozenset[type]:
    """The classes whose values Arrow converts to this type exactly."""
    if pa.types.is_timestamp(kind) and kind.unit != "us":
        return _NO_CLASSES
    return _OWN_CLASSES.get(kind.id, _NO_CLASSES)


def _of_texts(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Times as text, as in JSON: all at once if Arrow can parse all of them, one by one otherwise."""
    try:
        return cast_array(pa.array(values, pa.string()), kind)
    except Misfit:
        return pa.array(list(map(_coercion(kind), values)), kind)


_TEXT = {str, NoneType}
_NO_CLASSES = frozenset({NoneType})
_OWN_CLASSES: dict[int, frozenset[type]] = {
    kind.id: frozenset({*classes, NoneType})
    for kinds, classes in (
        ((pa.int8(), pa.int16(), pa.int32(), pa.int64()), {int}),
        ((pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), {int}),
        ((pa.float64(),), {float, int}),
        ((pa.string(), pa.large_string()), {str}),
        ((pa.binary(), pa.large_binary(), pa.binary(1)), {bytes, str}),
        ((pa.bool_(),), {bool}),
        ((pa.decimal128(1), pa.decimal256(1)), {decimal.Decimal, int}),
        ((pa.timestamp("us"),), {datetime.datetime, int}),
        ((pa.date32(),), {datetime.date}),
    )
    for kind in kinds
}


def _coercion(kind: pa.DataType) -> Callable[[Any], Any]:
    """The function that coerces a value of another class to this type."""
    types = pa.types
    if types.is_integer(kind):
        return _to_integer
    if types.is_floating(kind):
        return _to_float32 if types.is_float32(kind) else _to_float
    if is_text(kind):
        return _to_text
    if is_bytes(kind):
        return _to_bytes
    if types.is_boolean(kind):
        return _to_boolean
    if types.is_decimal(kind):
        return _to_decimal
    if types.is_date(kind):
        return _to_days
    nanoseconds = _moment if types.is_timestamp(kind) else _time_of_day if types.is_time(kind) else _span
    return lambda value: int(value) if type(value) is Ticks else _scaled(nanoseconds(value), kind.unit)


def _misfit(value: Any, expected: str) -> Misfit:
    shown = repr(value)
    return Misfit(f"is {shown if len(shown) <= 60 else shown[:59] + '…'} ({type(value).__name__}), not {expected}")


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's, and pandas' missing values as None."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    return None if type(value).__name__ in {"NAType", "NaTType"} else value


def _to_integer(value: Any) -> int | None:
    value = _plain(value)
    if value is None or type(value) is int:
        return value
    if isinstance(value, float | decimal.Decimal) and _is_whole(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise _misfit(value, "a whole number")


def _is_whole(number: Any) -> bool:
    # The bound comes before `int`, which would compute every digit of Decimal("1e1000000").
    return math.isfinite(number) and abs(number) < 2**64 and number == int(number)


def _to_float(value: Any) -> float | None:
    value = _plain(value)
    if value is None or type(value) is float:
        return value
    if isinstance(value, int | decimal.Decimal) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise _misfit(value, "a number that 64 bits hold") from None
        if isinstance(value, int) and int(number) != value:
            raise _misfit(value, "a number that 64 bits hold exactly")
        return number
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, float):
        return float(value)
    raise _misfit(value, "a number")


def _to_float32(value: Any) -> float | None:
    number = _to_float(value)
    if number is not None and abs(number) != float("inf") and abs(number) > 3.4028235677973366e38:
        raise _misfit(value, "a number that 32 bits hold")
    return number


def _to_text(value: Any) -> str | None:
    value = _plain(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise _misfit(value, "UTF-8 text") from None
    raise _misfit(value, "text")


def _to_bytes(value: Any) -> bytes | None:
    value = _plain(value)
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise _misfit(value, "bytes")


def _to_boolean(value: Any) -> bool | None:
    value = _plain(value)
    if value is None or isinstance(value, bool):
        return value
    raise _misfit(value, "true or false")


def _to_decimal(value: Any) -> decimal.Decimal | None:
    value = _plain(value)
    if value is None or isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal.Decimal(value)
    if isinstance(value, str):
        try:
            return decimal.Decimal(value)
        except decimal.InvalidOperation:
            raise _misfit(value, "a decimal number") from None
    if isinstance(value, float):
        raise _misfit(value, "exact; give a Decimal, an int or a text")
    raise _misfit(value, "a decimal number")


def _to_days(value: Any) -> int | None:
    value = _plain(value)
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return (datetime.date.fromisoformat(value) - _DAY_0).days
        except ValueError:
            raise _misfit(value, "a date such as '2024-01-31'") from None
    if isinstance(value, datetime.datetime | np.datetime64):
        days, rest = divmod(_moment(value) or 0, 86_400_000_000_000)
        if rest:
            raise _misfit(value, "a whole day")
        return days
    if isinstance(value, datetime.date):
        return (value - _DAY_0).days
    raise _misfit(value, "a date")


def _moment(value: Any) -> int | None:
    """Nanoseconds since 1970 in UTC; a time without a zone is UTC, a whole number is microseconds."""
    value = _plain(value)
    if value is None:
        return None
    if isinstance(value, str):
        return _moment_of_text(value)
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return _span(aware - _EPOCH, nanoseconds=getattr(value, "nanosecond", 0))
    if isinstance(value, np.datetime64):
        return _nanoseconds_of_numpy(value)
    if isinstance(value, datetime.date):
        return (value - _DAY_0).days * 86_400_000_000_000
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1_000
    raise _misfit(value, "a time")


def _moment_of_text(text: str) -> int:
    short, nanoseconds = _without_nanoseconds(text)
    try:
        moment = datetime.datetime.fromisoformat(short)
    except ValueError:
        raise _misfit(text, "a time such as '2024-01-31T12:00:00Z'") from None
    return (_moment(moment) or 0) + nanoseconds


def _without_nanoseconds(text: str) -> tuple[str, int]:
    """Split off the last three of nine digits of a second, since Python parses only six."""
    long = _LONG_FRACTION.search(text)
    if long is None:
        return text, 0
    return text[: long.start(2)] + text[long.end(2) :], int(long.group(2).ljust(3, "0"))


def _time_of_day_of_text(text: str) -> int:
    short, nanoseconds = _without_nanoseconds(text)
    try:
        time = datetime.time.fromisoformat(short)
    except ValueError:
        raise _misfit(text, "a time of day such as '12:30:00'") from None
    return (_time_of_day(time) or 0) + nanoseconds


def _time_of_day(value: Any) -> int | None:
    """Nanoseconds since midnight."""
    value = _plain(value)
    if isinstance(value, str):
        return _time_of_day_of_text(value)
    if isinstance(value, datetime.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1_000_000_000 + value.microsecond * 1_000
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1_000
    if value is None:
        return None
    raise _misfit(value, "a time of day")


def _span(value: Any, *, nanoseconds: int = 0) -> int | None:
    """Nanoseconds of a duration; a whole number is microseconds."""
    value = _plain(value)
    if value is None:
        return None
    if isinstance(value, datetime.timedelta):
        nanoseconds = nanoseconds or getattr(value, "nanoseconds", 0)
        return ((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds) * 1_000 + nanoseconds
    if isinstance(value, str) and (seconds := _SECONDS.match(value)):
        return int(decimal.Decimal(seconds[1] + seconds[2]).scaleb(9))
    if isinstance(value, np.timedelta64):
        return _nanoseconds_of_numpy(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1_000
    raise _misfit(value, "a duration such as timedelta(seconds=1) or 'PT1S'")


def _nanoseconds_of_numpy(value: np.datetime64 | np.timedelta64) -> int | None:
    """The exact nanoseconds; NumPy's own conversion between units would overflow."""
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    if unit in {"Y", "M"} and isinstance(value, np.datetime64):
        return _nanoseconds_of_numpy(value.astype("datetime64[D]"))
    if unit not in _NUMPY_NANOSECONDS:
        raise _misfit(value, "a time in days, hours, minutes, seconds or parts of them down to nanoseconds")
    return int(value.astype(np.int64)) * count * _NUMPY_NANOSECONDS[unit]


_NUMPY_NANOSECONDS = {
    "W": 604_800_000_000_000,
    "D": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}


def _scaled(nanoseconds: int | None, unit: str) -> int | None:
    if nanoseconds is None:
        return None
    count, rest = divmod(nanoseconds, 1_000_000_000 // _PER_SECOND[unit])
    if rest:
        raise Misfit(f"is finer than its unit, {unit}: digits would be lost")
    return count


def _mask(values: Iterable[Any]) -> tuple[list[Any], pa.Array | None]:
    """The values that are not None, and a mask of those that are."""
    absent = [value is None for value in values]
    if not any(absent):
        return list(values), None
    return [value for value in values if value is not None], pa.array(absent)


def _to_structs(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    rows = [{} if value is None else as_mapping(value) for value in values]
    names = [part.name for part in kind]
    for unknown in set(chain.from_iterable(rows)).difference(names):
        raise Misfit(f"has a field {unknown!r} that is not in the schema{nearest(str(unknown), names)}")
    children = [_part_of_structs(rows, part) for part in kind]
    mask = _mask(values)[1]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _part_of_structs(rows: list[Mapping[str, Any]], part: pa.Field) -> pa.Array:
    try:
        return to_array([row.get(part.name) for row in rows], part.type)
    except Misfit as error:
        raise Misfit(f"field {part.name!r} {error}") from error


def as_mapping(value: Any) -> Mapping[str, Any]:
    """A record as a mapping: itself, or the fields of a dataclass or named tuple."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    raise _misfit(value, "a mapping")


def _to_lists(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    present, mask = _mask(values)
    for value in present:
        if not isinstance(value, Sequence | np.ndarray | set | frozenset) or isinstance(value, str | bytes | bytearray):
            raise _misfit(value, "a list")
    offsets = _offsets(values)
    items = to_array(list(chain.from_iterable(present)), kind.value_type)
    build = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offsets_type = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    return build.from_arrays(pa.array(offsets, offsets_type), items, type=kind, mask=mask)


def _to_maps(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    present, mask = _mask(values)
    entries = [_entries(value) for value in present]
    flat = list(chain.from_iterable(entries))
    keys = to_array(list(map(itemgetter(0), flat)), kind.key_type)
    if keys.null_count:
        raise Misfit("has a map with a null key")
    items = to_array(list(map(itemgetter(1), flat)), kind.item_type)
    offsets = _offsets(values)
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, kind, mask=mask)


def _entries(value: Any) -> Sequence[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if is_pairs(value):
        return list(value)
    raise _misfit(value, "a mapping")


def is_pairs(value: Any) -> bool:
    """Whether a value is a list of (key, value) pairs, as Arrow returns maps."""
    return isinstance(value, list | tuple) and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in value)


def _offsets(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    sizes = np.fromiter((0 if value is None else len(value) for value in values), dtype=np.int64, count=len(values))
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
