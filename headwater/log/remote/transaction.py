"""A transaction of a remote log."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from headwater.log.errors import TransactionFinished
from headwater.log.port import Appended, Offsets, Rows
from headwater.log.remote.connection import Connection
from headwater.log.remote.wire import appended_from_json, offsets_to_json, table_to_bytes


class RemoteTransaction:
    """A transaction of a remote log; see `Log.transaction`."""

    # Any: headers as `Log.append` takes them.
    def __init__(
        self,
        connection: Connection,
        table_of: Callable[[str, Rows, Any], pa.Table],
        *,
        producer: str | None,
        epoch: int | None,
        sequence: int | None,
    ) -> None:
        self._connection = connection
        self._table_of = table_of
        self._outcome = ""
        body = {"producer": producer, "epoch": epoch, "sequence": sequence}
        begun = connection.post("/transactions", {k: v for k, v in body.items() if v is not None}, again=True)
        self._id: str = begun["id"]
        self._was_committed: bool = begun["committed"]

    @property
    def id(self) -> str:
        return self._id

    @property
    def committed(self) -> bool:
        """Whether this transaction, or an earlier one with its producer and sequence, is committed."""
        return self._was_committed or self._outcome == "committed"

    def append(self, topic: str, rows: Rows, *, partition: int | None = None, headers: Any = None) -> None:
        """Add rows; they become visible by `commit`."""
        self._check_open()
        table = self._table_of(topic, rows, headers)
        path = f"/transactions/{self._id}/rows/{topic}"
        # Not retried if the answer is lost: the rows could be added twice. The caller starts a new transaction.
        self._connection.send_rows(path, table_to_bytes(table), again=False, partition=partition)

    def commit_offsets(self, group: str, topic: str, offsets: Offsets, *, metadata: str = "") -> None:
        """Commit offsets of a group together with the rows, for exactly-once processing."""
        self._check_open()
        body = {"topic": topic, "offsets": offsets_to_json(offsets), "metadata": metadata}
        self._connection.post(f"/transactions/{self._id}/offsets/{group}", body, again=True)

    def prepare(self) -> str:
        """Make it durable but not visible, for a later `Log.commit(id)` or `Log.rollback(id)` in any process."""
        self._check_open()
        self._connection.post(f"/transactions/{self._id}/prepare", again=True)
        self._outcome = "prepared"
        return self._id

    def commit(self) -> dict[str, Appended]:
        """Make all rows visible at once; return their offsets by topic."""
        if self._outcome != "prepared":
            self._check_open()
        found = self._connection.post(f"/transactions/{self._id}/commit", again=True)
        self._outcome = "committed"
        return {topic: appended_from_json(body) for topic, body in found["topics"].items()}

    def rollback(self) -> None:
        """Discard the rows."""
        if self._outcome != "prepared":
            self._check_open()
        self._connection.delete(f"/transactions/{self._id}")
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

    def _check_open(self) -> None:
        if self._outcome:
            raise TransactionFinished(transaction=self._id, outcome=self._outcome)
