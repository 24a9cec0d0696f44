"""Transactions of the embedded log, and rows that other processes have staged for one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headwater.errors import (
    ArgumentInvalid,
    TransactionNotFound,
)
from headwater.log.embedded.faults import reach
from headwater.log.embedded.frame import Draft
from headwater.log.embedded.staging import Stage, Staged, file_name
from headwater.log.embedded.topics import check_name
from headwater.log.embedded.transaction import EmbeddedTransaction
from headwater.log.offsets import OFFSETS_TOPIC
from headwater.log.port import (
    Appended,
    Offsets,
    Rows,
)

if TYPE_CHECKING:
    pass


from headwater.log.embedded.writing import Writing


class Transacting(Writing):
    """How rows of many topics come in at once."""

    def transaction(
        self, producer: str | None = None, *, epoch: int | None = None, sequence: int | None = None
    ) -> EmbeddedTransaction:
        """Append to many topics at once: `with log.transaction() as t: t.append(...)`.

        With a producer and a sequence, a transaction that was committed before changes nothing, so it can be retried
        without doubling; with an older epoch it is refused.
        """
        self._check_writable()
        if producer is not None:
            check_name("producer", producer)
        if sequence is not None and producer is None:
            raise ArgumentInvalid(name="sequence", value=sequence, expected="a producer along with it")
        return EmbeddedTransaction(
            self._checked_commits,
            self._draft_by_name,
            self._offset_rows,
            producer=producer,
            epoch=epoch,
            sequence=sequence,
        )

    def prepared(self) -> list[str]:
        """The ids of transactions that are durable but neither committed nor rolled back."""
        return self._checked_commits.prepared()

    def commit(self, transaction: str) -> dict[str, Appended]:
        """Commit a prepared transaction by its id; a second call changes nothing."""
        _check_id(transaction)
        return self._checked_commits.commit_prepared(transaction)

    def rollback(self, transaction: str) -> None:
        """Forget a prepared transaction."""
        _check_id(transaction)
        self._checked_commits.rollback_prepared(transaction)

    def committed_sequence(self, producer: str) -> int:
        """The sequence of the last transaction that `producer` committed, -1 for none."""
        return self._checked_commits.last_sequence(producer)

    def transaction_metadata(self, producer: str) -> dict[str, Any] | None:
        """What the last transaction that `producer` committed says about itself, None where there is nothing."""
        return self._checked_commits.last_metadata(producer)

    def stage(self, name: str, *, sequence: int, attempt: str) -> Stage:
        """Begin a file of rows that nobody reads until `commit_staged` takes it over, in this or another process."""
        self._check_writable()
        check_name("producer", name)
        check_name("attempt", attempt)
        return Stage(
            self._staging,
            name,
            file_name(sequence, attempt),
            draft=self._draft_by_name,
            topic_id=lambda topic: self.topic(topic).id,
            rows_max=self.config.frame_rows_max,
        )

    def commit_staged(
        self,
        staged: Iterable[Staged],
        *,
        producer: str | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Appended]:
        """Append all rows of staged files in one transaction, and remove the files.

        With a producer and a sequence it can be repeated without doubling, and removes what other attempts have staged
        under the producer's name up to that sequence. `metadata` is kept with the transaction, also where it has no rows.
        """
        self._check_writable()
        files = list(staged)
        if producer is not None and sequence is not None and self.committed_sequence(producer) >= sequence:
            parts = []  # without a look at the files, which may be gone
        else:
            parts = self._staging.parts(files, topic_id=lambda topic: self.topic(topic).id)
        reach("sink.before_commit")
        name = f"{producer}.{sequence}" if producer is not None else uuid.uuid4().hex
        result = self._checked_commits.commit(
            parts, name=name, producer=producer, epoch=epoch, sequence=sequence, metadata=metadata
        )
        reach("sink.committed")
        self._staging.discard(files)
        if producer is not None and sequence is not None:
            self._staging.clear(producer, sequence_max=sequence)
        self._staging.sweep_now_and_then()
        self._look_after(result.values())
        return result

    def discard_staged(self, staged: Iterable[Staged]) -> None:
        """Remove staged files. Whatever a transaction has taken over stays."""
        self._check_writable()
        self._staging.discard(staged)

    def discard_attempts(self, name: str, *, sequence: int, attempt: str) -> None:
        """Remove all files staged for a sequence by attempts whose names begin with `attempt`."""
        self._check_writable()
        self._staging.clear_attempts(name, sequence=sequence, attempt=attempt)

    def _draft_by_name(
        self, topic: str, rows: Rows, *, partition: int | None = None, headers: Any = None
    ) -> dict[int, list[Draft]]:
        if topic == OFFSETS_TOPIC:
            self._offsets.make()
        return self._draft(self._handle(topic), rows, partition=partition, headers=headers)

    def _offset_rows(self, group: str, topic: str, offsets: Offsets, metadata: str) -> list[dict[str, Any]]:
        check_name("group", group)
        at = datetime.fromtimestamp(self.clock.now_us() / 1e6, tz=UTC)
        return [
            {"group": group, "topic": topic, "partition": partition, "offset": offset, "metadata": metadata, "at": at}
            for partition, offset in offsets.items()
        ]


def _check_id(transaction: str) -> None:
    # An id is the name of a file, and may come from another machine: one that could leave the folder names nothing.
    if transaction.strip(".") == "" or not transaction.isprintable() or "/" in transaction or len(transaction) > 255:
        raise TransactionNotFound(transaction=transaction)
