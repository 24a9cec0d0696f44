"""The Redis sink: a cache that follows a table, each batch in one transaction with its number.

Redis runs the commands between MULTI and EXEC as one, and the key that holds the batch's number is among them. So a
batch that is done again is known, and keys change in the order of the batches. What Redis itself forgets when it
crashes (see its `appendfsync`) is forgotten together with the number, and is not written again by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

import orjson
import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.optional import require
from headwater.schema.encodings import json as json_lines
from headwater.sinks.changes import Changes
from headwater.sinks.driver import DriverSink, Progress, Refusals, key_texts
from headwater.sinks.errors import SinkRefused
from headwater.sinks.pool import Pool
from headwater.sinks.port import Guarantee
from headwater.sinks.retry import RetryLater
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import Pipeline

Mode = Literal["hash", "json", "invalidate"]
MODES: tuple[Mode, ...] = ("hash", "json", "invalidate")


@dataclass(frozen=True, kw_only=True)
class RedisSink(DriverSink):
    """Rows into Redis, one key each: `<prefix>:<key>`; exactly once.

    `mode` is what a row becomes: "hash" (a field for each column that is not null), "json" (one JSON object), or
    "invalidate" (nothing: the key is deleted, so that a reader through the cache asks the origin again). A row
    that is deleted takes its key with it. `ttl` lets keys that are not renewed go after that time.

    >>> RedisSink(url="redis://localhost", prefix="spend", key="card", ttl="10 minutes").name
    'redis:spend'
    """

    url: str
    prefix: str
    mode: Mode = "hash"
    ttl: Duration | None = None

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keys:
            raise ArgumentInvalid(name="key", value=self.key, expected="the columns that make a key of Redis")
        if self.mode not in MODES:
            raise ArgumentInvalid(name="mode", value=self.mode, expected=" or ".join(map(repr, MODES)))
        if self.ttl is not None and parse_seconds(self.ttl, name="ttl") <= 0:
            raise ArgumentInvalid(name="ttl", value=self.ttl, expected="more than 0 seconds")

    def __repr__(self) -> str:
        # Never the URL: it may hold a password.
        return f"RedisSink(prefix={self.prefix!r}, key={self.keys!r}, mode={self.mode!r})"

    @property
    def name(self) -> str:
        return f"redis:{self.prefix}"

    def examine(self, columns: pa.Schema) -> None:
        super().examine(columns)
        with self._connected() as redis:
            redis.ping()

    def begin(self, batch: MicroBatch) -> bool:
        with self._connected() as redis, self._watched(redis, batch) as (pipeline, before):
            progress = before.admit(self.name, batch)
            pipeline.multi()
            if progress != before:
                pipeline.set(self._marker(batch), progress.as_json())
                pipeline.execute()
            return progress.has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        with self._connected() as redis, self._watched(redis, batch) as (pipeline, before):
            progress = before.admit(self.name, batch)
            if progress.has(batch):
                return
            pipeline.multi()
            for key in key_texts(changes.gone, self.keys):
                pipeline.unlink(f"{self.prefix}:{key}")
            self._put(pipeline, changes.rows)
            pipeline.set(self._marker(batch), progress.after(batch).as_json())
            reach("delivery.written")
            refusals.post()
            pipeline.execute()

    def _put(self, pipeline: Pipeline, rows: pa.Table) -> None:
        milliseconds = None if self.ttl is None else max(1, round(parse_seconds(self.ttl) * 1000))
        lines = _lines(rows) if self.mode != "invalidate" else iter([b""] * rows.num_rows)
        for key, line in zip(key_texts(rows, self.keys), lines, strict=True):
            name = f"{self.prefix}:{key}"
            if self.mode == "json":
                pipeline.set(name, line, px=milliseconds)
                continue
            pipeline.unlink(name)  # a column that is null now must not keep its old value
            if self.mode == "hash":
                pipeline.hset(name, mapping=_fields(line))
                if milliseconds is not None:
                    pipeline.pexpire(name, milliseconds)

    def _marker(self, batch: MicroBatch) -> str:
        return f"headwater:commits:{self.prefix}:{batch.query}"

    @contextlib.contextmanager
    def _watched(self, redis: Redis, batch: MicroBatch) -> Iterator[tuple[Pipeline, Progress]]:
        """A transaction that fails where another client changes the query's progress meanwhile."""
        with redis.pipeline(transaction=True) as pipeline:
            pipeline.watch(self._marker(batch))  # type: ignore[no-untyped-call]
            yield pipeline, Progress.from_json(pipeline.get(self._marker(batch)))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Redis]:
        require("redis", extra="redis")
        import redis

        try:
            with _pool.borrowed(self.url) as client:
                yield client
        except redis.RedisError as error:
            self._explain(error)

    def _explain(self, error: Exception) -> NoReturn:
        from redis import exceptions

        words = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
            raise SinkRefused(sink=self.name, why=words, what="Correct the user or the password in `url`") from error
        later = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.WatchError, exceptions.ReadOnlyError)
        if isinstance(error, (*later, exceptions.OutOfMemoryError)) or words.startswith(("LOADING", "MISCONF", "BUSY")):
            raise RetryLater(words) from error
        raise SinkRefused(sink=self.name, why=words, what="Correct what the server complains of") from error


# Any: what JSON holds, and the many types that the client takes.
def _fields(line: bytes) -> Any:
    row: dict[str, Any] = orjson.loads(line)
    return {
        name: value if isinstance(value, str) else orjson.dumps(value)
        for name, value in row.items()
        if value is not None
    }


def _lines(rows: pa.Table) -> Iterator[bytes]:
    for batch in rows.to_batches():
        yield from json_lines.encode_rows(batch)


def _connect(url: str) -> Redis:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    # It is the sink that asks again, and says for how long.
    return Redis.from_url(url, socket_timeout=30, socket_connect_timeout=10, retry=Retry(NoBackoff(), 0))


_pool: Pool[Redis] = Pool(_connect, is_usable=lambda client: True, close=lambda client: client.close())  # noqa: ARG005
