"""Messages of other systems as rows of a topic.

A topic of the gateway's own schema holds each message whole. A topic without a schema holds its payload under its subject. Any other
topic holds the columns that are in its payload, a JSON object, and its subject in a header. A payload that does not fit becomes a dead
letter, so that one bad sender stops no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.errors import EncodingInvalid, HeadwaterError
from headwater.gateways.append_retry import Attempt, at_once
from headwater.gateways.port import Counters
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.log.port import Log
from headwater.schema.encodings import json as json_lines
from headwater.schema.rows import to_batches

SUBJECT_HEADER = "headwater.subject"


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message that was received."""

    subject: str
    payload: bytes
    #: The row of a topic that holds messages whole.
    row: Mapping[str, object]
    #: What a topic with columns of its own gets besides the payload.
    columns: Mapping[str, object] = field(default_factory=dict)


def create_topic(log: Log, topic: str, schema: pa.Schema) -> None:
    """Create a topic that holds messages whole, unless there is one: that may have columns of its own."""
    if topic not in log.topics(topic):
        log.create(topic, schema, time="at", exist_ok=True)


class Inlet:
    """Appends messages to a topic."""

    def __init__(self, log: Log, topic: str, schema: pa.Schema, *, gateway: str, counters: Counters) -> None:
        create_topic(log, topic, schema)
        self._log = log
        self._topic = log.topic(topic)
        self._is_whole = self._topic.schema.names == schema.names
        self._gateway = gateway
        self._counters = counters
        #: How an append is tried; gateways whose senders do not send again repeat it.
        self.attempt: Attempt[object] = at_once

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages; when it returns, each is a durable row or a durable dead letter."""
        if not messages:
            return
        rows, malformed = self._rows(messages)
        if rows:
            self.attempt(lambda: self._log.append(self._topic.name, rows))
            self._counters.add(appended=len(rows))
        if malformed:
            self._add_dead_letters(malformed)
            self._counters.add(rejected=len(malformed))

    # Any: rows, whose columns are of any type.
    def _rows(self, messages: Sequence[Message]) -> tuple[list[dict[str, Any]], list[tuple[Message, HeadwaterError]]]:
        if self._is_whole:
            return [dict(message.row) for message in messages], []
        if self._topic.schemaless:
            return [{"key": message.subject.encode(), "value": message.payload} for message in messages], []
        try:
            return self._checked(messages), []
        except HeadwaterError:
            pass
        # One does not fit: each by itself, so that the others are kept.
        rows, malformed = list[dict[str, Any]](), []
        for message in messages:
            try:
                rows += self._checked([message])
            except HeadwaterError as error:
                malformed.append((message, error))
        return rows, malformed

    def _checked(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        topic = self._log.topic(self._topic.name)  # its schema may have changed meanwhile
        lines = [message.payload.replace(b"\n", b" ").replace(b"\r", b" ") for message in messages]
        decoded = [row for some in json_lines.decode_lines(lines, topic.schema, topic=topic.name) for row in some]
        if len(decoded) != len(messages):
            raise EncodingInvalid(encoding="JSON", position="the payload", why="it is empty")
        rows = [
            {"_headers": [(SUBJECT_HEADER, message.subject.encode())], **row, **message.columns}
            for message, row in zip(messages, decoded, strict=True)
        ]
        to_batches(rows, topic.schema, topic=topic.name, key=topic.key)
        return rows

    def _add_dead_letters(self, malformed: Sequence[tuple[Message, HeadwaterError]]) -> None:
        now_us = self._log.clock.now_us()
        letters = [
            DeadLetter(
                topic=self._topic.name,
                partition=0,
                offset=-1,
                value=message.payload,
                query=self._gateway,
                error=type(error).__name__,
                message=str(error),
                at_us=now_us,
                headers=[(SUBJECT_HEADER, message.subject.encode())],
            )
            for message, error in malformed
        ]
        self.attempt(lambda: append_dead_letters(self._log, self._topic.name, letters))
