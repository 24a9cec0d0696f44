"""Random schemas, and random values that fit them, for the laws of this folder."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

FLAT_TYPES = [
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(3)),
    *(pa.decimal128(5, 2), pa.decimal128(38, 10), pa.decimal256(60, 20), pa.decimal128(4, 0)),
    pa.date32(),
    *(pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.timestamp("ms", tz="Europe/Zurich"), pa.timestamp("s")),
    *(pa.timestamp("ns"), pa.timestamp("ns", tz="+02:00")),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns")),
]

names = st.one_of(
    st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).filter(
        lambda name: name.strip() and not name.startswith("_")
    ),
)


def fields(kind: pa.DataType) -> st.SearchStrategy[pa.Field]:
    return st.booleans().map(lambda nullable: pa.field("item", kind, nullable=nullable))


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    parts = inner.flatmap(fields)
    key_types = st.sampled_from([pa.string(), pa.int32(), pa.date32(), pa.binary()])
    return st.one_of(
        parts.map(pa.list_),
        parts.map(pa.large_list),
        st.tuples(key_types, parts).map(lambda pair: pa.map_(pair[0], pair[1].with_name("value"))),
        st.lists(st.tuples(names, parts), min_size=1, max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda pairs: pa.struct([part.with_name(name) for name, part in pairs])
        ),
    )


types: st.SearchStrategy[pa.DataType] = st.recursive(st.sampled_from(FLAT_TYPES), _nested, max_leaves=4)

columns = st.tuples(names, types, st.booleans()).map(lambda parts: pa.field(parts[0], parts[1], nullable=parts[2]))
schemas: st.SearchStrategy[pa.Schema] = st.lists(
    columns, min_size=1, max_size=4, unique_by=lambda column: column.name
).map(pa.schema)


def values(kind: pa.DataType, *, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Python values that stand for exactly one value of this type each."""
    strategy = _present(kind)
    return st.one_of(st.none(), strategy) if nullable else strategy


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_integer(kind):
        signed = types.is_signed_integer(kind)
        bits = kind.bit_width
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)
    if types.is_floating(kind):
        return st.floats(width=kind.bit_width, allow_nan=False)
    if types.is_string(kind) or types.is_large_string(kind):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    if types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return st.binary(max_size=8)
    if types.is_decimal(kind):
        bound = 10**kind.precision - 1
        return st.integers(-bound, bound).map(lambda digits: decimal_of(digits, kind.scale))
    return _nested_values(kind) if types.is_nested(kind) else _times(kind)


def decimal_of(digits: int, scale: int) -> decimal.Decimal:
    sign, digits = (1, -digits) if digits < 0 else (0, digits)
    return decimal.Decimal((sign, tuple(map(int, str(digits))), -scale))


def _times(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_date(kind):
        return st.dates()
    step = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[kind.unit]
    whole = st.integers(0, 86_400_000_000 // step - 1).map(lambda count: count * step)
    if types.is_time(kind):
        return whole.map(lambda count: (datetime.datetime.min + datetime.timedelta(microseconds=count)).time())
    if types.is_duration(kind):
        return st.integers(-(10**12) // step, 10**12 // step).map(
            lambda count: datetime.timedelta(microseconds=count * step)
        )
    days = st.integers(-100_000, 90_000)
    return st.tuples(days, whole).map(
        lambda pair: (
            datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days=pair[0], microseconds=pair[1])
        )
    )


def _nested_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({part.name: values(part.type, nullable=part.nullable) for part in kind})
    if pa.types.is_map(kind):
        keys = values(kind.key_type, nullable=False)
        return st.dictionaries(keys, values(kind.item_type, nullable=kind.item_field.nullable), max_size=3)
    return st.lists(values(kind.value_type, nullable=kind.value_field.nullable), max_size=3)


@st.composite
def schemas_and_rows(draw: st.DrawFn, *, size_max: int = 6) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """A schema, and rows that fit it."""
    schema = draw(schemas)
    row = st.fixed_dictionaries({column.name: values(column.type, nullable=column.nullable) for column in schema})
    return schema, draw(st.lists(row, max_size=size_max))
