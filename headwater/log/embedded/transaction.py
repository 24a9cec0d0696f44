"""A transaction as its user holds it: rows are collected, and nobody sees them before it is committed."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from headwater.errors import (
    TransactionFinished,
)
from headwater.log.embedded.frame import Draft
from headwater.log.embedded.transactions import Commits, Part
from headwater.log.port import Appended, Offsets, Rows


class EmbeddedTransaction:
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
        self._outcome = ""
        unique = secrets.token_hex(8)
        self._id = f"{producer}.{sequence}.{unique}" if producer is not None else unique

    @property
    def id(self) -> str:
        return self._id

    @property
    def committed(self) -> bool:
        """Whether this transaction, or an earlier one with its producer and sequence, has been committed."""
        if self._outcome == "committed":
            return True
        producer, sequence = self._about["producer"], self._about["sequence"]
        if producer is None or sequence is None:
            return False
        return self._commits.last_sequence(str(producer)) >= int(sequence)

    def append(self, topic: str, rows: Rows, *, partition: int | None = None, headers: Any = None) -> None:
        """Add rows; nobody sees them before `commit`."""
        self._check_open()
        for number, drafts in self._draft(topic, rows, partition=partition, headers=headers).items():
            self._parts.setdefault((topic, number), []).extend(drafts)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit a group's position together with the rows: read, compute and append happen once or not at all."""
        self.append("__offsets", self._offsets(group, topic, offsets, metadata))

    def prepare(self) -> str:
        """Make it durable without showing it; later `Log.commit(id)` or `Log.rollback(id)`, in any process."""
        self._check_open()
        self._commits.prepare(self._id, self._list(), self._about)
        self._outcome = "prepared"
        return self._id

    def commit(self) -> dict[str, Appended]:
        """Show everything at once; returns where the rows are, by topic."""
        if self._outcome == "prepared":
            result = self._commits.commit_prepared(self._id)
        else:
            self._check_open()
            result = self._commits.commit(self._list(), name=self._id, **self._about)  # type: ignore[arg-type]
        self._outcome = "committed"
        return result

    def rollback(self) -> None:
        """Forget the rows."""
        if self._outcome == "prepared":
            self._commits.rollback_prepared(self._id)
        else:
            self._check_open()
        self._parts.clear()
        self._outcome = "rolled back"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outcome:
            return
        if error is None:
            self.commit()
        else:
            self.rollback()

    def _list(self) -> list[Part]:
        return [Part(topic, number, drafts) for (topic, number), drafts in self._parts.items()]

    def _check_open(self) -> None:
        if self._outcome:
            raise TransactionFinished(transaction=self._id, outcome=self._outcome)
