"""The queue sink: each row of a query is a message for one worker of each group.

The messages of a batch are one transaction of the log, named by query and batch, so that a batch which is done again
finds its transaction committed and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import orjson
import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.engine.open_logs import shared_log
from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.faults import reach
from headwater.home import absolute_address
from headwater.log import Log
from headwater.log.errors import ProducerFenced
from headwater.queues import Outgoing
from headwater.queues.config import QueueConfig, Settings
from headwater.queues.message import Encoder
from headwater.schema.encodings import json as json_lines
from headwater.sinks.changes import Changes, Refusal
from headwater.sinks.driver import DriverSink, Refusals, key_texts
from headwater.sinks.errors import SinkFenced
from headwater.sinks.port import Guarantee
from headwater.sinks.retry import RetryLater


@dataclass(frozen=True, kw_only=True)
class QueueSink(DriverSink):
    """Rows as messages of a queue, which is created if there is none; exactly once.

    The body of a message is its row as a JSON object (of a queue with a schema, its columns), or the column `body`.
    `key` names the columns of the message's key, `priority` and `deliver_at` columns with those. All rows are messages:
    those of a changelog have their `_op` in the body. `queue_log` is the log of the queue, by default that of the app.
    A full queue lets the query wait.

    >>> QueueSink(queue="emails", key="customer").name
    'queue:emails'
    """

    queue: str
    queue_log: str | Path | None = None
    body: str | None = None
    priority: str | None = None
    deliver_at: str | None = None

    guarantee: ClassVar[Guarantee] = "exactly once"

    @property
    def name(self) -> str:
        return f"queue:{self.queue}"

    @property
    def keys(self) -> tuple[str, ...]:
        """None: a later row of the same key is a message of its own."""
        return ()

    def examine(self, columns: pa.Schema) -> None:
        used = [*self.key, *(name for name in (self.body, self.priority, self.deliver_at) if name is not None)]
        for name in used:
            if name not in columns.names:
                why = f"is to be part of a message, but not among the columns {', '.join(columns.names)}"
                raise ColumnMisfit(target=self.name, column=name, why=why)
        self._config(self._log())

    def begin(self, batch: MicroBatch) -> bool:
        log, producer = self._log(), self._producer(batch)
        self._epoch(log, batch)
        return log.committed_sequence(producer) >= batch.number

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        log = self._log()
        config = self._config(log)
        self._wait_for_room(log, config)
        messages, refused = self._messages(changes, config)
        refusals.add(refused)
        if not messages:
            refusals.post()
            return
        topic = log.topic(self.queue)
        encoder = Encoder(config, pa.schema([field for field in topic.schema if not field.name.startswith("_")]))
        epoch = self._epoch(log, batch)
        with log.transaction(self._producer(batch), epoch=epoch, sequence=batch.number) as transaction:
            now_us = log.clock.now_us()
            for priority, (rows, headers, _) in encoder.batches(messages, now_us=now_us).items():
                transaction.append(self.queue, rows, partition=priority, headers=headers)
            reach("delivery.written")
            refusals.post()

    def _log(self) -> Log:
        address = self.log if self.queue_log is None else self.queue_log
        if address is None:
            raise ArgumentInvalid(name="queue_log", value=None, expected="the address of the queue's log")
        return shared_log(absolute_address(address), create=True)

    def _config(self, log: Log) -> QueueConfig:
        known = Settings(log).all("queue")
        if self.queue not in known:
            log.queue(self.queue).close()
            known = Settings(log).all("queue")
        return QueueConfig(**known[self.queue])

    def _wait_for_room(self, log: Log, config: QueueConfig) -> None:
        if config.length_max is not None and config.overflow in ("block", "reject"):
            with log.queue(self.queue) as queue:
                if queue.length() >= config.length_max:
                    raise RetryLater(f"queue {self.queue!r} holds its maximum of {config.length_max} messages")

    def _messages(self, changes: Changes, config: QueueConfig) -> tuple[list[Outgoing], list[Refusal]]:
        rows = changes.rows
        if not rows.num_rows:
            return [], []
        keys = list(key_texts(rows, self.key)) if self.key else [None] * rows.num_rows
        priorities = [0] * rows.num_rows if self.priority is None else rows.column(self.priority).to_pylist()
        times = [None] * rows.num_rows if self.deliver_at is None else rows.column(self.deliver_at).to_pylist()
        messages, refused = [], []
        for position, body, key, priority, at in zip(
            changes.positions.tolist(), self._bodies(rows, config), keys, priorities, times, strict=True
        ):
            if not 0 <= (priority or 0) < config.priorities:
                refused.append(Refusal(position, f"its priority is {priority}, not 0 to {config.priorities - 1}"))
            else:
                messages.append(Outgoing(body=body, key=key, priority=priority or 0, deliver_at=at))
        return messages, refused

    # Any: what the queue's `body` setting allows.
    def _bodies(self, rows: pa.Table, config: QueueConfig) -> list[Any]:
        bodies: list[Any]
        if self.body is not None:
            bodies = rows.column(self.body).to_pylist()
            return bodies
        used = [name for name in rows.column_names if name not in (self.priority, self.deliver_at)]
        rows = rows.select(used)
        if config.body == "schema":
            bodies = rows.to_pylist()
            return bodies
        batches = rows.combine_chunks().to_batches()
        return [orjson.Fragment(line) for batch in batches for line in json_lines.encode_rows(batch)]

    def _producer(self, batch: MicroBatch) -> str:
        return f"{batch.query}.{self.name.replace(':', '.')}"

    def _epoch(self, log: Log, batch: MicroBatch) -> int | None:
        """The epoch of this run. A run is noted in a transaction of its own, so that one it replaces can be told which."""
        if not batch.run:
            return None
        producer = self._producer(batch)
        runs = f"{producer}.run"
        try:
            epoch = log.open_producer(producer, holder=batch.run)
        except ProducerFenced as error:
            current = (log.transaction_metadata(runs) or {}).get("run", "")
            raise SinkFenced(sink=self.name, query=batch.query, run=batch.run, current=current) from error
        if log.committed_sequence(runs) < epoch:
            log.commit_staged([], producer=runs, sequence=epoch, metadata={"run": batch.run})
        return epoch
