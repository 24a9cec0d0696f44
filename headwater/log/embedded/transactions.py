"""Transactions of the embedded log as their users hold them, and commits of staged files."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.errors import ArgumentInvalid, NotFound
from headwater.faults import reach
from headwater.log.client_config import Rows
from headwater.log.embedded.catalogue import Catalogue
from headwater.log.embedded.commits import Commits
from headwater.log.embedded.groups import OffsetTable
from headwater.log.embedded.stage import Area, EmbeddedStage, StagedFile, file_name
from headwater.log.embedded.transaction_parts import Part
from headwater.log.embedded.writer import Writer
from headwater.log.errors import TransactionFinished
from headwater.log.frame import Draft
from headwater.log.port import OFFSETS_TOPIC, Appended, Offsets, Staged, Transaction
from headwater.log.topic_rules import check_name


class Transactions:
    """Begins transactions, and commits prepared transactions and staged files."""

    def __init__(
        self, catalogue: Catalogue, commits: Commits, writer: Writer, offsets: OffsetTable, *, folder: Path
    ) -> None:
        self._catalogue = catalogue
        self._commits = commits
        self._writer = writer
        self._offsets = offsets
        self.staging = Area(folder)

    def begin(self, producer: str | None, *, epoch: int | None, sequence: int | None) -> EmbeddedTransaction:
        if producer is not None:
            check_name("producer", producer)
        if sequence is not None and producer is None:
            raise ArgumentInvalid(name="sequence", value=sequence, expected="a producer along with it")
        return EmbeddedTransaction(
            self._commits, self._draft, self._offsets.rows, producer=producer, epoch=epoch, sequence=sequence
        )

    def commit(self, transaction: str) -> dict[str, Appended]:
        _check_id(transaction)
        return self._commits.commit_prepared(transaction)

    def rollback(self, transaction: str) -> None:
        _check_id(transaction)
        self._commits.rollback_prepared(transaction)

    def stage(self, name: str, *, sequence: int, attempt: str) -> EmbeddedStage:
        check_name("producer", name)
        check_name("attempt", attempt)
        return EmbeddedStage(
            self.staging,
            name,
            file_name(sequence, attempt),
            draft=self._draft,
            topic_id=self._topic_id,
            rows_max=self._writer.frame_rows_max,
        )

    def commit_staged(
        self,
        staged: list[Staged],
        *,
        producer: str | None,
        sequence: int | None,
        epoch: int | None,
        metadata: dict[str, Any] | None,
    ) -> dict[str, Appended]:
        files = [StagedFile.from_json(one) for one in staged]
        if producer is not None and sequence is not None and self._commits.last_sequence(producer) >= sequence:
            parts = []  # committed before: the files may be gone
        else:
            parts = self.staging.parts(files, topic_id=self._topic_id)
        reach("sink.before_commit")
        name = f"{producer}.{sequence}" if producer is not None else uuid.uuid4().hex
        result = self._commits.commit(
            parts, name=name, producer=producer, epoch=epoch, sequence=sequence, metadata=metadata
        )
        reach("sink.committed")
        self.staging.discard(files)
        if producer is not None and sequence is not None:
            self.staging.clear(producer, sequence_max=sequence)
        self.staging.sweep_now_and_then()
        self._writer.schedule_maintenance(result.values())
        return result

    def _topic_id(self, topic: str) -> str:
        return self._catalogue.get(topic).current().id

    def _draft(
        self,
        topic: str,
        rows: Rows,
        *,
        partition: int | None = None,
        headers: Any = None,
        sent_at_us: int | None = None,
    ) -> dict[int, list[Draft]]:
        if topic == OFFSETS_TOPIC:
            self._offsets.make()
        return self._writer.draft_for(topic, rows, partition=partition, headers=headers, sent_at_us=sent_at_us)


class EmbeddedTransaction(Transaction):
    """A transaction of the embedded log; see `Log.transaction`."""

    def __init__(
        self,
        commits: Commits,
        draft: Callable[..., dict[int, list[Draft]]],
        offsets: Callable[[str, str, Offsets, str], list[dict[str, Any]]],
        *,
        producer: str | None,
        epoch: int | None,
        sequence: int | None,
    ) -> None:
        self._commits = commits
        self._draft = draft
        self._offsets = offsets
        self._about = {"producer": producer, "epoch": epoch, "sequence": sequence}
        self._parts: dict[tuple[str, int], list[Draft]] = {}
        self.outcome = ""
        unique = secrets.token_hex(8)
        self._id = f"{producer}.{sequence}.{unique}" if producer is not None else unique

    @property
    def id(self) -> str:
        return self._id

    @property
    def committed(self) -> bool:
        if self.outcome == "committed":
            return True
        producer, sequence = self._about["producer"], self._about["sequence"]
        if producer is None or sequence is None:
            return False
        return self._commits.last_sequence(str(producer)) >= int(sequence)

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
        found = self._draft(topic, rows, partition=partition, headers=headers, sent_at_us=sent_at_us)
        for number, drafts in found.items():
            self._parts.setdefault((topic, number), []).extend(drafts)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        self.append(OFFSETS_TOPIC, self._offsets(group, topic, offsets, metadata))

    def prepare(self) -> str:
        self._check_open()
        self._commits.prepare(self._id, self._list(), self._about)
        self.outcome = "prepared"
        return self._id

    def commit(self) -> dict[str, Appended]:
        if self.outcome == "prepared":
            result = self._commits.commit_prepared(self._id)
        else:
            self._check_open()
            result = self._commits.commit(self._list(), name=self._id, **self._about)  # type: ignore[arg-type]
        self.outcome = "committed"
        return result

    def rollback(self) -> None:
        if self.outcome == "prepared":
            self._commits.rollback_prepared(self._id)
        else:
            self._check_open()
        self._parts.clear()
        self.outcome = "rolled back"

    def _list(self) -> list[Part]:
        return [Part(topic, number, drafts) for (topic, number), drafts in self._parts.items()]

    def _check_open(self) -> None:
        if self.outcome:
            raise TransactionFinished(transaction=self._id, outcome=self.outcome)


def _check_id(transaction: str) -> None:
    # An id is the name of a file, and may come over the network: it must not leave the folder.
    if transaction.strip(".") == "" or not transaction.isprintable() or "/" in transaction or len(transaction) > 255:
        raise NotFound(kind="prepared transaction", name=transaction)
