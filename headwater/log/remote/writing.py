"""Rows on their way to a log that is elsewhere, alone and in transactions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa

from headwater.errors import RowInvalid
from headwater.log.embedded.topics import check_name
from headwater.log.embedded.writing import micros
from headwater.log.port import Appended, Rows
from headwater.log.remote.core import given, named, quoted
from headwater.log.remote.declaring import Declaring
from headwater.log.remote.rows import table_of
from headwater.log.remote.transaction import RemoteTransaction
from headwater.log.remote.wire import appended_from_json, table_to_bytes


class Writing(Declaring):
    """How rows come in."""

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
        """Append rows; on return they are as durable as the topic promises, and readers see them.

        Where the answer is lost the call asks again by itself, and the rows are there once. If the server was started
        again meanwhile, `OutcomeUnknown` says that nobody knows whether they are there; with a producer and a sequence
        the log itself knows.
        """
        table = self._table_of(topic, rows, headers)
        found = self._connection.append_rows(
            named(topic),
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
        """Wait until every row written so far is as durable as the topic promises."""
        self._connection.post(f"/topics/{named(topic)}/flush", again=True)

    def punctuate(
        self, topic: str, time: datetime | int, *, producer: str | None = None, partition: int | None = None
    ) -> None:
        """Promise that no row earlier than `time` follows from this producer."""
        body = given({"time_us": micros(time), "producer": producer, "partition": partition})
        self._connection.post(f"/topics/{named(topic)}/punctuate", body)

    def open_producer(self, name: str, *, holder: str | None = None) -> int:
        """Begin a new epoch for an idempotent producer: from now on, whoever uses an older one is refused."""
        check_name("producer", name)
        epoch: int = self._connection.post(f"/producers/{name}/open", holder=holder)["epoch"]
        return epoch

    def last_sequence(self, topic: str, producer: str) -> int:
        """The highest sequence that this producer has appended to any partition of the topic, -1 for none."""
        found: int = self._connection.get(f"/topics/{named(topic)}/producers/{quoted(producer)}")["sequence"]
        return found

    def _table_of(self, topic: str, rows: Rows, headers: Any = None) -> pa.Table:
        known = self._recent(topic)
        try:
            return table_of(known, rows, headers)
        except RowInvalid:
            # The topic may have changed since we last looked, or be another one of the same name.
            now = self.topic(topic)
            if now.id == known.id and now.schema_version == known.schema_version:
                raise
            return table_of(now, rows, headers)

    # -- transactions -------------------------------------------------------------------------------------------------

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> RemoteTransaction:
        """Append to many topics at once: `with log.transaction() as t: t.append(...)`."""
        return RemoteTransaction(self._connection, self._table_of, producer=producer, epoch=epoch, sequence=sequence)

    def prepared(self) -> list[str]:
        """The ids of transactions that are durable but neither committed nor rolled back."""
        found: list[str] = self._connection.get("/transactions/prepared")["transactions"]
        return found

    def commit(self, transaction: str) -> dict[str, Appended]:
        """Commit a prepared transaction by its id; a second call changes nothing."""
        found = self._connection.post(f"/transactions/{quoted(transaction)}/commit", again=True)
        return {topic: appended_from_json(body) for topic, body in found["topics"].items()}

    def rollback(self, transaction: str) -> None:
        """Forget a prepared transaction."""
        self._connection.delete(f"/transactions/{quoted(transaction)}")

    def committed_sequence(self, producer: str) -> int:
        """The sequence of the last transaction that `producer` committed, -1 for none."""
        found: int = self._connection.get(f"/producers/{quoted(producer)}")["sequence"]
        return found
