"""Rows of a topic as messages for other systems.

A template makes the subject of each row; a row whose subject cannot be made becomes a dead letter. The position is committed, as the
offsets of a group, once the receiver has the messages: after a crash the last ones are sent again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.gateways.port import Counters
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.log.port import Batch, Log, Offsets
from headwater.schema.encodings import json as json_lines

Start = Literal["earliest", "latest"]
_FIELD = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Template:
    """A text with columns of a row in braces.

    >>> template = Template("sensors/{device}/state")
    >>> template.columns, template.filled({"device": "d7"})
    (['device'], 'sensors/d7/state')
    >>> template.filled({"device": None})
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `device` is None. Give a value, for it is part of 'sensors/{device}/state'.
    """

    text: str

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(_FIELD.findall(self.text)))

    def filled(self, row: Mapping[str, object]) -> str:
        """The text with the values of a row."""
        return _FIELD.sub(lambda found: self._value(found[1], row[found[1]]), self.text)

    def _value(self, column: str, value: object) -> str:
        if value is None or value == "":
            raise ArgumentInvalid(name=column, value=value, expected=f"a value, for it is part of {self.text!r}")
        return value if isinstance(value, str) else orjson.dumps(value).decode()


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A row as a message."""

    subject: str
    payload: bytes
    headers: tuple[tuple[str, bytes], ...]
    partition: int
    offset: int
    appended_us: int


class Outlet:
    """Reads the rows of a topic as messages, some at a time; `commit` says that the receiver has them.

    Rows whose subject cannot be made become dead letters.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        *,
        template: str,
        value: str,
        start: Start,
        rows_max: int,
        gateway: str,
        counters: Counters,
    ) -> None:
        if start not in get_args(Start):
            raise ArgumentInvalid(name="start", value=start, expected=" or ".join(map(repr, get_args(Start))))
        self.topic = log.topic(topic)
        self._log = log
        self._template = Template(template or topic)
        self._value = value or ("value" if self.topic.schemaless else "")
        self._gateway = gateway
        self._counters = counters
        own = self.topic.schema.names
        for name in [*self._template.columns, *([self._value] if self._value else [])]:
            if name not in own:
                raise ColumnUnknown(topic=topic, column=name, columns=", ".join(own))
        self._columns = [*own, "_offset", "_appended_at", "_headers", "_tombstone"]
        self._consumer = log.consumer(
            topic,
            group=gateway,
            auto_commit=False,
            rows_max=rows_max,
            start=start,
            columns=self._columns,
            poll_seconds_max=math.inf,  # a receiver may be away for hours: the gateway is still the member
        )

    def next(self, *, seconds: float) -> list[Outgoing]:
        """The next messages; wait so long for the first."""
        found = []
        for batch in self._consumer.poll(seconds=seconds):
            if batch.data.num_rows:
                found += self._messages(batch)
        return found

    def messages(self, partition: int, *, start: int, stop: int) -> list[Outgoing]:
        """The messages of some rows once more, without a change of the position."""
        found = []
        for batch in self._log.read_range(self.topic.name, partition, start=start, stop=stop, columns=self._columns):
            if batch.data.num_rows:
                found += self._messages(batch)
        return found

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the position behind all messages that `next` has returned, or the given one."""
        self._consumer.commit(None if offsets is None else {self.topic.name: offsets})

    def refuse(self, refused: Sequence[tuple[Outgoing, str]]) -> None:
        """Make messages that the receiver does not take dead letters."""
        if refused:
            self._add_dead_letters(
                (one.partition, one.offset, one.payload, "MessageRefused", f"{one.subject!r}: {why}")
                for one, why in refused
            )

    def close(self) -> None:
        self._consumer.close(commit=False)

    def _messages(self, batch: Batch) -> list[Outgoing]:
        own = batch.data.select(self.topic.schema.names)
        lines = list(json_lines.encode_rows(own))
        names = self._template.columns
        parts = (
            [orjson.loads(line) for line in json_lines.encode_rows(own.select(names))] if names else [{}] * len(lines)
        )
        payloads = own.column(self._value).to_pylist() if self._value else lines
        tombstones = batch.data.column("_tombstone").to_pylist()
        details = zip(
            batch.data.column("_offset").to_pylist(),
            batch.data.column("_appended_at").cast(pa.int64()).to_pylist(),
            batch.data.column("_headers").to_pylist(),
            tombstones,
            strict=True,
        )
        found, malformed = [], []
        for part, payload, line, (offset, appended_us, headers, is_tombstone) in zip(
            parts, payloads, lines, details, strict=True
        ):
            try:
                subject = self._template.filled(part)
            except ArgumentInvalid as error:
                malformed.append((batch.partition, offset, line, type(error).__name__, str(error)))
                continue
            found.append(
                Outgoing(
                    subject=subject,
                    payload=b"" if is_tombstone else _bytes_of(payload),
                    headers=tuple((name, value or b"") for name, value in headers or ()),
                    partition=batch.partition,
                    offset=offset,
                    appended_us=appended_us,
                )
            )
        if malformed:
            self._add_dead_letters(malformed)
        return found

    def _add_dead_letters(self, rows: Iterable[tuple[int, int, bytes, str, str]]) -> None:
        now_us = self._log.clock.now_us()
        letters = [
            DeadLetter(
                topic=self.topic.name,
                partition=partition,
                offset=offset,
                row=line.decode(errors="replace"),
                query=self._gateway,
                error=error,
                message=message,
                at_us=now_us,
            )
            for partition, offset, line, error, message in rows
        ]
        append_dead_letters(self._log, self.topic.name, letters)
        self._counters.add(rejected=len(letters))


def _bytes_of(value: object) -> bytes:
    """A value as the payload of a message: bytes and text as they are, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else orjson.dumps(value, default=str)
