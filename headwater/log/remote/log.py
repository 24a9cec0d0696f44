"""A log behind a server: the same port, over HTTP. Open it with `headwater.open("http://host:8080", token="…")`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

import orjson
import pyarrow as pa

from headwater.clock import Clock, SystemClock, time_us
from headwater.config import Config
from headwater.errors import Closed, NotFound, RowInvalid
from headwater.home import home_of
from headwater.log.client_config import ConsumerSettings, ProducerSettings, Rows, Start
from headwater.log.clients import ClientSet, Consumer, Producer
from headwater.log.errors import TransactionFinished, partition_not_found
from headwater.log.port import (
    Appended,
    Batch,
    Description,
    EventTimes,
    Expiry,
    Log,
    Offsets,
    RowWatch,
    Staged,
    Transaction,
)
from headwater.log.remote.connection import Connection, quoted
from headwater.log.remote.groups import RemoteGroups, RemoteMembership, RemoteWatch
from headwater.log.remote.pages import RemoteCursor, RemoteReader, read_range
from headwater.log.remote.stage import RemoteStage
from headwater.log.remote.wire import (
    appended_from_json,
    description_from_json,
    offsets_from_json,
    offsets_to_json,
    start_to_text,
    table_to_bytes,
    text_to_schema,
)
from headwater.log.topic import Topic, TopicChanges, TopicSettings, settings_to_json
from headwater.log.topic_rules import check_name
from headwater.schema import RowBatch, parse_schema, schema_from_json, schema_to_json, stored_schema, to_batches
from headwater.schema.rows import HEADERS_TYPE, with_headers

#: Consumers check for new partitions at this interval.
TOPIC_SECONDS = 1.0
#: One request waits for so long at most; a longer wait sends several.
WAIT_SECONDS_MAX = 20.0


class RemoteLog(Log):
    """A log that another process serves. Rows are sent as Arrow; errors have the class that the server raised."""

    read_only = False

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        certificates: str | Path | None = None,
        config: Config | None = None,
        clock: Clock | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.address = address.rstrip("/")
        self._token = token if token is not None else self.config.token
        self._certificates = certificates
        self._connection = connection or Connection(address, token=self._token, certificates=certificates)
        self._lock = threading.Lock()
        self._topics: dict[str, tuple[float, Topic]] = {}
        self._clients = ClientSet()

    def __repr__(self) -> str:
        return f"Log({self.address!r})"

    @property
    def home(self) -> Path:
        return home_of(self.address)

    @property
    def connection(self) -> Connection:
        """The connection to the server, for views of the log that have paths of their own."""
        return self._connection

    # -- topics -------------------------------------------------------------------------------------------------------

    def create(
        self, topic: str, schema: Any = None, *, exist_ok: bool = False, **settings: Unpack[TopicSettings]
    ) -> Topic:
        check_name("topic", topic)
        body = {"name": topic, "schema": _schema(schema), "exist_ok": exist_ok, **settings_to_json(settings)}
        return self._remember(self._connection.post("/topics", _given(body), again=exist_ok))

    def create_internal(self, topic: Topic) -> None:
        body = {"id": topic.id, "schema": schema_to_json(topic.schema), **topic.settings_to_json()}
        self._connection.post(f"/internal-topics/{_named(topic.name)}", _given(body), again=True)

    def alter(self, topic: str, *, schema: Any = None, force: bool = False, **changes: Unpack[TopicChanges]) -> Topic:
        body = {"schema": _schema(schema), "force": force, **settings_to_json(changes)}
        response = self._connection.ask("PATCH", f"/topics/{_named(topic)}", json=_given(body))
        return self._remember(response.json()["topic"])

    def delete(self, topic: str) -> None:
        self._connection.delete(f"/topics/{_named(topic)}")
        self._topics.pop(topic, None)

    def topic(self, name: str) -> Topic:
        return self._remember(self._connection.get(f"/topics/{_named(name)}"))

    def topics(self, pattern: str = "*", *, internal: bool = False) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = self._connection.get("/topics", pattern=pattern, internal=internal, limit=1_000, after=after)
            found += page["topics"]
            after = page["next"]
            if after is None:
                return found

    def partitions_of(self, topic: str) -> int:
        """The number of partitions of a topic, at most a second old."""
        return self._recent(topic, seconds=TOPIC_SECONDS).partitions

    def describe(self, topic: str) -> Description:
        return description_from_json(self._connection.get(f"/topics/{_named(topic)}/describe"))

    def schema(self, topic: str, version: int | None = None) -> pa.Schema:
        if version is None:
            return self.topic(topic).schema
        return schema_from_json(self._connection.get(f"/topics/{_named(topic)}/schemas/{version}"))

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        expected_offset: int | None = None,
        expected_key_offset: int | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        sent_at_us: int | None = None,
        durable: bool = True,
    ) -> Appended:

        table = self._table_of(topic, rows, headers)
        found = self._connection.append_rows(
            _named(topic),
            table_to_bytes(table),
            again=producer is not None and sequence is not None,
            partition=partition,
            expected_offset=expected_offset,
            expected_key_offset=expected_key_offset,
            producer=producer,
            sequence=sequence,
            epoch=epoch,
            sent_at_us=sent_at_us,
            durable=durable,
        )
        return appended_from_json(found)

    def flush(self, topic: str) -> None:
        self._connection.post(f"/topics/{_named(topic)}/flush", again=True)

    def punctuate(
        self, topic: str, time: datetime | int, *, producer: str | None = None, partition: int | None = None
    ) -> None:
        body = _given({"time_us": time_us(time), "producer": producer, "partition": partition})
        self._connection.post(f"/topics/{_named(topic)}/punctuate", body)

    def open_producer(self, name: str, *, holder: str | None = None) -> int:
        check_name("producer", name)
        epoch: int = self._connection.post(f"/producers/{name}/open", holder=holder)["epoch"]
        return epoch

    def last_sequence(self, topic: str, producer: str) -> int:
        found: int = self._connection.get(f"/topics/{_named(topic)}/producers/{quoted(producer)}")["sequence"]
        return found

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> RemoteTransaction:
        return RemoteTransaction(self._connection, self._table_of, producer=producer, epoch=epoch, sequence=sequence)

    def prepared(self) -> list[str]:
        found: list[str] = self._connection.get("/transactions/prepared")["transactions"]
        return found

    def commit(self, transaction: str) -> dict[str, Appended]:
        found = self._connection.post(f"/transactions/{quoted(transaction)}/commit", again=True)
        return {topic: appended_from_json(body) for topic, body in found["topics"].items()}

    def rollback(self, transaction: str) -> None:
        self._connection.delete(f"/transactions/{quoted(transaction)}")

    def committed_sequence(self, producer: str) -> int:
        found: int = self._connection.get(f"/producers/{quoted(producer)}")["sequence"]
        return found

    def transaction_metadata(self, producer: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._connection.get(f"/producers/{quoted(producer)}/metadata")["metadata"]
        return found

    def stage(self, name: str, *, sequence: int, attempt: str) -> RemoteStage:
        check_name("producer", name)
        check_name("attempt", attempt)
        return RemoteStage(self._connection, self._table_of, name, sequence=sequence, attempt=attempt)

    def commit_staged(
        self,
        staged: Iterable[Staged],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Appended]:
        parts = [part for one in staged for part in orjson.loads(one)]
        body = {"staged": parts, "producer": producer, "sequence": sequence, "epoch": epoch, "metadata": metadata}
        again = producer is not None and sequence is not None
        found = self._connection.post("/staged/commit", _given(body), again=again)
        return {topic: appended_from_json(body) for topic, body in found["topics"].items()}

    def discard_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        self._connection.delete(f"/staged/{quoted(name)}/{sequence}", attempt=attempt)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        *,
        start: Start = "earliest",
        stop: Start | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        archived: bool = False,
    ) -> RemoteReader:
        found = self._connection.get(
            f"/topics/{_named(topic)}/positions",
            start=start_to_text("" if start is None else start),
            stop=start_to_text(stop),
            partition=None if partitions is None else list(partitions),
            column=None if columns is None else list(columns),
            archived=archived,
        )
        starts, stops = offsets_from_json(found["start"]), offsets_from_json(found["stop"])
        return RemoteReader(
            self._connection,
            topic,
            text_to_schema(found["arrow_schema"]),
            # An empty list of partitions cannot be sent: the server then answers with all.
            {
                number: (starts[number], stops[number])
                for number in starts
                if partitions is None or number in partitions
            },
            columns=columns,
            limit=limit,
            archived=archived,
        )

    def read_range(
        self,
        topic: str,
        partition: int,
        *,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        punctuations: tuple[int, int | None] | None = None,
    ) -> Iterator[Batch]:
        return read_range(
            self._connection,
            _named(topic),
            partition,
            start=start,
            stop=stop,
            columns=columns,
            since_us=since_us,
            until_us=until_us,
            punctuations=punctuations,
        )

    def punctuations_at(self, topic: str, partition: int, offset: int) -> list[int]:
        path = f"/topics/{_named(topic)}/partitions/{partition}/punctuations"
        found: list[int] = self._connection.get(path, offset=offset)
        return found

    def event_times(
        self, topic: str, partition: int, *, start: int, stop: int, until_us: int | None = None
    ) -> EventTimes:
        path = f"/topics/{_named(topic)}/partitions/{partition}/event-times"
        return EventTimes(**self._connection.get(path, start=start, stop=stop, until_us=until_us))

    def tails(self, topic: str) -> dict[int, tuple[int, int]]:
        found = self._connection.get(f"/topics/{_named(topic)}/tails")
        return {int(number): (segment, position) for number, (segment, position) in found.items()}

    def start_offsets(self, topic: str) -> Offsets:
        return offsets_from_json(self._connection.get(f"/topics/{_named(topic)}/offsets/start"))

    def end_offsets(self, topic: str) -> Offsets:
        return offsets_from_json(self._connection.get(f"/topics/{_named(topic)}/offsets/end"))

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        return offsets_from_json(self._connection.get(f"/topics/{_named(topic)}/offsets/at", time=time_us(time)))

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        """Like `Log.wait`; the server holds each request until there are rows."""
        positions: Mapping[str, Offsets]
        if isinstance(topics, str):
            positions = {topics: self.end_offsets(topics) if after is None else after}
        else:
            positions = topics
        wanted = {topic: offsets_to_json(offsets) for topic, offsets in positions.items()}
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = WAIT_SECONDS_MAX if deadline is None else max(0.0, deadline - time.monotonic())
            held = min(left, WAIT_SECONDS_MAX)
            body = {"topics": wanted, "seconds": held}
            signs = self._connection.ask("POST", "/wait", json=body, again=True, wait_seconds=held).json()["signs"]
            if signs or (deadline is not None and left <= WAIT_SECONDS_MAX):
                return bool(signs)

    def row_watch(self, topics: Mapping[str, Offsets]) -> RemoteRowWatch:
        return RemoteRowWatch(self, topics)

    def cursor(self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None) -> RemoteCursor:
        found = self._recent(topic, seconds=TOPIC_SECONDS)
        if not 0 <= partition < found.partitions:
            raise partition_not_found(topic=topic, partition=partition, partitions=found.partitions)
        return RemoteCursor(self._connection, topic, found.id, partition, offset, columns)

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        return Expiry(**self._connection.get(f"/topics/{_named(topic)}/expiry", partition=partition, offset=offset))

    def watch(self) -> RemoteWatch:
        return RemoteWatch(self._connection)

    def resolve_transactions(self) -> None:
        """Nothing to do: the server resolves its transactions."""

    def recover(self, topic: str, *, appends: bool = True) -> None:
        """Nothing to do: who holds a lock of the log is the server."""

    # -- clients and groups -------------------------------------------------------------------------------------------

    def producer(self, topic: str | None = None, **settings: Unpack[ProducerSettings]) -> Producer:
        self._check_open()
        return self._clients.producer(self, topic, settings)

    def consumer(
        self, topics: str | Sequence[str], group: str | None = None, **settings: Unpack[ConsumerSettings]
    ) -> Consumer:
        self._check_open()
        return self._clients.consumer(self, topics, group, settings)

    def membership(
        self,
        group: str,
        *,
        member: str | None,
        topics: tuple[str, ...],
        partitions: Callable[[bool], dict[str, int]],  # noqa: ARG002  # the server counts them
        start: Start,
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> RemoteMembership:
        return RemoteMembership(
            self._connection,
            group,
            member=member,
            topics=topics,
            start=start,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
        )

    @property
    def groups(self) -> RemoteGroups:
        self._check_open()
        return RemoteGroups(self._connection, lambda topic: self.topic(topic).partitions)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        check_name("group", group)
        body = {"topic": topic, "offsets": offsets_to_json(offsets), "metadata": metadata}
        self._connection.post(f"/groups/{group}/offsets", body, again=True)

    def committed(self, group: str, topic: str) -> Offsets:
        return offsets_from_json(self._connection.get(f"/groups/{quoted(group)}/offsets/{_named(topic)}"))

    def committed_groups(self) -> dict[str, set[str]]:
        found = self._connection.get("/groups")
        return {one["group"]: set(one["committed"]) for one in found if one["committed"]}

    def forget_offsets(self, group: str, topic: str | None = None) -> None:
        self._connection.delete(f"/groups/{quoted(group)}/offsets", topic=topic)

    # -- close --------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def close(self) -> None:
        if self.closed:
            return
        self._clients.close()
        self._connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # A log is pickled as its address.
        return (_reopen, (self.address, self._token, self._certificates, self.config))

    # -- cached topics ------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(what="log")

    def _remember(self, body: Mapping[str, Any]) -> Topic:
        found = Topic.from_json(body)
        with self._lock:
            known = self._topics.get(found.name)
            # The same object, since other caches use the identity of its schema.
            if known is not None and known[1] == found:
                found = known[1]
            self._topics[found.name] = (time.monotonic(), found)
        return found

    def _recent(self, topic: str, *, seconds: float | None = None) -> Topic:
        """A cached topic, at most so many seconds old if given."""
        self._check_open()
        known = self._topics.get(topic)
        if known is None or (seconds is not None and time.monotonic() - known[0] > seconds):
            return self.topic(topic)
        return known[1]

    def _table_of(self, topic: str, rows: Rows, headers: Any = None) -> pa.Table:
        known = self._recent(topic)
        try:
            return _table_of(known, rows, headers)
        except RowInvalid:
            # The topic may have been altered, or deleted and created again.
            now = self.topic(topic)
            if now.id == known.id and now.schema_version == known.schema_version:
                raise
            return _table_of(now, rows, headers)


class RemoteRowWatch(RowWatch):
    """Looks at the end offsets of topics. There are no files to watch, and punctuations are not noticed."""

    def __init__(self, log: RemoteLog, topics: Mapping[str, Offsets]) -> None:
        self._log = log
        self._topics = topics
        self._ids = {name: log.topic(name).id for name in topics}

    @property
    def paths(self) -> list[Path]:
        return []

    def arrived(self) -> bool:
        try:
            if any(self._log.topic(name).id != known for name, known in self._ids.items()):
                return True
            ends = {name: self._log.end_offsets(name) for name in self._topics}
        except NotFound:
            return True
        return any(
            ends[name].get(number, 0) > offset
            for name, wanted in self._topics.items()
            for number, offset in wanted.items()
        )


class RemoteTransaction(Transaction):
    """A transaction of a remote log; see `Log.transaction`."""

    # Any: headers as `Log.append` takes them.
    def __init__(
        self,
        connection: Connection,
        table_of: Callable[[str, Rows, Any], pa.Table],
        *,
        producer: str | None,
        epoch: int | None,
        sequence: int | None,
    ) -> None:
        self._connection = connection
        self._table_of = table_of
        self.outcome = ""
        body = {"producer": producer, "epoch": epoch, "sequence": sequence}
        begun = connection.post("/transactions", {k: v for k, v in body.items() if v is not None}, again=True)
        self._id: str = begun["id"]
        self._was_committed: bool = begun["committed"]

    @property
    def id(self) -> str:
        return self._id

    @property
    def committed(self) -> bool:
        return self._was_committed or self.outcome == "committed"

    def append(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
    ) -> None:
        self._check_open()
        table = self._table_of(topic, rows, headers)
        path = f"/transactions/{self._id}/rows/{topic}"
        # Not retried if the answer is lost: the rows could be added twice. The caller starts a new transaction.
        self._connection.send_rows(path, table_to_bytes(table), again=False, partition=partition, sent_at_us=sent_at_us)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        self._check_open()
        body = {"topic": topic, "offsets": offsets_to_json(offsets), "metadata": metadata}
        self._connection.post(f"/transactions/{self._id}/offsets/{group}", body, again=True)

    def prepare(self) -> str:
        self._check_open()
        self._connection.post(f"/transactions/{self._id}/prepare", again=True)
        self.outcome = "prepared"
        return self._id

    def commit(self) -> dict[str, Appended]:
        if self.outcome != "prepared":
            self._check_open()
        found = self._connection.post(f"/transactions/{self._id}/commit", again=True)
        self.outcome = "committed"
        return {topic: appended_from_json(body) for topic, body in found["topics"].items()}

    def rollback(self) -> None:
        if self.outcome != "prepared":
            self._check_open()
        self._connection.delete(f"/transactions/{self._id}")
        self.outcome = "rolled back"

    def _check_open(self) -> None:
        if self.outcome:
            raise TransactionFinished(transaction=self._id, outcome=self.outcome)


def _reopen(address: str, token: str | None, certificates: str | Path | None, config: Config) -> RemoteLog:
    return RemoteLog(address, token=token, certificates=certificates, config=config)


def _named(topic: str) -> str:
    """A topic's name as a segment of a path; raise if it is invalid."""
    check_name("topic", topic, internal=True)
    return topic


# Any: JSON.
def _given(body: dict[str, Any]) -> dict[str, Any]:
    """A body without the values that are None."""
    return {name: value for name, value in body.items() if value is not None}


def _schema(given: Any) -> dict[str, Any] | None:
    return None if given is None else schema_to_json(parse_schema(given))


# Any: headers as `Log.append` takes them.
def _table_of(topic: Topic, rows: Rows, headers: Any = None) -> pa.Table:
    """The rows as one table in the stored schema, with columns for headers and tombstones if there are any."""
    batches = to_batches(rows, topic.schema, topic=topic.name, key=topic.key)
    if headers is not None:
        batches = with_headers(batches, headers)
    schema = stored_schema(topic.schema)
    table = pa.Table.from_batches([batch.data for batch in batches], schema=schema)
    if any(batch.headers is not None for batch in batches):
        table = table.append_column("_headers", _beside(batches, "headers", HEADERS_TYPE))
    if any(batch.tombstones is not None for batch in batches):
        table = table.append_column("_tombstone", _beside(batches, "tombstones", pa.bool_()))
    return table


def _beside(batches: list[RowBatch], name: str, kind: pa.DataType) -> pa.ChunkedArray:
    chunks = []
    for batch in batches:
        found = getattr(batch, name)
        chunks.append(pa.nulls(batch.data.num_rows, kind) if found is None else found.cast(kind))
    return pa.chunked_array(chunks, type=kind)
