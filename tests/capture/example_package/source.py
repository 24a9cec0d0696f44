"""Files of JSON lines as a source: jsonlines:///path/to/people.jsonl.

The first line has the columns and the key; each further line is a change: {"op": "c", "row": {"id": 1, "name": "Ada"}}.
The file is only appended to, so the position is the number of its bytes that were read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from headwater.capture import (
    CaptureConfig,
    Changes,
    Piece,
    SnapshotProgress,
    SourceHealth,
    SourceInvalid,
    SourceReplaced,
    Table,
)
from headwater.capture.port import Position
from headwater.errors import ArgumentInvalid
from headwater.schema import parse_schema

SCHEME = "jsonlines:///"


class JsonLinesConnector:
    """How files of JSON lines are reached."""

    @classmethod
    def address(cls, url: str) -> str:
        if not url.startswith(SCHEME) or url == SCHEME:
            raise ArgumentInvalid(name="url", value=url, expected=f"{SCHEME}path/to/file.jsonl")
        return SCHEME + str(Path(url.removeprefix(SCHEME)).absolute())

    @classmethod
    def open(cls, config: CaptureConfig) -> JsonLinesSource:
        return JsonLinesSource(Path(config.url.removeprefix(SCHEME)), config.name)


class JsonLinesSource:
    """One file, which is one table."""

    def __init__(self, path: Path, capture: str) -> None:
        self._path = path
        self._capture = capture

    def tables(self) -> list[Table]:
        if not self._path.is_file():
            raise SourceInvalid(source=str(self._path), why="there is no such file", instead="Correct the path")
        with self._path.open() as file:
            head = json.loads(file.readline())
        return [Table(name=self._path.stem, columns=parse_schema(head["columns"]), key=tuple(head["key"]))]

    def prepare(self) -> list[Table]:
        return self.tables()  # nothing has to be created in a file

    def first_position(self) -> Position:
        with self._path.open("rb") as file:
            return {"byte": len(file.readline())}

    def read(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        table = self.tables()[0]
        size = self._path.stat().st_size
        if size < position["byte"]:
            why = f"it has {size} bytes, and the capture has read {position['byte']}"
            raise SourceReplaced(source=str(self._path), capture=self._capture, why=why)
        end, lines = position["byte"], list[dict[str, object]]()
        with self._path.open("rb") as file:
            file.seek(end)
            while len(lines) < rows_max and (line := file.readline()).endswith(b"\n"):
                lines.append(json.loads(line))
                end += len(line)
        # There is no snapshot: a file that is only appended to has every change since its beginning.
        complete = {table.name: SnapshotProgress(complete=True)} if table.name not in snapshot else {}
        return Piece(
            position={"byte": end},
            changes=[_changes(table, lines, position["byte"])] if lines else [],
            snapshot=complete,
            more=end < size and bool(lines),
        )

    def rows(self, table: Table) -> Iterator[pa.RecordBatch]:
        newest: dict[tuple[object, ...], dict[str, object]] = {}
        with self._path.open("rb") as file:
            for line in map(json.loads, file.readlines()[1:]):
                place = tuple(line["row"][name] for name in table.key)
                newest.pop(place, None)
                if line["op"] != "d":
                    newest[place] = line["row"]
        yield pa.RecordBatch.from_pylist(list(newest.values()), schema=table.columns)

    def acknowledge(self, position: Position) -> None:
        """The file keeps what was read."""

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.1))

    def health(self, position: Position) -> SourceHealth:
        return SourceHealth(pending=self._path.stat().st_size - position["byte"], delay_seconds=0.0, unit="byte")

    def drop(self) -> None:
        """Nothing was created."""

    def close(self) -> None:
        """No file is kept open."""


def _changes(table: Table, lines: list[dict[str, object]], order: int) -> Changes:
    now_us = time.time_ns() // 1000
    return Changes(
        table=table,
        operations=pa.array([line["op"] for line in lines], pa.string()),
        rows=pa.RecordBatch.from_pylist([line["row"] for line in lines], schema=table.columns),
        at_us=pa.array([now_us] * len(lines), pa.int64()),
        order=pa.array(range(order, order + len(lines)), pa.int64()),
    )
