"""Values as PostgreSQL writes them, as Arrow values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.postgres.types import CatalogueType, column_type

NAMES = {
    16: "bool", 17: "bytea", 20: "int8", 21: "int2", 23: "int4", 25: "text", 114: "json", 700: "float4", 701: "float8",
    1042: "bpchar", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz", 1186: "interval", 1700: "numeric",
    2950: "uuid", 600: "point",
}  # fmt: skip
CATALOGUE = {number: CatalogueType(name, "b") for number, name in NAMES.items()} | {
    1009: CatalogueType("_text", "b", element=25),
    1007: CatalogueType("_int4", "b", element=23),
    1182: CatalogueType("_date", "b", element=1082),
    50001: CatalogueType("mood", "e"),
    50002: CatalogueType("price", "d", base=1700, modifier=(8 << 16 | 2) + 4),
    3904: CatalogueType("int4range", "r"),
}


# Any: a value.
def converted(number: int, texts: list[str | None], modifier: int = -1) -> tuple[list[Any], list[bool] | None]:
    values, bad = column_type(number, modifier, CATALOGUE).array(pa.array(texts, pa.string()))
    return values.to_pylist(), None if bad is None else bad.to_pylist()


@pytest.mark.parametrize(
    ("number", "text", "value"),
    [
        (16, "t", True),
        (21, "-5", -5),
        (20, "9223372036854775807", 2**63 - 1),
        (701, "-Infinity", float("-inf")),
        (17, "\\x00ff10", b"\x00\xff\x10"),
        (17, "\\x", b""),
        (1082, "2024-02-29", dt.date(2024, 2, 29)),
        (1083, "23:59:59.5", dt.time(23, 59, 59, 500_000)),
        (1114, "2024-02-29 01:02:03.000004", dt.datetime(2024, 2, 29, 1, 2, 3, 4)),
        (1184, "2024-02-29 01:02:03+00", dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC)),
        (1186, "1 day 02:00:00", "1 day 02:00:00"),
        (1700, "1.00000000000000000000000000000000000000000000000001", "1.00000000000000000000000000000000000000000000000001"),
        (50002, "12.50", Decimal("12.50")),
        (50001, "happy", "happy"),
        (3904, "[1,5)", "[1,5)"),
        (1042, "ab  ", "ab"),
        (1009, '{a,"b c",NULL,"NULL","q\\"\\\\"}', ["a", "b c", None, "NULL", 'q"\\']),
        (1009, "{}", []),
        (1007, "[0:1]={1,2}", [1, 2]),
    ],
)  # fmt: skip
def test_values_are_read(number: int, text: str, value: object) -> None:
    assert converted(number, [None, text]) == ([None, value], None)


@pytest.mark.parametrize(
    ("number", "modifier", "good", "bad"),
    [
        (1082, -1, "2024-01-01", ["0044-03-15 BC", "infinity", "-infinity", "10000-01-01"]),
        (1114, -1, "2024-01-01 00:00:00", ["0044-03-15 00:00:00 BC", "infinity", "12024-01-01 00:00:00"]),
        (1184, -1, "2024-01-01 00:00:00+00", ["0044-03-15 00:00:00+00 BC", "-infinity"]),
        (1083, -1, "12:00:00", ["24:00:00"]),
        (1700, (10 << 16 | 2) + 4, "1.50", ["NaN"]),
        (1007, -1, "{1}", ["{{1,2},{3,4}}"]),
        (1182, -1, "{2024-01-01}", ["{infinity}"]),
    ],
)
def test_what_does_not_fit_is_null_and_told(number: int, modifier: int, good: str, bad: list[str]) -> None:
    values, misfits = converted(number, [good, None, *bad, good], modifier)
    assert [value is None for value in values] == [False, True, *[True] * len(bad), False]
    assert misfits == [False, False, *[True] * len(bad), False]


def test_unknown_types_are_text_with_a_note() -> None:
    assert column_type(600, -1, CATALOGUE).note
    assert column_type(99999, -1, CATALOGUE).note
    assert not column_type(2950, -1, CATALOGUE).note


@pytest.mark.parametrize(
    ("precision", "scale", "kind"),
    [
        (10, 2, pa.decimal128(10, 2)),
        (38, 0, pa.decimal128(38, 0)),
        (50, 5, pa.decimal256(50, 5)),
        (3, -2, pa.decimal128(5, 0)),
        (2, 4, pa.decimal128(4, 4)),
        (500, 5, pa.string()),
    ],
)
def test_numbers_with_a_precision_are_decimals(precision: int, scale: int, kind: pa.DataType) -> None:
    assert column_type(1700, (precision << 16 | scale & 0x7FF) + 4, CATALOGUE).arrow == kind


def quoted(items: list[str | None]) -> str:
    inner = [
        '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"' if item is not None else "NULL" for item in items
    ]
    return "{" + ",".join(inner) + "}"


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(st.characters(exclude_characters="\0"), max_size=5)), max_size=4)), max_size=6))  # fmt: skip
def test_arrays_of_any_text_are_read(arrays: list[list[str | None] | None]) -> None:
    assert converted(1009, [None if one is None else quoted(one) for one in arrays]) == (arrays, None)


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=4)), max_size=6))
def test_arrays_of_numbers_are_read(arrays: list[list[int | None] | None]) -> None:
    texts = [
        None if one is None else "{" + ",".join("NULL" if n is None else str(n) for n in one) + "}" for one in arrays
    ]
    assert converted(1007, texts) == (arrays, None)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=9), st.integers(0, 3))
def test_bytes_are_read(given_values: list[bytes | None], skip: int) -> None:
    texts = pa.array([None if one is None else "\\x" + one.hex() for one in given_values], pa.string())[skip:]
    values, bad = column_type(17, -1, CATALOGUE).array(texts)
    assert (values.to_pylist(), bad) == (given_values[skip:], None)
