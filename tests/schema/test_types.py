"""Any way to say a schema means one Arrow schema, and its stored forms come back exactly."""

from __future__ import annotations

import datetime
import enum
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Optional

import pyarrow as pa
import pytest
from hypothesis import given

from headwater.errors import SchemaInvalid
from headwater.schema import SCHEMALESS, format_schema, parse_schema, schema_from_json, schema_to_json

from .strategies import schemas

UTC = pa.timestamp("us", tz="UTC")


@dataclass
class Address:
    street: str
    zip_code: int | None


class Colour(enum.StrEnum):
    RED = "red"


@dataclass
class Person:
    id: int
    name: str | None
    born: datetime.date
    seen: datetime.datetime
    balance: Decimal
    photo: bytes
    tags: list[str]
    scores: dict[str, float | None]
    address: Address
    friends: list[Address | None]
    alias: Optional[str]  # noqa: UP045 - the old spelling must work too
    small: Annotated[int, "int16"]
    exact: Annotated[Decimal, pa.decimal128(12, 2)]
    colour: Colour
    active: bool


@given(schemas)
def test_the_text_of_a_schema_reads_back_as_that_schema(schema: pa.Schema) -> None:
    assert parse_schema(format_schema(schema)).equals(schema)


@given(schemas)
def test_the_stored_form_of_a_schema_reads_back_exactly(schema: pa.Schema) -> None:
    stored = json.loads(json.dumps(schema_to_json(schema)))
    assert schema_from_json(stored).equals(schema, check_metadata=True)


@given(schemas)
def test_a_parsed_schema_is_its_own_parse(schema: pa.Schema) -> None:
    assert parse_schema(schema).equals(schema)


def test_the_stored_form_is_pinned_for_ever() -> None:
    schema = parse_schema(
        "id int64 not null, at timestamp, price decimal(12,2), tags list<string not null>, "
        "place struct<lat: float64 not null, lon: float64>, counts map<string, int32>, `odd name` timestamp[ms]"
    )
    assert schema_to_json(schema)["columns"] == [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "at", "type": "timestamp", "nullable": True},
        {"name": "price", "type": "decimal(12,2)", "nullable": True},
        {"name": "tags", "type": "list<string not null>", "nullable": True},
        {"name": "place", "type": "struct<lat: float64 not null, lon: float64>", "nullable": True},
        {"name": "counts", "type": "map<string, int32>", "nullable": True},
        {"name": "odd name", "type": "timestamp[ms]", "nullable": True},
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int64", pa.int64()),
        ("INT64", pa.int64()),
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("double", pa.float64()),
        ("float32", pa.float32()),
        ("timestamp", UTC),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("timestamp[ns, tz=Europe/Zurich]", pa.timestamp("ns", tz="Europe/Zurich")),
        ("timestamp[us, tz=+05:30]", pa.timestamp("us", tz="+05:30")),
        ("decimal(12,2)", pa.decimal128(12, 2)),
        ("decimal( 12 , 2 )", pa.decimal128(12, 2)),
        ("decimal(5)", pa.decimal128(5, 0)),
        ("decimal(60,2)", pa.decimal256(60, 2)),
        ("decimal128(12, 2)", pa.decimal128(12, 2)),
        ("list<string>", pa.list_(pa.string())),
        ("list<item: string>", pa.list_(pa.string())),
        ("list<item: string not null>", pa.list_(pa.field("item", pa.string(), nullable=False))),
        ("struct<a: int32, b: list<double>>", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))])),
        ("struct<a int32>", pa.struct([("a", pa.int32())])),
        ("map<string, int64>", pa.map_(pa.string(), pa.int64())),
        ("list<list<list<int8>>>", pa.list_(pa.list_(pa.list_(pa.int8())))),
        ("date32[day]", pa.date32()),
        ("date", pa.date32()),
        ("time64[us]", pa.time64("us")),
        ("duration[ms]", pa.duration("ms")),
        ("fixed_size_binary[16]", pa.binary(16)),
    ],
)
def test_a_type_may_be_said_in_text(text: str, kind: pa.DataType) -> None:
    assert parse_schema({"a": text}) == pa.schema([("a", kind)])
    assert parse_schema(f"a {text}, b: {text} not null") == pa.schema(
        [("a", kind), pa.field("b", kind, nullable=False)]
    )


def test_what_arrow_prints_of_a_type_is_understood() -> None:
    kinds = [UTC, pa.list_(pa.struct([("a", pa.int32())])), pa.map_(pa.string(), pa.list_(pa.int64())), pa.date32()]
    for kind in kinds:
        assert parse_schema({"a": str(kind)}).field("a").type == kind


def test_a_dataclass_says_a_schema() -> None:
    address = pa.struct([pa.field("street", pa.string(), nullable=False), ("zip_code", pa.int64())])
    assert parse_schema(Person) == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("born", pa.date32(), nullable=False),
            pa.field("seen", UTC, nullable=False),
            pa.field("balance", pa.decimal128(38, 18), nullable=False),
            pa.field("photo", pa.binary(), nullable=False),
            pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
            pa.field("scores", pa.map_(pa.string(), pa.float64()), nullable=False),
            pa.field("address", address, nullable=False),
            pa.field("friends", pa.list_(address), nullable=False),
            pa.field("alias", pa.string()),
            pa.field("small", pa.int16(), nullable=False),
            pa.field("exact", pa.decimal128(12, 2), nullable=False),
            pa.field("colour", pa.string(), nullable=False),
            pa.field("active", pa.bool_(), nullable=False),
        ]
    )


def test_a_mapping_may_mix_python_types_arrow_types_and_text() -> None:
    schema = parse_schema(
        {"a": int, "b": pa.int8(), "c": "string not null", "d": list[str], "e": {"x": float}, "f": Address}
    )
    assert schema.names == ["a", "b", "c", "d", "e", "f"]
    assert schema.field("a") == pa.field("a", pa.int64())
    assert not schema.field("c").nullable
    assert schema.field("e").type == pa.struct([("x", pa.float64())])


def test_nothing_means_keys_and_values() -> None:
    assert parse_schema(None) == SCHEMALESS == pa.schema([("key", pa.binary()), ("value", pa.binary())])


def test_encodings_of_values_and_metadata_are_not_part_of_a_schema() -> None:
    given_schema = pa.schema(
        [
            pa.field("a", pa.dictionary(pa.int8(), pa.string()), metadata={"x": "y"}),
            ("b", pa.string_view()),
            ("c", pa.list_(pa.field("element", pa.dictionary(pa.int8(), pa.int64())))),
            ("d", pa.date64()),
            ("e", pa.decimal64(5, 2)),
        ],
        metadata={"pandas": "…"},
    )
    expected = pa.schema(
        [
            ("a", pa.string()),
            ("b", pa.string()),
            ("c", pa.list_(pa.int64())),
            ("d", pa.date32()),
            ("e", pa.decimal128(5, 2)),
        ]
    )
    assert parse_schema(given_schema).equals(expected, check_metadata=True)
    assert parse_schema(given_schema).field("c").type.value_field.name == "item"


@dataclass
class Endless:
    inner: Endless | None


@dataclass
class Choice:
    value: int | str


@dataclass
class Bare:
    value: list  # type: ignore[type-arg]  # the mistake under test


@dataclass
class Unresolved:
    value: "NoSuchThing"  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "no columns"),
        ("", "no columns"),
        ("   ", "no columns"),
        (pa.schema([]), "no columns"),
        ("a int64, a string", "two columns 'a'"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "two columns 'a'"),
        ({"_offset": int}, "begins with '_'"),
        ({" ": int}, "no name"),
        ({"a": "stirng"}, "did you mean 'string'"),
        ({"a": "timestmp"}, "did you mean 'timestamp'"),
        ({"a": "timestamp[xs]"}, "units s, ms, us, ns"),
        ({"a": "timestamp[us, tz=Mars/Olympus]"}, "no time zone 'Mars/Olympus'"),
        ({"a": "decimal(99,2)"}, "1 to 76 digits"),
        ({"a": "decimal(5,9)"}, "scale of 0 to 5"),
        ({"a": "decimal(x,2)"}, "expected a number"),
        ({"a": "list<string"}, "expected '>'"),
        ({"a": "list"}, "expected '<'"),
        ({"a": "int64 int32"}, "expected the end"),
        ({"a": "int64<string>"}, "takes arguments"),
        ({"a": "int64 not"}, "'null' after 'not'"),
        ({"a": "struct<>"}, "expected a column name"),
        ("id", "expected more"),
        ("id int64,", "expected more"),
        ("`id int64", "not closed"),
        ({"a": pa.struct([])}, "no fields"),
        ({"a": pa.struct([("x", pa.int8()), ("x", pa.int8())])}, "two columns 'x'"),
        ({"a": pa.null()}, "say what it may hold"),
        ({"a": pa.float16()}, "use float32"),
        ({"a": pa.union([pa.field("x", pa.int8())], mode="dense")}, "not supported"),
        ({"a": pa.list_(pa.int8(), 3)}, "use list<…>"),
        ({"a": pa.uuid()}, "not supported"),
        ({"a": pa.month_day_nano_interval()}, "not supported"),
        ({"a": object}, "object has no Arrow type"),
        ({"a": 5}, "5 has no Arrow type"),
        ({"a": tuple[int, str]}, "fixed length"),
        (Endless, "contains itself"),
        (Choice, "choice of types"),
        (Bare, "does not say what it holds"),
        (Unresolved, "cannot be resolved"),
        (5, "a int is not a schema"),
        ([("a", "int64")], "a list is not a schema"),
    ],
)
def test_a_schema_that_cannot_be_meant_is_refused_with_its_reason(schema: Any, why: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema(schema)
    assert why in caught.value.why


@pytest.mark.parametrize(
    "data",
    [{}, {"columns": 5}, {"columns": [{"name": "a"}]}, {"columns": [{"name": "a", "type": "x", "nullable": True}]}],
)
def test_a_damaged_stored_form_is_refused(data: Any) -> None:
    with pytest.raises(SchemaInvalid, match="damaged"):
        schema_from_json(data)


def test_a_refusal_shows_a_long_schema_only_in_part() -> None:
    with pytest.raises(SchemaInvalid) as caught:
        parse_schema({f"column_{i}": "nonsense" for i in range(1000)})
    assert len(caught.value.schema) <= 200
