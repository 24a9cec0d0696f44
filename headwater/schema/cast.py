"""Lossless casts of Arrow arrays to another type; raise for values that would change.

Arrow's own cast is both too generous (it parses numbers in text, and formats numbers as text) and too strict (it cannot
add a field to a struct), so this module decides which types can be cast, and handles nested types itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.schema.nested import taken_apart
from headwater.schema.notation import format_type, nearest


class Misfit(ValueError):
    """A value or a column does not fit a type; its text completes the sentence "column 'a' …"."""


def cast_array(array: pa.Array, kind: pa.DataType, *, drop: bool = False) -> pa.Array:
    """The same values as `kind`; raise `Misfit` if one of them does not fit.

    With `drop`, fields of structs that `kind` does not have are dropped; otherwise they do not fit.

    >>> cast_array(pa.array([1, 2], pa.int32()), pa.int64()).type
    DataType(int64)
    """
    if array.type == kind:
        return array
    if isinstance(array, pa.DictionaryArray):
        return cast_array(_decoded(array), kind, drop=drop)
    if pa.types.is_run_end_encoded(array.type):
        return cast_array(pc.run_end_decode(array), kind, drop=drop)
    if isinstance(array, pa.ExtensionArray):
        return cast_array(array.storage, kind, drop=drop)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_nested(kind):
        return _cast_nested(array, kind, drop=drop)
    if not castable(array.type, kind):
        raise Misfit(f"is {_shown(array.type)}, and the schema says {format_type(kind)}")
    try:
        return _cast_leaf(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Misfit(f"has a value that does not fit {format_type(kind)} ({first_line(error)})") from error


def misfit(old: pa.DataType, new: pa.DataType) -> str | None:
    """Why a column of one type can never be stored as another; None if it can, at least for some values.

    >>> misfit(pa.string(), pa.int64())
    'is string, and the schema says int64'
    """
    try:
        cast_array(pa.array([], old), new)
    except Misfit as error:
        return str(error)
    return None


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    words = array.dictionary
    if pa.types.is_string_view(words.type) or pa.types.is_binary_view(words.type):
        # Polars' categories are views, which Arrow's `take` does not support yet.
        words = words.cast(pa.large_string() if pa.types.is_string_view(words.type) else pa.large_binary())
    return words.take(array.indices)


def first_line(error: BaseException) -> str:
    """The first line of Arrow's message."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _shown(kind: pa.DataType) -> str:
    try:
        return format_type(kind)
    except (ValueError, AttributeError):
        return str(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text, however long."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a column holds bytes, however long."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def is_sequence(kind: pa.DataType) -> bool:
    """Whether a column holds lists, in any of Arrow's layouts."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def castable(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether values of one type may be stored in a column of another, if each of them fits.

    >>> castable(pa.int64(), pa.int32()), castable(pa.string(), pa.int64())
    (True, False)
    """
    types = pa.types
    if types.is_integer(new):
        return bool(types.is_integer(old) or types.is_floating(old) or (types.is_decimal(old) and old.scale == 0))
    if types.is_floating(new):
        return bool(types.is_integer(old) or types.is_floating(old))
    if types.is_decimal(new):
        return bool(types.is_integer(old) or types.is_decimal(old))
    if is_text(new):
        return is_text(old)
    if is_bytes(new):
        return is_bytes(old) or is_text(old)
    if types.is_timestamp(new):
        return bool(types.is_timestamp(old) or types.is_date(old) or types.is_int64(old) or is_text(old))
    if types.is_date(new):
        return bool(types.is_date(old) or types.is_timestamp(old) or is_text(old))
    if types.is_time(new):
        return bool(types.is_time(old))
    return bool(types.is_duration(new) and types.is_duration(old))


def _cast_leaf(array: pa.Array, kind: pa.DataType) -> pa.Array:
    old = array.type
    if pa.types.is_timestamp(kind):
        return _cast_timestamp(array, kind)
    if pa.types.is_decimal(kind) and pa.types.is_integer(old):
        # Arrow requires that every value of the integer type fits; here only the given ones must.
        return array.cast(pa.decimal256(40, 0)).cast(pa.decimal256(76, kind.scale)).cast(kind)
    if pa.types.is_fixed_size_binary(kind) and not is_bytes(old):
        return array.cast(pa.binary()).cast(kind)
    if pa.types.is_floating(kind) and kind.bit_width == 32 and pa.types.is_floating(old):
        return _narrow_floats(array, kind)
    if pa.types.is_date(kind) and is_text(old):
        return array.cast(pa.string()).cast(kind)
    if pa.types.is_date(kind) and pa.types.is_timestamp(old):
        return _cast_to_date(array, kind)
    return array.cast(kind)


def _narrow_floats(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Rounding to 32 bits is allowed, but a large number must not become infinite."""
    narrow = array.cast(kind)
    lost = pc.and_not(pc.is_inf(narrow), pc.is_inf(array))
    if pc.any(lost).as_py():
        raise pa.ArrowInvalid("a number is too large for 32 bits")
    return narrow


def _cast_to_date(array: pa.Array, kind: pa.DataType) -> pa.Array:
    array = _cast_timestamp(array, pa.timestamp(array.type.unit))
    days = array.cast(kind)
    if not pc.all(pc.equal(days.cast(array.type), array), min_count=0).as_py():
        raise pa.ArrowInvalid("a time is not midnight")
    return days


def _cast_timestamp(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times without a zone are UTC, and integers are microseconds, as in rows of Python values."""
    old = array.type
    if pa.types.is_int64(old):
        array = array.cast(pa.timestamp("us"))
    elif is_text(old):
        array = _read_times(array, kind.unit)
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, tz="UTC")).cast(pa.timestamp(array.type.unit))
    # Arrow shifts the clock between a zone and none; by way of UTC the time stays the same.
    array = array.cast(pa.timestamp(kind.unit))
    return array.cast(pa.timestamp(kind.unit, tz="UTC")).cast(kind) if kind.tz else array


def _read_times(array: pa.Array, unit: str) -> pa.Array:
    """Parse ISO 8601 text with or without a zone as times in UTC."""
    text = array.cast(pa.string())
    zoned = pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d|T.*[+-]\d\d)$")
    plain = pc.if_else(zoned, None, text).cast(pa.timestamp(unit))
    moved = pc.if_else(zoned, text, None).cast(pa.timestamp(unit, tz="UTC")).cast(pa.timestamp(unit))
    return pc.coalesce(plain, moved)


def _cast_nested(array: pa.Array, kind: pa.DataType, *, drop: bool) -> pa.Array:
    old = array.type
    if pa.types.is_struct(kind) and pa.types.is_struct(old):
        return _cast_struct(array, kind, drop=drop)
    if pa.types.is_map(kind) and pa.types.is_map(old):
        return _cast_map(array, kind, drop=drop)
    if not pa.types.is_map(kind) and is_sequence(kind) and is_sequence(old):
        return _cast_list(array, kind, drop=drop)
    raise Misfit(f"is {_shown(old)}, and the schema says {format_type(kind)}")


def _cast_struct(array: pa.Array, kind: pa.DataType, *, drop: bool) -> pa.Array:
    names = [part.name for part in kind]
    for part in array.type:
        if part.name not in names and not drop:
            raise Misfit(f"has a field {part.name!r} that is not in the schema{nearest(part.name, names)}")
    # `flatten` returns null for the fields of a null struct.
    parts = dict(zip([part.name for part in array.type], array.flatten(), strict=True))
    children = [
        cast_array(parts[part.name], part.type, drop=drop) if part.name in parts else pa.nulls(len(array), part.type)
        for part in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_mask(array))


def _cast_list(array: pa.Array, kind: pa.DataType, *, drop: bool) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.large_list(array.type.value_field))
    [items], counts = taken_apart(array)
    items = cast_array(items, kind.value_type, drop=drop)
    build, width = (pa.LargeListArray, 64) if pa.types.is_large_list(kind) else (pa.ListArray, 32)
    return build.from_arrays(_offsets(counts, kind, width), items, type=kind, mask=_mask(array))


def _cast_map(array: pa.Array, kind: pa.DataType, *, drop: bool) -> pa.Array:
    [keys, items], counts = taken_apart(array)
    keys = cast_array(keys, kind.key_type, drop=drop)
    items = cast_array(items, kind.item_type, drop=drop)
    return pa.MapArray.from_arrays(_offsets(counts, kind, 32), keys, items, kind, mask=_mask(array))


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(counts: npt.NDArray[np.int64], kind: pa.DataType, width: int) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    if width == 32 and offsets[-1] > 2**31 - 1:
        raise Misfit(f"has too many items for {format_type(kind)}; use large_list")
    return pa.array(offsets, pa.int32() if width == 32 else pa.int64())
