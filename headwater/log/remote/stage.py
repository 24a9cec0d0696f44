"""Rows that a task stages through a server: they are sent in parts, and each part is a staged file there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa

from headwater.log.client_config import Rows
from headwater.log.port import Stage, Staged
from headwater.log.remote.connection import Connection
from headwater.log.remote.wire import table_to_bytes
from headwater.units import MIB

#: Rows are collected up to this size before they are sent: each part becomes at least one frame.
PART_BYTES_MAX = 16 * MIB


class RemoteStage(Stage):
    """Rows that are being staged; see `Log.stage`.

    A part may be sent twice if an answer is lost. Only the part whose answer arrived is committed; the other is litter,
    which the log deletes.
    """

    # Any: headers as `Log.append` takes them.
    def __init__(
        self,
        connection: Connection,
        table_of: Callable[[str, Rows, Any], pa.Table],
        name: str,
        *,
        sequence: int,
        attempt: str,
    ) -> None:
        self._connection = connection
        self._table_of = table_of
        self._path = f"/staged/{name}/{sequence}"
        self._attempt = attempt
        self._collected: dict[str, list[pa.Table]] = {}
        self._parts: list[str] = []

    def append(self, topic: str, rows: Rows) -> None:
        table = self._table_of(topic, rows, None)
        collected = self._collected.setdefault(topic, [])
        if collected and not collected[0].schema.equals(table.schema):
            self._send(topic)
        self._collected[topic].append(table)
        if sum(one.nbytes for one in self._collected[topic]) >= PART_BYTES_MAX:
            self._send(topic)

    def finish(self) -> Staged:
        for topic in list(self._collected):
            self._send(topic)
        return Staged(orjson.dumps(self._parts).decode())

    def abandon(self) -> None:
        self._collected.clear()
        self._connection.delete(self._path, attempt=self._attempt)

    def _send(self, topic: str) -> None:
        tables, self._collected[topic] = self._collected[topic], []
        if sum(table.num_rows for table in tables):
            body = table_to_bytes(pa.concat_tables(tables))
            path = f"{self._path}/rows/{topic}"
            self._parts.append(self._connection.send_rows(path, body, again=True, attempt=self._attempt)["staged"])
