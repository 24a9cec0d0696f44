"""A JSON file as a target: jsonfile:///path/to/copy.json.

The file has the rows of each table and its position. It is replaced as a whole, so that both change in one step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.sync import SyncConfig
from headwater.sync.port import Position, TableChanges, TargetTable, is_pending

SCHEME = "jsonfile:///"


class JsonFileTarget:
    """One file with all tables of a sync."""

    def __init__(self, path: Path, sync: str) -> None:
        self._path = path
        self._sync = sync

    @classmethod
    def address(cls, url: str) -> str:
        if not url.startswith(SCHEME) or url == SCHEME:
            raise ArgumentInvalid(name="url", value=url, expected=f"{SCHEME}path/to/file.json")
        return SCHEME + str(Path(url.removeprefix(SCHEME)).absolute())

    @classmethod
    def open(cls, config: SyncConfig) -> JsonFileTarget:
        return cls(Path(config.url.removeprefix(SCHEME)), config.name)

    @property
    def name(self) -> str:
        return str(self._path)

    def prepare(self, table: TargetTable) -> None:
        content = self._content()
        content.setdefault(table.name, {"position": None, "rows": {}})
        self._replace(content)

    def position(self, table: TargetTable) -> Position | None:
        held = self._content().get(table.name, {}).get("position")
        return None if held is None else Position.from_json(held)

    def apply(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        content = self._content()
        for one in changes:
            if not is_pending(self._sync, self.position(one.table), one):
                continue
            rows = content[one.table.name]["rows"]
            for step in one.steps:
                for row in step.gone.to_pylist():
                    rows.pop(_key(one.table, row), None)
                for row in step.rows.to_pylist():
                    rows[_key(one.table, row)] = row
            content[one.table.name]["position"] = one.after.to_json()
        if not trial:
            self._replace(content)

    def scan(self, table: TargetTable) -> tuple[Position | None, Iterator[pa.Table]]:
        rows = list(self._content()[table.name]["rows"].values())
        return self.position(table), iter([pa.Table.from_pylist(rows, schema=table.columns)])

    def stored(self, rows: pa.Table) -> pa.Table:
        return rows

    def switch(self, table: TargetTable, new: TargetTable) -> None:
        content = self._content()
        content[table.name] = content.pop(new.name)
        self._replace(content)

    def discard(self, table: TargetTable) -> None:
        content = self._content()
        content.pop(table.name, None)
        self._replace(content)

    def forget(self) -> None:
        self._replace({name: {**held, "position": None} for name, held in self._content().items()})

    def close(self) -> None:
        """No file is kept open."""

    # Any: JSON.
    def _content(self) -> dict[str, Any]:
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def _replace(self, content: dict[str, Any]) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(content))
        os.replace(new, self._path)


# Any: a row.
def _key(table: TargetTable, row: dict[str, Any]) -> str:
    return json.dumps([row[name] for name in table.key])
