"""Filters, columns and masks: what is left out is never in the log, and a topic holds what the condition lets through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture import Capture, CaptureStore, SourceInvalid
from headwater.capture.condition import Condition
from headwater.capture.port import Changes, Table
from headwater.capture.transform import Transform, hashed
from headwater.errors import ArgumentInvalid, HeadwaterError
from tests.capture.shop import config_of, log_at, shop_at, table_of

ORDERS = Table(
    name="orders", columns=pa.schema([("id", pa.int64()), ("status", pa.string()), ("total", pa.int64())]), key=("id",)
)
Row = tuple[int, str | None, int]
ROWS = st.tuples(st.integers(1, 4), st.sampled_from(["draft", "paid", None]), st.integers(0, 3))


def _history(steps: list[Row | int]) -> Iterator[tuple[str, Row, Row | None]]:
    """The changes that a table makes of steps: a row is written, or a key deleted."""
    table: dict[int, Row] = {}
    for step in steps:
        key = step if isinstance(step, int) else step[0]
        before = table.pop(key, None)
        if not isinstance(step, int):
            table[key] = step
            yield ("c" if before is None else "u"), step, before
        elif before is not None:
            yield "d", before, None


# Any: values of a column.
def _batch(rows: list[Any]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 3
    return pa.RecordBatch.from_arrays(
        [pa.array(some, one.type) for some, one in zip(columns, ORDERS.columns, strict=True)], schema=ORDERS.columns
    )


def _changes(history: list[tuple[str, Row, Row | None]], *, with_before: bool, key_only: bool) -> Changes:
    rows = [(row[0], None, None) if key_only and operation == "d" else row for operation, row, _ in history]
    return Changes(
        table=ORDERS,
        operations=pa.array([one[0] for one in history], pa.string()),
        rows=_batch(rows),
        at_us=pa.array(range(len(history)), pa.int64()),
        order=pa.array(range(len(history)), pa.int64()),
        before=_batch([one[2] or (None, None, None) for one in history]) if with_before else None,
    )


@given(
    steps=st.lists(ROWS | st.integers(1, 4), max_size=12),
    batch_rows=st.integers(1, 5),
    with_before=st.booleans(),
    key_only=st.booleans(),
)
def test_a_topic_holds_the_rows_that_meet_the_condition(
    steps: list[Row | int], batch_rows: int, with_before: bool, key_only: bool
) -> None:
    transform = Transform(where={"orders": Condition("status <> 'draft' AND total > 0")})
    held: dict[int, tuple[Any, ...]] = {}
    table: dict[int, Row] = {}
    history = list(_history(steps))
    for at in range(0, len(history), batch_rows):
        part = history[at : at + batch_rows]
        for operation, row, _ in part:
            table.pop(row[0], None)
            if operation != "d":
                table[row[0]] = row
        kept = transform.apply(_changes(part, with_before=with_before, key_only=key_only))
        if kept is None:
            continue
        for operation, row in zip(kept.operations.to_pylist(), kept.rows.to_pylist(), strict=True):
            known = held.pop(row["id"], None)
            if operation != "d":
                held[row["id"]] = tuple(row.values())
            if with_before:
                assert (operation == "c") == (known is None) or operation == "d"
    assert held == {key: row for key, row in table.items() if row[1] not in (None, "draft") and row[2] > 0}


@given(values=st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=10))
def test_equal_values_have_equal_hashes_and_no_value_is_left(values: list[str | None]) -> None:
    table = Table(name="people", columns=pa.schema([("mail", pa.string()), ("name", pa.string())]))
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.string())] * 2, schema=table.columns)
    changes = Changes(
        table=table,
        operations=pa.array(["c"] * len(values)),
        rows=rows,
        at_us=pa.array([0] * len(values)),
        order=pa.array([0] * len(values)),
        before=rows,
    )
    kept = Transform(mask={"people.mail": "hash", "people.name": "***"}, salt=b"secret").apply(changes)
    assert kept is not None
    wanted = [None if value is None else hashed(value, b"secret") for value in values]
    assert kept.rows["mail"].to_pylist() == wanted
    assert kept.before is not None
    assert kept.before["mail"].to_pylist() == wanted
    assert set(kept.rows["name"].to_pylist()) <= {None, "***"}


def test_masked_values_are_nowhere_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CAPTURE_SALT", "a long secret")
    shop = shop_at(tmp_path)
    shop.execute("CREATE TABLE people (mail TEXT PRIMARY KEY, name TEXT, phone TEXT, age INTEGER, note TEXT)")
    shop.execute("INSERT INTO people VALUES ('ada@example.org', 'Ada Lovelace', '555-1234', 36, 'unseen words')")
    shop.execute("INSERT INTO people VALUES ('bob@example.org', 'Bob Cratchit', '555-9999', 'not a number', 'x')")
    with log_at(tmp_path) as log:
        config = config_of(
            tmp_path,
            tables=["people"],
            columns={"people": ["mail", "name", "phone", "age"]},
            mask={"people.mail": "hash", "people.name": "***", "people.phone": "null"},
        )
        CaptureStore(log).create(config)
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("UPDATE people SET age = 37 WHERE age = 36")
            shop.execute("DELETE FROM people WHERE age = 37")
            capture.catch_up()
        rows = log.read("shop.people").rows()
        assert log.topic("shop.people").schema.names == ["mail", "name", "phone", "age"]
        assert log.read("shop.people.dlq").count() == 1
    assert {row["mail"] for row in rows} == {hashed("ada@example.org", b"a long secret")}
    assert [(row["name"], row["phone"], row["age"], row["_tombstone"]) for row in rows] == [
        ("***", None, 36, False), ("***", None, 37, False), ("***", None, 37, True),
    ]  # fmt: skip
    written = b"".join(path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file())
    for secret in ("ada@example", "Lovelace", "555-", "bob@", "Cratchit", "unseen", "a long secret"):
        assert secret.encode() not in written, secret


def test_a_row_that_leaves_the_condition_is_deleted_from_its_topic(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1), (2, 'milk', 1.0, 0), (3, 'jam', 4.0, 1)")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"], where={"orders": "paid = TRUE"}))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            assert list(table_of(log, "shop.orders", ("id",))) == [(1,), (3,)]
            shop.execute("UPDATE orders SET paid = 1 - paid WHERE id < 3")
            capture.catch_up()
        assert list(table_of(log, "shop.orders", ("id",))) == [(3,), (2,)]


def test_settings_that_do_not_fit_the_tables_are_refused(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    before = shop.execute("SELECT name FROM sqlite_master").fetchall()
    with log_at(tmp_path) as log:
        for settings, expected in (
            ({"mask": {"orders.item": "hash"}}, "HEADWATER_CAPTURE_SALT"),
            ({"mask": {"orders.itm": "null"}}, "no column 'itm'. Did you mean 'item'"),
            ({"mask": {"orders.id": "null"}}, "'id' is of its key"),
            ({"columns": {"orders": ["item"]}}, "'id' is of its key"),
            ({"where": {"order": "id = 1"}}, "no such table. Did you mean 'orders'"),
            ({"outbox": "orders"}, "no column 'aggregatetype'"),
            ({"outbox": "out"}, "no such table"),
            ({"transactions": True}, "triggers do not know"),
        ):
            with pytest.raises(HeadwaterError) as refused:
                CaptureStore(log).create(config_of(tmp_path, **settings))
            assert isinstance(refused.value, (SourceInvalid, ArgumentInvalid))
            assert expected in str(refused.value)
        for wrong in ({"mask": {"item": "null"}}, {"where": {"orders": "id ="}}):
            with pytest.raises(ArgumentInvalid):
                config_of(tmp_path, **wrong)
    assert shop.execute("SELECT name FROM sqlite_master").fetchall() == before
