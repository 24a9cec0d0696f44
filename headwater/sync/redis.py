"""Redis as a target: a cache with one key for each row, changed together with the position by MULTI and EXEC.

A row of table `orders` with the key 7 is `orders:7`. For each key that changes or goes, its name is published on a
channel, so that programs with a cache of their own drop their copy. What Redis itself forgets when it crashes (see its
`appendfsync`) is forgotten together with the position, and is applied again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.optional import require
from headwater.schema.encodings import json as json_lines
from headwater.sinks.retry import RetryLater
from headwater.sync.config import SyncConfig
from headwater.sync.errors import SyncInvalid, TargetRefused
from headwater.sync.port import Position, Step, TableChanges, TargetTable, is_pending
from headwater.sync.values import json_texts_of, texts_of
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import Pipeline

FORMATS = ("hash", "json", "invalidate")
OPTIONS = {"format": "hash", "ttl": "", "channel": "invalidate:{table}"}
SCAN_KEYS = 1_000


class RedisTarget:
    """Keys of Redis.

    `format` is what a row becomes: a hash with a field for each column that is not null, a JSON object, or nothing
    ("invalidate"): the key is deleted, so that a reader through the cache asks the database again. `ttl` lets keys that are
    not renewed go after that time. `channel` is where names of changed keys are published; empty for none.
    """

    def __init__(self, config: SyncConfig) -> None:
        require("redis", extra="redis")
        config.check_current()
        options = config.check_options(OPTIONS)
        if options["format"] not in FORMATS:
            raise ArgumentInvalid(name="format", value=options["format"], expected=" or ".join(map(repr, FORMATS)))
        self._format = options["format"]
        self._channel = options["channel"]
        self._milliseconds = round(parse_seconds(options["ttl"], name="ttl") * 1000) if options["ttl"] else None
        self._sync = config.name
        self._url = config.url
        self._password = config.password()
        self._client: Redis | None = None

    @classmethod
    def address(cls, url: str) -> str:
        return url

    @classmethod
    def open(cls, config: SyncConfig) -> RedisTarget:
        return cls(config)

    @property
    def name(self) -> str:
        return self._url

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def prepare(self, table: TargetTable) -> None:  # noqa: ARG002
        with self._session() as redis:
            redis.ping()

    def position(self, table: TargetTable) -> Position | None:
        with self._session() as redis:
            return _position(redis.hget(self._marker, table.topic))

    def apply(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        if trial:
            return  # Redis has no constraints
        with self._session() as redis, redis.pipeline(transaction=True) as pipeline:
            pipeline.watch(self._marker)  # type: ignore[no-untyped-call]
            pending = [
                one
                for one in changes
                if is_pending(self._sync, _position(pipeline.hget(self._marker, one.table.topic)), one)
            ]
            pipeline.multi()
            for one in pending:
                for step in one.steps:
                    self._apply_step(pipeline, one.table, step)
                pipeline.hset(self._marker, one.table.topic, one.after.to_json())
            reach("target.written")
            reach("target.before_commit")
            pipeline.execute()
        reach("target.committed")

    def _apply_step(self, pipeline: Pipeline, table: TargetTable, step: Step) -> None:
        channel = self._channel.replace("{table}", table.name)
        for name in self._names(table, step.gone):
            pipeline.unlink(name)
            if channel:
                pipeline.publish(channel, name)
        lines = (line for batch in step.rows.combine_chunks().to_batches() for line in json_lines.encode_rows(batch))
        for name, line in zip(self._names(table, step.rows), lines, strict=True):
            if self._format == "json":
                pipeline.set(name, line, px=self._milliseconds)
            else:
                pipeline.unlink(name)  # a column that is null now must not keep its old value
            if self._format == "hash":
                pipeline.hset(name, mapping=_fields(line))
                if self._milliseconds is not None:
                    pipeline.pexpire(name, self._milliseconds)
            if channel:
                pipeline.publish(channel, name)

    def scan(self, table: TargetTable) -> tuple[Position | None, Iterator[pa.Table]]:
        if self._format == "invalidate":
            raise SyncInvalid(
                sync=self._sync,
                why="its target has no rows: it only deletes keys",
                instead="Compare syncs with the format 'hash' or 'json'",
            )
        return self.position(table), self._scanned(table)

    def _scanned(self, table: TargetTable) -> Iterator[pa.Table]:
        with self._session() as redis:
            for names in self._keys(redis, table):
                with redis.pipeline(transaction=False) as pipeline:
                    for name in names:
                        _ = pipeline.get(name) if self._format == "json" else pipeline.hgetall(name)
                    found: list[Any] = pipeline.execute()
                rows = [_row(one) for one in found if one]
                yield texts_of(rows, table.columns.names)

    def stored(self, rows: pa.Table) -> pa.Table:
        return json_texts_of(rows)

    def switch(self, table: TargetTable, new: TargetTable) -> None:
        with self._session() as redis, redis.pipeline(transaction=True) as pipeline:
            pipeline.watch(self._marker)  # type: ignore[no-untyped-call]
            position = pipeline.hget(self._marker, new.topic)
            old = [name for names in self._keys(redis, table) for name in names]
            renamed = [name for names in self._keys(redis, new) for name in names]
            pipeline.multi()
            for name in old:
                pipeline.unlink(name)
            for name in renamed:
                pipeline.rename(name, table.name.encode() + name.removeprefix(new.name.encode()))
            if position is not None:
                pipeline.hset(self._marker, table.topic, position)
            pipeline.hdel(self._marker, new.topic)
            reach("target.before_switch")
            pipeline.execute()

    def discard(self, table: TargetTable) -> None:
        with self._session() as redis:
            for names in self._keys(redis, table):
                redis.unlink(*names)
            redis.hdel(self._marker, table.topic)

    def forget(self) -> None:
        with self._session() as redis:
            redis.delete(self._marker)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _marker(self) -> str:
        return f"headwater:sync:{self._sync}"

    def _names(self, table: TargetTable, rows: pa.Table) -> Iterator[str]:
        texts = json_texts_of(rows.select(table.key))
        for values in zip(*(column.to_pylist() for column in texts.columns), strict=True):
            yield f"{table.name}:" + ":".join(value.replace("\\", "\\\\").replace(":", "\\:") for value in values)

    def _keys(self, redis: Redis, table: TargetTable) -> Iterator[list[bytes]]:
        """The keys of a table, in pieces."""
        pattern = "".join(f"\\{letter}" if letter in "*?[]\\^" else letter for letter in table.name) + ":*"
        seen: list[bytes] = []
        for name in set(redis.scan_iter(match=pattern, count=SCAN_KEYS)):  # it may return a key twice
            seen.append(name)
            if len(seen) == SCAN_KEYS:
                yield seen
                seen = []
        if seen:
            yield seen

    @contextlib.contextmanager
    def _session(self) -> Iterator[Redis]:
        from redis import Redis, exceptions
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            if self._client is None:
                given = {} if self._password is None else {"password": self._password}
                self._client = Redis.from_url(
                    self._url, socket_timeout=30, socket_connect_timeout=10, retry=Retry(NoBackoff(), 0), **given
                )
            yield self._client
        except exceptions.RedisError as error:
            words = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
                instead = (
                    "Correct the user of the address, or the password behind `--password-env` or `--password-file`"
                )
                raise TargetRefused(target=self.name, why=words, instead=instead) from error
            later = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.WatchError)
            more = (exceptions.ReadOnlyError, exceptions.OutOfMemoryError)
            if isinstance(error, (*later, *more)) or words.startswith(("LOADING", "MISCONF", "BUSY")):
                raise RetryLater(words) from error
            instead = "Correct what the server complains of"
            raise TargetRefused(target=self.name, why=words, instead=instead) from error


# Any: what the client returns.
def _position(text: Any) -> Position | None:
    return None if text is None else Position.from_json(text)


# Any: JSON, and what the client takes.
def _fields(line: bytes) -> Any:
    row: dict[str, Any] = orjson.loads(line)
    return {
        name: value if isinstance(value, str) else orjson.dumps(value)
        for name, value in row.items()
        if value is not None
    }


# Any: as above.
def _row(found: bytes | dict[bytes, bytes]) -> dict[str, Any]:
    if isinstance(found, bytes):
        row: dict[str, Any] = orjson.loads(found)
        return row
    return {name.decode(): value.decode() for name, value in found.items()}
