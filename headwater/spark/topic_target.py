"""Where a sink's rows go: a log, and a topic for all rows or for each."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.open_logs import shared_log
from headwater.errors import ArgumentInvalid, ColumnMisfit, NotFound, RowInvalid
from headwater.home import absolute_address
from headwater.log import Log, Topic
from headwater.log.errors import TopicExists
from headwater.schema import ASSIGNED_COLUMNS, HEADERS_TYPE, misfit
from headwater.spark.changelog import OPERATION, applied

TOPIC = "_topic"
OWN_COLUMNS = {"_headers": HEADERS_TYPE, "_tombstone": pa.bool_(), OPERATION: pa.string(), TOPIC: pa.string()}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A topic of a log or, without one, the topic that each row names in its column `_topic`."""

    log: str
    topic: str | None = None
    create: bool = False
    key: tuple[str, ...] = ()
    partitions: int | None = None

    @classmethod
    def of(
        cls,
        *,
        log: str | Path,
        topic: str | None = None,
        create: bool = False,
        key: str | Sequence[str] | None = None,
        partitions: int | None = None,
    ) -> Self:
        keys = (key,) if isinstance(key, str) else tuple(key or ())
        return cls(log=absolute_address(log), topic=topic, create=create, key=keys, partitions=partitions)

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a Spark writer: `log`, `topic`, `create`, `key`, `partitions`."""
        if "log" not in options:
            raise ArgumentInvalid(name="log", value=None, expected="the address of a log, by `.option('log', …)`")
        return cls.of(
            log=options["log"],
            topic=options.get("topic") or options.get("path"),
            create=_flag("create", options.get("create", "false")),
            key=[name.strip() for name in options.get("key", "").split(",") if name.strip()],
            partitions=_number("partitions", options.get("partitions")),
        )

    def open(self) -> Log:
        return shared_log(self.log, create=self.create)

    def check(self, columns: pa.Schema) -> None:
        """Raise if the columns do not fit the topic; create the topic if `create` is set."""
        if self.topic is None and TOPIC not in columns.names:
            raise ArgumentInvalid(name="topic", value=None, expected="a topic, or a column `_topic` that names one")
        for name, kind in OWN_COLUMNS.items():
            if name in columns.names:
                _check_type(self.topic or "*", columns.field(name), kind)
        log = self.open()
        if self.topic is not None:
            _check_columns(self.topic_of(log, self.topic, columns), columns, strict=TOPIC not in columns.names)

    def topic_of(self, log: Log, name: str, columns: pa.Schema) -> Topic:
        """The topic of this name, made from these columns where it is missing and that was asked for."""
        try:
            return log.topic(name)
        except NotFound:
            if not self.create:
                raise
        own = [column for column in columns if not column.name.startswith("_")]
        with contextlib.suppress(TopicExists):  # another task did it first
            log.create(name, pa.schema(own), key=self.key or None, partitions=self.partitions)
        return log.topic(name)

    def sorted(self, log: Log, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of a batch by the topics that they go to, with what `_op` says applied."""
        rows = rows.drop_columns([name for name in rows.schema.names if name in ASSIGNED_COLUMNS])
        for name, part in self._by_topic(rows):
            topic = self.topic_of(log, name, part.schema)
            _check_keys(topic, part)
            yield name, applied(part, topic) if OPERATION in part.schema.names else part

    def _by_topic(self, rows: pa.RecordBatch) -> Iterable[tuple[str, pa.RecordBatch]]:
        if TOPIC not in rows.schema.names:
            return [(str(self.topic), rows)]
        names = rows.column(TOPIC).cast(pa.string())
        if self.topic is not None:
            names = names.fill_null(self.topic)
        if names.null_count:
            raise ColumnMisfit(
                target=f"topic {'*'!r}", column=TOPIC, why="is null in a row, and no topic was given for such rows"
            )
        rest = rows.drop_columns([TOPIC])
        log = self.open()
        return [
            (name, self._without_empty_columns(log, name, rest.filter(pc.equal(names, name))))
            for name in names.unique().to_pylist()
        ]

    def _without_empty_columns(self, log: Log, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out columns that are there for the rows of other topics: those this topic lacks, and that are null."""
        known = self.topic_of(log, name, rows.schema).schema.names
        others = [
            column
            for column, values in zip(rows.schema.names, rows.columns, strict=True)
            if column not in known and column not in OWN_COLUMNS and values.null_count == rows.num_rows
        ]
        return rows.drop_columns(others)


def _check_columns(topic: Topic, columns: pa.Schema, *, strict: bool) -> None:
    for column in columns:
        if column.name in ASSIGNED_COLUMNS or column.name in OWN_COLUMNS:
            continue
        if column.name in topic.schema.names:
            _check_type(topic.name, column, topic.schema.field(column.name).type)
        elif strict:
            near = difflib.get_close_matches(column.name, topic.schema.names, n=1)
            why = f"is not in its schema{f'; did you mean {near[0]!r}?' if near else ''}"
            raise ColumnMisfit(target=f"topic {topic.name!r}", column=column.name, why=why)
    # A row that deletes needs no more than its key; whether all rows do is not known before they come.
    needed = topic.key if {"_tombstone", OPERATION} & set(columns.names) else topic.schema.names
    for name in needed:
        if not topic.schema.field(name).nullable and name not in columns.names:
            raise ColumnMisfit(
                target=f"topic {topic.name!r}", column=name, why="is missing, and the schema says not null"
            )


def _check_keys(topic: Topic, rows: pa.RecordBatch) -> None:
    """Raise if a row of a compacted topic has no key: no later row could replace it."""
    for name in topic.key if topic.compact else ():
        column = rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows)
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            why = "is null, and it is part of the key; drop or fill such rows in the query"
            raise RowInvalid(topic=topic.name, row=row, column=name, why=why)


def _check_type(topic: str, column: pa.Field, kind: pa.DataType) -> None:
    why = misfit(column.type, kind)
    if why is not None:
        raise ColumnMisfit(target=f"topic {topic!r}", column=column.name, why=why)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentInvalid(name=name, value=text, expected="true or false")
    return text.lower() == "true"


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdigit():
        raise ArgumentInvalid(name=name, value=text, expected="a whole number")
    return int(text)
