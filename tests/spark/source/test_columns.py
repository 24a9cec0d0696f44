"""Every type of a topic's column has a type in Spark, and its values get there unchanged."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.errors import SchemaInvalid
from headwater.log import Log
from headwater.spark.source.columns import carried_type, spark_type
from tests.spark.source.planner import plan
from tests.spark.source.planner import table as table_of
from tests.spark.source.spark_reads import table

AT = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)

#: The type in the topic, the type in Spark, a value, and the value in Spark where that is another.
TYPES: list[tuple[str, str, Any, Any]] = [
    ("bool", "boolean", True, True),
    ("int8", "tinyint", -8, -8),
    ("int16", "smallint", -16, -16),
    ("int32", "int", -32, -32),
    ("int64", "bigint", -(2**62), -(2**62)),
    ("uint8", "smallint", 255, 255),
    ("uint16", "int", 65_535, 65_535),
    ("uint32", "bigint", 2**32 - 1, 2**32 - 1),
    ("uint64", "decimal(20,0)", 2**64 - 1, Decimal(2**64 - 1)),
    ("float32", "float", 0.5, 0.5),
    ("float64", "double", 0.1, 0.1),
    ("decimal(12,2)", "decimal(12,2)", Decimal("9.90"), Decimal("9.90")),
    ("string", "string", "Zoë", "Zoë"),
    ("binary", "binary", b"\x00", bytearray(b"\x00")),
    ("date", "date", date(2026, 1, 1), date(2026, 1, 1)),
    ("timestamp", "timestamp", AT, AT),
    ("time", "time(6)", time(12, 30), time(12, 30)),
    ("duration", "interval day to second", timedelta(seconds=1.5), timedelta(seconds=1.5)),
    ("list<uint8>", "array<smallint>", [1, None], [1, None]),
    ("map<string, int64>", "map<string,bigint>", {"a": 1}, {"a": 1}),
    ("struct<a int64, b list<string>>", "struct<a:bigint,b:array<string>>", {"a": 1, "b": ["x"]}, (1, ["x"])),
]


@pytest.fixture
def kinds(log: Log) -> Log:
    log.create("kinds", ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(TYPES)))
    log.append("kinds", [{f"c{number}": value for number, (_, _, value, _) in enumerate(TYPES)}, {}])
    return log


def test_each_type_has_its_spark_type(kinds: Log) -> None:
    assert [column.dataType.simpleString() for column in plan(kinds, "kinds").schema] == [kind for _, kind, *_ in TYPES]


def test_values_leave_the_reader_unchanged(kinds: Log) -> None:
    row, nothing = table_of(kinds, "kinds")
    assert list(row.values()) == [value for _, _, value, _ in TYPES]
    assert set(nothing.values()) == {None}


@pytest.mark.core
def test_values_arrive_unchanged_in_spark(spark: SparkSession, kinds: Log) -> None:
    rows = table(spark, kinds, "kinds")
    assert [kind for _, kind in rows.dtypes] == [kind for _, kind, _, _ in TYPES]
    found, nothing = rows.collect()
    for value, (kind, _, _, expected) in zip(found, TYPES, strict=True):
        if isinstance(value, datetime):
            value = value.astimezone(UTC)
        assert value == expected, kind
    assert set(nothing) == {None}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.time32("s"), "time(6)"),
        (pa.duration("ms"), "interval day to second"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.large_string(), "string"),
        (pa.binary(16), "binary"),
        (pa.large_list(pa.large_string()), "array<string>"),
        (pa.float16(), "float"),
    ],
)
def test_rarer_types_have_a_spark_type_too(kind: pa.DataType, expected: str) -> None:
    assert spark_type(kind).simpleString() == expected


def test_a_decimal_too_wide_for_spark_is_refused() -> None:
    with pytest.raises(SchemaInvalid, match="38 digits"):
        carried_type(pa.decimal256(60, 2))
