"""A schema changes only so that rows already written can follow, and then they do."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SchemaConflict
from headwater.schema import Change, conform, diff, evolve, parse_schema, stored_schema, to_batches
from headwater.schema.evolution import widens

from .strategies import FLAT_TYPES, columns, schemas, schemas_and_rows, values


def changes(old: str, new: str, *, force: bool = False) -> list[str]:
    return [str(change) for change in evolve("t", parse_schema(old), parse_schema(new), force=force)]


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a int64", "a int64", []),
        ("a int64", "a int64, b string", ["b: added as string"]),
        ("a int64 not null", "a int64", ["a: made nullable"]),
        ("a int32 not null", "a int64", ["a: widened from int32 to int64", "a: made nullable"]),
        ("a int8", "a int16", ["a: widened from int8 to int16"]),
        ("a uint8", "a uint64", ["a: widened from uint8 to uint64"]),
        ("a uint32", "a int64", ["a: widened from uint32 to int64"]),
        ("a float32", "a float64", ["a: widened from float32 to float64"]),
        ("a int32", "a float64", ["a: widened from int32 to float64"]),
        ("a int16", "a float32", ["a: widened from int16 to float32"]),
        ("a string", "a large_string", ["a: widened from string to large_string"]),
        ("a decimal(5,2)", "a decimal(12,2)", ["a: widened from decimal(5,2) to decimal(12,2)"]),
        ("a decimal(5,2)", "a decimal256(5,2)", ["a: widened from decimal(5,2) to decimal256(5,2)"]),
        ("a date", "a timestamp", ["a: widened from date to timestamp"]),
        (
            "a struct<x: int8>",
            "a struct<x: int16, y: string>",
            ["a.x: widened from int8 to int16", "a.y: added as string"],
        ),
        ("a list<int8>", "a list<int64>", ["a[]: widened from int8 to int64"]),
        ("a list<int8>", "a large_list<int8>", ["a: widened from list<int8> to large_list<int8>"]),
        ("a list<struct<x: int8>>", "a list<struct<x: int8, y: date>>", ["a[].y: added as date"]),
        ("a map<string, int8>", "a map<string, int16>", ["a{}: widened from int8 to int16"]),
        ("a list<int8 not null>", "a list<int8>", ["a[]: made nullable"]),
        ("a int8, b int8", "b int8, a int8", ["b: moved", "a: moved"]),
    ],
)
def test_changes_that_rows_can_follow_are_allowed(old: str, new: str, expected: list[str]) -> None:
    assert changes(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "column", "why"),
    [
        ("a int64, b string", "a int64", "b", "was removed"),
        ("a int64, b string", "a int64, c string", "b", "looks like a rename of 'b' to 'c'"),
        ("a int64, b string", "a int64, c string not null", "c", "rename of 'b' to 'c'"),
        ("a int64, b string", "a int64, c date", "b", "was removed"),
        ("a int64", "a int64, b string not null", "b", "is new and not null"),
        ("a int64", "a int64 not null", "a", "admitted null until now"),
        ("a int64", "a int32", "a", "from int64 to int32, which is narrower"),
        ("a int64", "a float64", "a", "from int64 to float64"),
        ("a int32", "a float32", "a", "from int32 to float32"),
        ("a int64", "a string", "a", "from int64 to string"),
        ("a int32", "a uint64", "a", "from int32 to uint64"),
        ("a uint64", "a int64", "a", "from uint64 to int64"),
        ("a uint32", "a int32", "a", "from uint32 to int32"),
        ("a decimal(12,2)", "a decimal(5,2)", "a", "narrower"),
        ("a decimal(5,2)", "a decimal(12,3)", "a", "from decimal(5,2) to decimal(12,3)"),
        ("a date", "a timestamp[ns]", "a", "from date to timestamp[ns]"),
        ("a timestamp", "a timestamp[us]", "a", "from timestamp to timestamp[us]"),
        ("a large_string", "a string", "a", "narrower"),
        ("a large_list<int8>", "a list<int8>", "a", "from large_list<int8> to list<int8>"),
        ("a struct<x: int8>", "a struct<y: int8>", "a.x", "rename of 'x' to 'y'"),
        ("a struct<x: int8, y: int8>", "a struct<x: int8>", "a.y", "was removed"),
        ("a struct<x: int8>", "a struct<x: int8, y: int8 not null>", "a.y", "new and not null"),
        ("a list<int64>", "a list<int8>", "a[]", "narrower"),
        ("a list<int64>", "a int64", "a", "from list<int64> to int64"),
        ("a map<string, int8>", "a map<int8, int8>", "a", "from map<string, int8>"),
        ("a map<string, int8>", "a map<string, int8 not null>", "a{}", "admitted null"),
    ],
)
def test_changes_that_rows_cannot_follow_are_refused(old: str, new: str, column: str, why: str) -> None:
    with pytest.raises(SchemaConflict) as caught:
        changes(old, new)
    assert caught.value.column == column
    assert why in caught.value.why


def test_force_lets_columns_go_but_nothing_else() -> None:
    assert changes("a int64, b string", "a int64", force=True) == ["b: removed (string)"]
    assert changes("a int64, b string", "a int64, c string", force=True) == [
        "c: added as string",
        "b: removed (string)",
    ]
    assert changes("a struct<x: int8, y: int8>", "a struct<x: int8>", force=True) == ["a.y: removed (int8)"]
    for refused in ("a int32", "a int64 not null", "a int64, c string not null"):
        with pytest.raises(SchemaConflict):
            changes("a int64, b string", refused, force=True)


def test_a_difference_can_be_shown_without_being_allowed() -> None:
    [change] = diff(parse_schema("a int64"), parse_schema("a string"))
    assert change == Change(
        kind="retyped", column="a", old="int64", new="string", refused="would change from int64 to string"
    )
    assert change.description == str(change) == "a: retyped from int64 to string"


@given(schemas)
def test_no_schema_differs_from_itself(schema: pa.Schema) -> None:
    assert diff(schema, schema) == []


@given(schemas, schemas)
def test_two_schemas_without_a_difference_are_equal(one: pa.Schema, other: pa.Schema) -> None:
    assert (diff(one, other) == []) == one.equals(other)


@given(st.sampled_from(FLAT_TYPES), st.sampled_from(FLAT_TYPES), st.data())
def test_every_value_survives_widening(old: pa.DataType, new: pa.DataType, data: st.DataObject) -> None:
    if not widens(old, new):
        return
    batch = batch_of([{"a": value} for value in data.draw(st.lists(values(old), max_size=5))], pa.schema([("a", old)]))
    wide = conform(batch, pa.schema([("a", new)]))
    back = [_narrowed(value, old) for value in wide.column("a").to_pylist()]
    assert back == batch.column("a").to_pylist()


def _narrowed(value: Any, kind: pa.DataType) -> Any:
    return value.date() if pa.types.is_date(kind) and isinstance(value, datetime.datetime) else value


@given(schemas_and_rows(), st.lists(columns, max_size=2), st.randoms())
def test_old_rows_keep_their_values_under_any_allowed_schema(
    schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]], more: list[pa.Field], random: Any
) -> None:
    schema, rows = schema_and_rows
    added = {column.name: column.with_nullable(True) for column in more if column.name not in schema.names}
    fields = [*(column.with_nullable(True) for column in schema), *added.values()]
    random.shuffle(fields)
    target = pa.schema(fields)
    evolve("t", schema, target)
    old = batch_of(rows, schema)
    new = conform(old, target)
    new.validate(full=True)
    assert new.schema.equals(target)
    assert new.select(schema.names).equals(old)
    assert all(new.column(name).null_count == len(rows) for name in added)


def test_a_batch_that_conforms_is_returned_as_it_is() -> None:
    batch = batch_of([{"a": 1}], parse_schema("a int64"))
    assert conform(batch, parse_schema("a int64")) is batch


def test_nested_rows_follow_too() -> None:
    old = parse_schema("a list<struct<x: int8, gone: string>>, m map<string, struct<x: int8>>, d list<date>")
    new = parse_schema(
        "d list<timestamp>, a list<struct<new: date, x: int64>>, m map<string, struct<x: int16, y: string>>"
    )
    rows: list[dict[str, Any]] = [
        {"a": [{"x": 1, "gone": "z"}, None], "m": {"k": {"x": 2}}, "d": [datetime.date(1970, 1, 2)]},
        {"a": None, "m": None, "d": None},
        {"a": [], "m": {}, "d": []},
    ]
    evolve("t", old, new, force=True)
    for start in range(3):
        result = conform(batch_of(rows, old).slice(start), new)
        result.validate(full=True)
        expected = [
            {
                "d": [datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC)],
                "a": [{"new": None, "x": 1}, None],
                "m": [("k", {"x": 2, "y": None})],
            },
            {"d": None, "a": None, "m": None},
            {"d": [], "a": [], "m": []},
        ]
        assert result.to_pylist() == expected[start:]


def test_a_column_that_came_back_with_another_type_is_new() -> None:
    old = batch_of([{"a": 1, "b": 2}], parse_schema("a int64, b int64"))
    assert conform(old, parse_schema("a string, b int8")).to_pylist() == [{"a": None, "b": None}]


def test_a_batch_without_rows_conforms() -> None:
    empty = batch_of([], parse_schema("a int8, x list<int8>"))
    assert conform(empty, parse_schema("a int64, x list<int64>, b string")).num_rows == 0


def test_rows_written_before_and_after_a_change_make_one_table() -> None:
    old, new = parse_schema("id int32 not null"), parse_schema("id int64 not null, name string")
    evolve("t", old, new)
    before = conform(to_batches({"id": 1}, old, topic="t")[0].data, stored_schema(new))
    after = to_batches({"id": 2**40, "name": "x"}, new, topic="t")[0].data
    table = pa.Table.from_batches([before, after])
    assert table.to_pylist() == [{"id": 1, "name": None}, {"id": 2**40, "name": "x"}]
