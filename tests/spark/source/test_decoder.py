"""Rows that cannot be read go to the dead-letter topic, each of them once, and the rest goes on."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import EncodingInvalid, SchemaConflict
from headwater.log import Log
from headwater.log.dead_letters import DEAD_LETTER_SCHEMA, Selection
from headwater.log.redrive import redrive
from headwater.schema import parse_schema
from headwater.schema.encodings import avro
from headwater.spark.source.decoder import AvroDecoder, JsonDecoder, decode
from tests.spark.source.planner import Checkpoint, plan, table

GOOD = [{"id": 1, "name": "a"}, {"id": 2, "name": None, "more": [1]}, {"id": 3}]
BAD = [b"{", b"", b"[1]", b'{"id": "x"}', b'{"id": 1}{"id": 2}', b"\xff"]


@pytest.fixture
def raw(log: Log) -> Log:
    log.create("events")
    values = [json.dumps(row).encode() for row in GOOD]
    mixed = [values[0], BAD[0], values[1], *BAD[1:4], values[2], *BAD[4:]]
    log.append("events", [(str(number).encode(), value) for number, value in enumerate(mixed)])
    return log


OPTIONS = {"format": "json", "schema": "id int64, name string"}


def letters(log: Log) -> list[dict[str, object]]:
    return log.read("events.dlq").rows()


def test_values_become_columns_and_the_unreadable_dead_letters(raw: Log, checkpoint: Checkpoint) -> None:
    checkpoint(plan(raw, "events", metadata=True, **OPTIONS))
    rows = [(row["id"], row["name"], row["_key"], row["_offset"]) for row in checkpoint.rows]
    assert rows == [(1, "a", b"0", 0), (2, None, b"2", 2), (3, None, b"6", 6)]
    found = letters(raw)
    assert [letter["value"] for letter in found] == BAD
    assert [letter["offset"] for letter in found] == [1, 3, 4, 5, 7, 8]
    assert {letter["query"] for letter in found} == {checkpoint.query}
    assert {letter["error"] for letter in found} == {"EncodingInvalid", "RowInvalid"}
    assert all(letter["message"] and letter["attempt"] == 1 and letter["topic"] == "events" for letter in found)
    assert raw.topic("events.dlq").schema.equals(DEAD_LETTER_SCHEMA)


def test_a_repeated_batch_doubles_no_dead_letter(raw: Log, checkpoint: Checkpoint) -> None:
    planned = plan(raw, "events", rows_max=4, **OPTIONS)
    checkpoint(planned)
    checkpoint.forget_commit()
    raw.append("events", [(b"k", b"worse")])
    checkpoint(planned)
    assert [letter["value"] for letter in letters(raw)] == [*BAD, b"worse"]


def test_a_task_with_many_dead_letters_appends_them_in_pieces_and_each_once(
    raw: Log, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.source.scan.DEAD_LETTERS_MAX", 2)
    checkpoint(plan(raw, "events", **OPTIONS))
    checkpoint.forget_commit()
    checkpoint(plan(raw, "events", **OPTIONS))
    assert [letter["value"] for letter in letters(raw)] == BAD


def test_a_bounded_read_may_run_twice(raw: Log) -> None:
    assert table(raw, "events", **OPTIONS) == table(raw, "events", **OPTIONS)
    assert len(letters(raw)) == len(BAD)


def test_a_row_that_was_put_back_and_fails_again_counts_its_attempts(raw: Log, checkpoint: Checkpoint) -> None:
    raw.append("events", [(b"k", b"traced")], headers={"trace": "t"})
    planned = plan(raw, "events", **OPTIONS)
    checkpoint(planned)
    for _ in range(2):
        redrive(raw, "events", Selection(text="", offsets=(range(len(BAD), 1000),)))
        checkpoint(planned)
    found = [letter for letter in letters(raw) if letter["value"] == b"traced"]
    assert [letter["attempt"] for letter in found] == [1, 2, 3]
    assert [dict(letter["headers"])["trace"] for letter in found] == [b"t"] * 3  # type: ignore[call-overload]
    assert redrive(raw, "events", attempts_max=3).parked == {found[-1]["error"]: 1}


def test_bad_rows_fail_the_read_on_request(raw: Log, checkpoint: Checkpoint) -> None:
    with pytest.raises(EncodingInvalid, match="events/0 offset 1"):
        table(raw, "events", bad_rows="fail", **OPTIONS)
    with pytest.raises(EncodingInvalid, match="events/0 offset 1"):
        checkpoint(plan(raw, "events", bad_rows="fail", **OPTIONS))
    assert "events.dlq" not in raw.topics()


def test_avro_values_are_read_by_their_writers_schema(log: Log) -> None:
    log.create("events")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    records = avro.encode(pa.record_batch({"id": [1, 2], "name": ["a", None]}, schema=schema))
    log.append("events", [(None, records[0]), (None, b"\x07"), (None, records[1])])
    rows = table(log, "events", format="avro", schema=json.dumps(avro.avro_schema(schema)))
    assert rows == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert [letter["offset"] for letter in letters(log)] == [1]


def test_a_format_is_for_topics_without_a_schema(orders: Log) -> None:
    with pytest.raises(SchemaConflict, match="`format` is for topics without a schema"):
        plan(orders, **OPTIONS)


VALUES = st.one_of(
    st.sampled_from(BAD),
    st.builds(lambda number: json.dumps({"id": number}).encode(), st.integers(-(2**62), 2**62)),
)


@given(values=st.lists(VALUES, max_size=30))
def test_whatever_surrounds_it_a_value_decodes_as_it_does_alone(values: list[bytes]) -> None:
    decoder = JsonDecoder(parse_schema("id int64"))
    together = decode(pa.array(values, pa.binary()), decoder)
    alone = [decode(pa.array([value], pa.binary()), decoder) for value in values]
    assert together.data.to_pylist() == [row for one in alone for row in one.data.to_pylist()]
    assert [fault.row for fault in together.faults] == [n for n, one in enumerate(alone) if one.faults]
    rows = together.rows if together.rows is not None else list(range(len(values)))
    assert sorted([*rows, *(fault.row for fault in together.faults)]) == list(range(len(values)))


def test_what_arrows_reader_cannot_say_is_read_row_by_row() -> None:
    decoder = JsonDecoder(parse_schema("at timestamp, price decimal(12,2)"))
    values = pa.array([b'{"at": "2026-01-01T00:00:00Z",\n "price": 9.90}'], pa.binary())
    assert decode(values, decoder).faults == []


def test_an_avro_schema_can_be_given_as_columns() -> None:
    assert AvroDecoder("id int64").schema.names == ["id"]
