"""Where sinks write in tests: a real server or folder each, with a way to look at what is there, and to take it away."""

from __future__ import annotations

import ast
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import redis
from _pytest.mark.structures import ParameterSet
from deltalake import DeltaTable

from headwater.engine.micro_batch import MicroBatch
from headwater.log import open as open_log
from headwater.sinks import (
    LakeSink,
    MailSink,
    ParquetSink,
    PostgresSink,
    QueueSink,
    RedisSink,
    Retry,
    SearchSink,
    WebhookSink,
)
from headwater.sinks.driver import DriverSink
from headwater.testing import CrashAt, run_until_killed
from tests.servers import Postgres, Redis, http_receiver, smtp_server
from tests.sinks.commit_child import call_until_killed

#: A row of a test: what happens to a key, the key, and a value.
Row = tuple[str, int, str | None]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_op", pa.string())])
SHORT = Retry(seconds_max=0.2, first_seconds=0.01)
LONG = Retry(seconds_max=60, first_seconds=0.01, pause_seconds_max=0.1)


def batch_of(rows: Sequence[Row]) -> list[pa.RecordBatch]:
    """Rows as a sink gets them."""
    columns = [[row[1] for row in rows], [row[2] for row in rows], [row[0] for row in rows]]
    return [pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)]


def micro(number: int, *, query: str = "q", run: str = "r1") -> MicroBatch:
    return MicroBatch(query=query, number=number, run=run)


class Place(ABC):
    """One target of a sink: fresh, and the test's own."""

    #: Whether the target holds a row for each key, rather than all rows.
    keyed = True

    def __init__(self, home: Path) -> None:
        self.home = home

    @abstractmethod
    def sink(self, **options: Any) -> DriverSink:
        """A sink that writes here."""

    @abstractmethod
    def content(self) -> Any:
        """What is here: a value for each key, or all rows in some order."""

    def commit_until_killed(self, rows: Sequence[Row], batch: MicroBatch, *, point: str, **options: Any) -> None:
        """Commit a batch in a child that is killed at a crash point."""
        errors = self.home / "errors"
        sink = self.sink(**options)
        ended = run_until_killed(lambda: sink.commit(batch_of(rows), batch), at=CrashAt(point=point), errors=errors)
        assert not errors.exists(), errors.read_text(encoding="utf-8")
        assert ended.killed

    def down(self) -> contextlib.AbstractContextManager[None]:
        """Take the target away for a while."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """End what belongs to this place alone."""

    def expected(self, batches: Sequence[Sequence[Row]]) -> Any:
        """What should be here, by the simplest thinkable program."""
        if not self.keyed:
            return sorted((row[1], row[2] or "", row[0]) for batch in batches for row in batch)
        table: dict[int, str | None] = {}
        for operation, key, value in (row for batch in batches for row in batch):
            if operation in ("-D", "-U"):
                table.pop(key, None)
            else:
                table[key] = value
        return table


class PostgresPlace(Place):
    """A table of a database of its own, on the server that a fixture has started."""

    server: Postgres

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.url = self.server.new_database()

    def sink(self, **options: Any) -> PostgresSink:
        given: dict[str, Any] = {"url": self.url, "table": "spend", "key": "id", "create": True}
        return PostgresSink(**(given | options))

    def content(self) -> dict[int, str | None]:
        if not self.server.execute("SELECT 1 FROM pg_tables WHERE tablename = 'spend'", conninfo=self.url):
            return {}
        return dict(self.server.execute("SELECT id, name FROM spend", conninfo=self.url))

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


class RedisPlace(Place):
    """Keys of a prefix of its own, on the server that a fixture has started."""

    server: Redis
    _numbers = itertools.count()

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.prefix = f"spend-{next(self._numbers)}"

    def sink(self, **options: Any) -> RedisSink:
        given: dict[str, Any] = {"url": self.server.url, "prefix": self.prefix, "key": "id"}
        return RedisSink(**(given | options))

    def content(self) -> dict[int, str | None]:
        with redis.Redis.from_url(self.server.url, decode_responses=True) as client:
            rows = [client.hgetall(key) for key in client.keys(f"{self.prefix}:*")]
        return {int(row["id"]): row.get("name") for row in rows}

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()


class LakePlace(Place):
    """A Delta Lake table."""

    keyed = False

    def sink(self, **options: Any) -> LakeSink:
        given: dict[str, Any] = {"path": self.home / "lake", "maintenance_batches": 3, "partition_by": "_op"}
        return LakeSink(**(given | options))

    def commit_until_killed(self, rows: Sequence[Row], batch: MicroBatch, *, point: str, **options: Any) -> None:
        # The runtime of deltalake does not survive a fork.
        call_until_killed(self.sink(**options), "commit", batch_of(rows), batch, point=point)

    def content(self) -> list[tuple[int, str, str]]:
        lake = self.home / "lake"
        rows = DeltaTable(lake).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(lake)) else []
        return sorted((row["id"], row["name"] or "", row["_op"]) for row in rows)


class ParquetPlace(Place):
    """A folder of Parquet files."""

    keyed = False

    def sink(self, **options: Any) -> ParquetSink:
        return ParquetSink(**({"path": self.home / "files"} | options))

    def content(self) -> list[tuple[int, str, str]]:
        files = sorted((self.home / "files").glob("*.parquet"))
        rows = ds.dataset(files).to_table().to_pylist() if files else []
        return sorted((row["id"], row["name"] or "", row["_op"]) for row in rows)


class QueuePlace(Place):
    """A queue of a log of its own."""

    keyed = False

    def sink(self, **options: Any) -> QueueSink:
        given: dict[str, Any] = {"queue": "spend", "queue_log": self.home / "queue", "key": "id"}
        return QueueSink(**(given | options))

    def content(self) -> list[tuple[int, str, str]]:
        with open_log(self.home / "queue") as log:
            rows = [orjson.loads(row["body"]) for row in log.read("spend").rows()] if "spend" in log.topics() else []
        return sorted((row["id"], row.get("name") or "", row["_op"]) for row in rows)


class SearchPlace(Place):
    """A full-text index."""

    def sink(self, **options: Any) -> SearchSink:
        given: dict[str, Any] = {"path": self.home / "index", "key": "id", "text": "name"}
        return SearchSink(**(given | options))

    def content(self) -> dict[int, str | None]:
        if not (self.home / "index" / "meta.json").exists():
            return {}
        return {row["id"]: row["name"] for row in self.sink().search("*", limit=1000)}


class ServedPlace(Place):
    """A server of the test's own that keeps what it gets."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.stack = contextlib.ExitStack()
        self.server = self.stack.enter_context(self.serve(0))
        self.port: int = self.server.port

    @abstractmethod
    def serve(self, port: int) -> contextlib.AbstractContextManager[Any]: ...

    @abstractmethod
    def messages(self, server: Any) -> list[dict[str, Any]]:
        """What a server has got, as messages."""

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        before = self.server
        self.stack.close()
        try:
            yield
        finally:
            self.server = self.stack.enter_context(self.serve(self.port))
            self.keep(before, self.server)

    @abstractmethod
    def keep(self, before: Any, after: Any) -> None:
        """Let the server that is back have what the one before it had."""

    def close(self) -> None:
        self.stack.close()

    def content(self) -> dict[int, str | None]:
        """What a receiver knows that has read all messages, and each id once."""
        table: dict[int, str | None] = {}
        first: dict[int, str] = {}
        seen: set[str] = set()
        for message in self.messages(self.server):
            if message["id"] in seen:
                continue
            seen.add(message["id"])
            key = message["key"]
            assert message["corrects"] == first.get(key), "a correction names the first message, and nothing else does"
            if message["kind"] == "deletion":
                del table[key], first[key]
            else:
                table[key] = message["name"]
                first.setdefault(key, message["id"])
        return table


class HookPlace(ServedPlace):
    """An HTTP receiver."""

    def serve(self, port: int) -> contextlib.AbstractContextManager[Any]:
        return http_receiver(port=port)

    def keep(self, before: Any, after: Any) -> None:
        after.requests[:0] = before.requests

    def sink(self, **options: Any) -> WebhookSink:
        given: dict[str, Any] = {"url": f"http://127.0.0.1:{self.port}/hook", "key": "id", "state": self.home / "state"}
        return WebhookSink(**(given | {"secret": "s3cret", "rows_per_request": 2} | options))

    def messages(self, server: Any) -> list[dict[str, Any]]:
        told = [one for request in server.requests for one in orjson.loads(request.body)["messages"]]
        return [{**one, "key": int(one["key"]), "name": one["row"].get("name")} for one in told]


class MailPlace(ServedPlace):
    """A mail server."""

    def serve(self, port: int) -> contextlib.AbstractContextManager[Any]:
        return smtp_server(port=port)

    def keep(self, before: Any, after: Any) -> None:
        after.messages[:0] = before.messages

    def sink(self, **options: Any) -> MailSink:
        given: dict[str, Any] = {
            "host": "127.0.0.1", "port": self.port, "key": "id", "state": self.home / "state",
            "sender": "alerts@example.org", "to": "ops@example.org", "subject": "Row {id}", "body": "{name!r}",
        }  # fmt: skip
        return MailSink(**(given | options))

    def messages(self, server: Any) -> list[dict[str, Any]]:
        return [_told(mail) for mail in server.messages]


# Any: a parsed mail, and what it says.
def _told(mail: Any) -> dict[str, Any]:
    mark, _, key = str(mail["Subject"]).rpartition("Row ")
    kind = {"": "new", "Correction: ": "correction", "Withdrawn: ": "deletion"}[mark]
    return {
        "id": str(mail["Message-ID"]),
        "kind": kind,
        "key": int(key),
        "corrects": None if mail["In-Reply-To"] is None else str(mail["In-Reply-To"]),
        "name": None
        if kind == "deletion"
        else ast.literal_eval(mail.get_content().replace("\n", "").replace("\r", "")),
    }


PLACES: dict[str, type[Place]] = {
    "postgres": PostgresPlace,
    "redis": RedisPlace,
    "lake": LakePlace,
    "parquet": ParquetPlace,
    "search": SearchPlace,
    "queue": QueuePlace,
    "webhook": HookPlace,
    "mail": MailPlace,
}
#: Those with a server in a process of its own.
SERVED = ("postgres", "redis")


def params_of(*kinds: str) -> list[ParameterSet]:
    """Kinds of places as parameters of a test, with the mark of what each starts."""
    return [pytest.param(kind, marks=pytest.mark.process if kind in SERVED else ()) for kind in kinds]
