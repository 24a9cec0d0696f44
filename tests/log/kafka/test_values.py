"""Every format of values gives back the rows that it was given, and says which message it cannot read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid
from headwater.http import Address, served
from headwater.log import open as open_log
from headwater.log.errors import RowTooLarge
from headwater.log.kafka.errors import ValueUnreadable
from headwater.log.kafka.values.formats import FORMATS, values_of
from headwater.log.kafka.values.frames import Frames
from headwater.log.kafka.values.port import Decoded, Incoming, Messages, Outgoing, Values
from headwater.log.kafka.values.registry import Registry, RegistryRefused, RegistryUnavailable
from headwater.log.topic import Topic
from headwater.schema import HEADERS_TYPE, EventTime, RowBatch, parse_schema, stored_schema
from tests.laws import costly
from tests.schema.strategies import schemas_and_rows
from tests.servers import free_port

PLAIN = ("frames", "json", "avro")
BYTES_MAX = 1_000_000


class MemoryRegistry(Registry):
    """A registry in memory, which counts what it is asked."""

    def __init__(self) -> None:
        super().__init__("http://memory")
        self.asked: list[str] = []
        self._made: list[str] = []

    def _ask_once(self, path: str, body: Any) -> Any:
        self.asked.append(path)
        if body is not None:
            self._made.append(body["schema"])
            return {"id": len(self._made)}
        number = int(path.rpartition("/")[2])
        if not 1 <= number <= len(self._made):
            raise RegistryRefused(address=self.address, code=40403, why="Schema not found")
        return {"schema": self._made[number - 1]}


def topic_of(schema: pa.Schema, **settings: Any) -> Topic:
    return Topic(name="orders", id="0" * 32, schema=schema, **settings)


def codec(format: str, schema: pa.Schema, *, registry: Registry | None = None, **settings: Any) -> Values:
    topic = topic_of(schema, **settings)
    return values_of(topic, format, schema_of=lambda _: schema, registry=registry or MemoryRegistry())


def incoming(messages: list[Outgoing], first: int = 0) -> Messages:
    return Messages([Incoming(first + n, message.value, None, message.headers) for n, message in enumerate(messages)])


def round_trip(values: Values, rows: RowBatch, *, bytes_max: int = BYTES_MAX) -> Decoded:
    messages = values.encode(rows, bytes_max=bytes_max)
    assert sum(message.rows for message in messages) == rows.data.num_rows
    assert all(message.value is None or len(message.value) <= bytes_max for message in messages)
    decoded = values.decode(incoming(messages))
    decoded.data.validate(full=True)
    if decoded.counts is not None:
        assert sum(decoded.counts) == decoded.data.num_rows
    return decoded


@pytest.mark.parametrize("format", FORMATS)
@given(schema_and_rows=schemas_and_rows())
def test_rows_are_read_back_exactly(format: str, schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]]) -> None:
    schema, rows = schema_and_rows
    batch = pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema))
    assert round_trip(codec(format, schema), RowBatch(batch)).data.equals(batch)


@given(schemas_and_rows(), st.data())
def test_frames_keep_headers_and_tombstones_of_rows(
    schema_and_rows: tuple[pa.Schema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, rows = schema_and_rows
    batch = pa.RecordBatch.from_pylist(rows, schema=stored_schema(schema))
    count = len(rows)
    header = st.one_of(st.none(), st.lists(st.tuples(st.text("ab", min_size=1), st.binary(max_size=3)), max_size=2))
    headers = pa.array(data.draw(st.lists(header, min_size=count, max_size=count)), HEADERS_TYPE)
    tombstones = pa.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), pa.bool_())
    values = codec("frames", schema)
    messages = [
        *values.encode(RowBatch(batch, headers, tombstones), bytes_max=BYTES_MAX),
        *values.encode(RowBatch(batch), bytes_max=BYTES_MAX),
    ]
    decoded = values.decode(incoming(messages))
    assert decoded.data.equals(pa.concat_batches([batch, batch]))
    if count:
        assert decoded.headers is not None
        assert decoded.tombstones is not None
        assert decoded.headers.equals(pa.concat_arrays([headers, pa.nulls(count, HEADERS_TYPE)]))
        assert decoded.tombstones.to_pylist() == [*tombstones.to_pylist(), *[False] * count]


@pytest.mark.parametrize("codec_name", ["none", "lz4", "zstd"])
def test_rows_are_cut_into_frames_that_a_message_holds(codec_name: str) -> None:
    schema = parse_schema("id int64, text string")
    batch = pa.RecordBatch.from_pylist(
        [{"id": n, "text": hashlib.sha512(str(n).encode()).hexdigest() * (n % 5)} for n in range(3_000)], schema=schema
    )
    decoded = round_trip(codec("frames", schema, codec=codec_name), RowBatch(batch), bytes_max=10_000)
    assert decoded.data.equals(batch)
    assert len(decoded.counts or []) > 10


@pytest.mark.parametrize("format", FORMATS)
def test_a_row_that_no_message_holds_is_refused(format: str) -> None:
    batch = pa.record_batch({"text": ["x", "x" * 5_000]})
    with pytest.raises(RowTooLarge):
        codec(format, batch.schema).encode(RowBatch(batch), bytes_max=4_000)


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "frames"])
def test_tombstones_have_no_value(format: str) -> None:
    schema = parse_schema("id int64 not null, text string")
    batch = pa.RecordBatch.from_pylist([{"id": n, "text": str(n)} for n in range(50)], schema=stored_schema(schema))
    gone = pa.array([n % 3 == 0 for n in range(50)])
    values = codec(format, schema, key=("id",), compact=True)
    messages = values.encode(RowBatch(batch, None, gone), bytes_max=BYTES_MAX)
    assert [message.value is None for message in messages] == gone.to_pylist()
    decoded = values.decode(incoming(messages))
    assert decoded.data.column("id").to_pylist() == [None if n % 3 == 0 else n for n in range(50)]
    assert decoded.tombstones is not None
    assert decoded.tombstones.equals(gone)
    assert values.decode(incoming([Outgoing(None)])).data.to_pylist() == [{"id": None, "text": None}]
    assert values.decode(Messages([])).data.num_rows == 0


def replaced(messages: Messages, place: int, value: bytes) -> Messages:
    """The messages with another value in one of them."""
    return Messages([*messages[:place], messages[place]._replace(value=value), *messages[place + 1 :]])


def refusal(values: Values, messages: Messages) -> ValueUnreadable | None:
    """The error of messages that cannot be read."""
    try:
        values.decode(messages)
    except ValueUnreadable as error:
        return error
    return None


@pytest.mark.parametrize("format", FORMATS)
@costly(2)
@given(count=st.integers(1, 60), place=st.integers(0, 59), value=st.binary(max_size=20))
def test_the_first_message_that_cannot_be_read_is_named(format: str, count: int, place: int, value: bytes) -> None:
    schema = parse_schema("id int64 not null, text string")
    values = codec(format, schema)
    one = [
        values.encode(
            RowBatch(pa.RecordBatch.from_pylist([{"id": n, "text": "x"}], schema=stored_schema(schema))),
            bytes_max=BYTES_MAX,
        )[0]
        for n in range(count)
    ]
    place %= count
    messages = incoming(one, first=100)
    messages = replaced(messages, place, value)
    alone, together = refusal(values, messages[place : place + 1]), refusal(values, messages)
    if alone is None:  # by chance these bytes are a value
        assert together is None
    else:
        assert together is not None
        assert (together.offset, together.format, together.why) == (100 + place, format, alone.why)


@pytest.mark.parametrize("format", PLAIN)
def test_rows_of_an_older_schema_are_read(format: str) -> None:
    versions = {1: parse_schema("id int32, text string"), 2: parse_schema("id int64, text string, more double")}
    older, newer = (
        values_of(topic_of(schema, schema_version=version), format, schema_of=versions.__getitem__)
        for version, schema in versions.items()
    )
    first = pa.RecordBatch.from_pylist([{"id": 1, "text": "a"}], schema=versions[1])
    second = pa.RecordBatch.from_pylist([{"id": 2, "more": 0.5}], schema=versions[2])
    messages = [
        *older.encode(RowBatch(first), bytes_max=BYTES_MAX),
        *newer.encode(RowBatch(second), bytes_max=BYTES_MAX),
        *older.encode(RowBatch(first), bytes_max=BYTES_MAX),
    ]
    assert newer.decode(incoming(messages)).data.to_pylist() == [
        {"id": 1, "text": "a", "more": None},
        {"id": 2, "text": None, "more": 0.5},
        {"id": 1, "text": "a", "more": None},
    ]


def test_frames_tell_their_event_times() -> None:
    schema = parse_schema("at timestamp")
    topic = topic_of(schema, time=EventTime.of("at"))
    values = Frames(topic, lambda _: schema)
    rows = pa.RecordBatch.from_pylist([{"at": 7}, {"at": 3}], schema=schema)
    [message] = incoming(values.encode(RowBatch(rows), bytes_max=BYTES_MAX))
    assert values.times(message) == (3, 7)


def test_formats_are_refused_where_they_cannot_be() -> None:
    topic = topic_of(parse_schema("id int64"), key=("id",), compact=True)
    with pytest.raises(ArgumentInvalid, match="one message per row"):
        values_of(topic, "frames", schema_of=lambda _: topic.schema)
    with pytest.raises(ArgumentInvalid, match="frames or json"):
        values_of(topic, "xml", schema_of=lambda _: topic.schema)
    with pytest.raises(ArgumentInvalid, match="registry"):
        values_of(topic, "avro-registry", schema_of=lambda _: topic.schema)


# -- the registry -----------------------------------------------------------------------------------------------------


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with open_log(tmp_path / "log") as log, served(log, Address(port=0), confined=False) as at:
        yield at


SCHEMA = parse_schema("id int64 not null, text string")
ROWS = pa.RecordBatch.from_pylist([{"id": n, "text": "x" * n} for n in range(40)], schema=stored_schema(SCHEMA))


def test_clients_of_confluent_read_our_messages_and_we_read_theirs(address: str) -> None:
    ours = codec("avro-registry", SCHEMA, registry=Registry(address))
    context = SerializationContext("orders", MessageField.VALUE)
    with SchemaRegistryClient({"url": address}) as client:
        messages = ours.encode(RowBatch(ROWS), bytes_max=BYTES_MAX)
        read = AvroDeserializer(client)
        assert [read(message.value, context) for message in messages] == ROWS.to_pylist()
        wider = '{"type":"record","name":"orders","fields":[{"name":"id","type":"long"},{"name":"more","type":["null","int"],"default":null},{"name":"text","type":["null","string"],"default":null}]}'
        write = AvroSerializer(client, wider)
        theirs = [write({"id": n, "more": n, "text": None}, context) for n in range(3)]
    both = Messages([*incoming(messages[:2]), *(Incoming(10 + n, value) for n, value in enumerate(theirs))])
    decoded = codec("avro-registry", SCHEMA, registry=Registry(address)).decode(both)
    assert decoded.data.column("id").to_pylist() == [0, 1, 0, 1, 2]


def test_a_schema_that_does_not_fit_its_subject_is_refused(address: str) -> None:
    codec("avro-registry", SCHEMA, registry=Registry(address)).encode(RowBatch(ROWS), bytes_max=BYTES_MAX)
    other = pa.record_batch({"id": ["x"]})
    with pytest.raises(RegistryRefused, match="incompatible"):
        codec("avro-registry", other.schema, registry=Registry(address)).encode(RowBatch(other), bytes_max=BYTES_MAX)


def test_a_registry_without_json_schemas_says_so(address: str) -> None:
    with pytest.raises(RegistryRefused, match="JSON"):
        codec("json-registry", SCHEMA, registry=Registry(address)).encode(RowBatch(ROWS), bytes_max=BYTES_MAX)


def test_an_unknown_number_is_an_error_of_its_message(address: str) -> None:
    values = codec("avro-registry", SCHEMA, registry=Registry(address))
    messages = incoming(values.encode(RowBatch(ROWS), bytes_max=BYTES_MAX))
    messages = replaced(messages, 5, b"\x00\x00\x00\x03\xe7" + (messages.values[5] or b"")[5:])
    with pytest.raises(ValueUnreadable, match="no schema 999") as error:
        values.decode(messages)
    assert error.value.offset == 5


def test_a_registry_that_is_away_stops_only_what_is_not_known(address: str) -> None:
    registry = Registry(address)
    values = codec("avro-registry", SCHEMA, registry=registry)
    messages = values.encode(RowBatch(ROWS), bytes_max=BYTES_MAX)
    values.decode(incoming(messages))
    registry.address = f"http://127.0.0.1:{free_port()}"
    assert values.decode(incoming(messages)).data.equals(ROWS)
    assert values.encode(RowBatch(ROWS), bytes_max=BYTES_MAX) == messages
    away = Registry(registry.address, seconds_max=0.2)
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        codec("avro-registry", SCHEMA, registry=away).decode(incoming(messages))


def test_a_schema_is_asked_for_once() -> None:
    registry = MemoryRegistry()
    values = codec("avro-registry", SCHEMA, registry=registry)
    messages = [message for _ in range(3) for message in values.encode(RowBatch(ROWS), bytes_max=BYTES_MAX)]
    for _ in range(3):
        values.decode(incoming(messages))
    assert registry.asked == ["/subjects/orders-value/versions", "/schemas/ids/1"]


def test_a_schema_of_json_is_registered_as_such() -> None:
    sent: list[Any] = []

    class Listening(MemoryRegistry):
        def _ask_once(self, path: str, body: Any) -> Any:
            sent.append(body)
            return super()._ask_once(path, body)

    codec("json-registry", SCHEMA, registry=Listening()).encode(RowBatch(ROWS), bytes_max=BYTES_MAX)
    assert sent[0]["schemaType"] == "JSON"
    assert json.loads(sent[0]["schema"])["required"] == ["id"]


def test_a_password_is_sent_and_not_shown() -> None:
    registry = Registry("http://ada:s%40fe@127.0.0.1:1/api/", seconds_max=0)
    assert (registry.address, registry._authorization) == ("http://127.0.0.1:1/api", "Basic YWRhOnNAZmU=")
    with pytest.raises(RegistryRefused):
        Registry("localhost:8081")
