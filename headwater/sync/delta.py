"""Delta Lake as a target: one table in a folder for each topic, changed by MERGE.

The position is in the commit of the rows, as application transactions of the table: the next offset of each partition
under the sync's name. Delta lets only one of two commits with the same application transaction through.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.faults import reach
from headwater.optional import require
from headwater.sinks.retry import RetryLater
from headwater.sync.address import path_address
from headwater.sync.config import SyncConfig
from headwater.sync.errors import TargetRefused
from headwater.sync.lake import CURRENT, FROM, TO, history_columns, history_of, lake_rows
from headwater.sync.port import Position, TableChanges, TargetTable, is_pending

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_SCHEME = "delta:///"
_GONE, _CLOSES = "_gone", "_closes"


class DeltaTarget:
    """Delta tables in a folder, with the current rows or with their history."""

    def __init__(self, config: SyncConfig) -> None:
        require("deltalake", extra="lake")
        config.check_options({})
        config.check_no_transactions()
        self._root = Path(config.url.removeprefix(_SCHEME))
        self._sync = config.name
        self._mode = config.mode

    @classmethod
    def address(cls, url: str) -> str:
        return path_address(url, expected="delta:///path/to/folder")

    @classmethod
    def open(cls, config: SyncConfig) -> DeltaTarget:
        return cls(config)

    @property
    def name(self) -> str:
        return f"{_SCHEME}{self._root}"

    def close(self) -> None:
        """Nothing is open between steps."""

    def prepare(self, table: TargetTable) -> None:
        from deltalake import DeltaTable, Schema

        columns = self._columns(table)
        with self._explained():
            delta = self._delta(table)
            if delta is None:
                self._folder(table).mkdir(parents=True, exist_ok=True)
                DeltaTable.create(self._folder(table), Schema.from_arrow(columns), mode="ignore")
                return
            known = pa.schema(delta.schema().to_arrow()).names
            added = [one for one in columns if one.name not in known]
            if added:
                delta.alter.add_columns(list(Schema.from_arrow(pa.schema(added)).fields))

    def position(self, table: TargetTable) -> Position | None:
        delta = self._delta(table)
        return None if delta is None else self._position(delta, table)

    def _position(self, delta: DeltaTable, table: TargetTable) -> Position | None:
        name = self._application(delta)
        epoch = delta.transaction_version(name)
        if epoch is None:
            return None
        offsets: dict[int, int] = {}
        while (offset := delta.transaction_version(f"{name}/{table.topic_id}/{len(offsets)}")) is not None:
            offsets[len(offsets)] = offset
        # Positions of another topic id only: the topic was deleted and created again.
        return Position(topic_id=table.topic_id if offsets else "", offsets=offsets, epoch=epoch)

    def apply(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        if trial:
            return  # a Delta table of ours has no constraints
        for one in changes:
            with self._explained():
                delta = self._delta(one.table)
                assert delta is not None, "the table was prepared"
                if is_pending(self._sync, self._position(delta, one.table), one):
                    if self._mode == "history" and one.before != one.after:
                        self._merge_history(delta, one)
                    else:
                        self._merge_rows(delta, one)
            reach("target.committed")

    def _merge_rows(self, delta: DeltaTable, changes: TableChanges) -> None:
        columns, table = self._columns(changes.table), changes.table
        current = f" AND t.{CURRENT}" if self._mode == "history" else ""
        for step in changes.steps:
            rows = step.rows.append_column(_GONE, pa.array([False] * step.rows.num_rows, pa.bool_()))
            gone = self.stored(step.gone).append_column(_GONE, pa.array([True] * step.gone.num_rows, pa.bool_()))
            source = pa.concat_tables([self.stored(rows), gone], promote_options="default")
            names = [name for name in columns.names if name in source.column_names]
            values = {_quoted(name): f"s.{_quoted(name)}" for name in names}
            reach("target.written")
            reach("target.before_commit")
            (
                delta.merge(
                    source,
                    predicate=_same(table) + current,
                    source_alias="s",
                    target_alias="t",
                    commit_properties=self._properties(delta, changes.table, changes.after),
                )
                .when_matched_delete(predicate=f"s.{_GONE}")
                .when_matched_update(values, predicate=f"NOT s.{_GONE}")
                .when_not_matched_insert(
                    values | ({_quoted(CURRENT): "true"} if self._mode == "history" else {}), predicate=f"NOT s.{_GONE}"
                )
                .execute()
            )

    def _merge_history(self, delta: DeltaTable, changes: TableChanges) -> None:
        """Close current versions and insert new ones, in one commit."""
        columns = self._columns(changes.table)
        found = history_of(changes.versions, changes.table)
        key = list(changes.table.key)
        closed = self.stored(found.closed.select(key)).append_column(TO, found.closed.column(TO))
        closed = closed.append_column(_CLOSES, pa.array([True] * closed.num_rows, pa.bool_()))
        opened = found.opened.cast(columns)
        opened = opened.append_column(_CLOSES, pa.array([False] * opened.num_rows, pa.bool_()))
        values = {_quoted(name): f"s.{_quoted(name)}" for name in columns.names}
        reach("target.written")
        reach("target.before_commit")
        (
            delta.merge(
                pa.concat_tables([opened, closed], promote_options="default"),
                predicate=f"{_same(changes.table)} AND t.{CURRENT} AND s.{_CLOSES}",
                source_alias="s",
                target_alias="t",
                commit_properties=self._properties(delta, changes.table, changes.after),
            )
            .when_matched_update(
                # A clock may be set back.
                {TO: f"CASE WHEN s.{TO} < t.{FROM} THEN t.{FROM} ELSE s.{TO} END", CURRENT: "false"}
            )
            .when_not_matched_insert(values, predicate=f"NOT s.{_CLOSES}")
            .execute()
        )

    def scan(self, table: TargetTable) -> tuple[Position | None, Iterator[pa.Table]]:
        delta = self._delta(table)
        if delta is None:
            return None, iter(())
        rows = pa.table(delta.to_pyarrow_table())
        if self._mode == "history":
            rows = rows.filter(rows.column(CURRENT))
        shape = self.stored(table.columns.empty_table()).schema
        return self._position(delta, table), iter([rows.select(shape.names).cast(shape)])

    def stored(self, rows: pa.Table) -> pa.Table:
        return lake_rows(self.name, rows)

    def switch(self, table: TargetTable, new: TargetTable) -> None:
        from deltalake import write_deltalake

        with self._explained():
            delta, made = self._delta(table), self._delta(new)
            assert made is not None, "the new table was prepared"
            position = self._position(made, new)
            if delta is None:
                self.prepare(table)
                delta = self._delta(table)
            assert delta is not None
            reach("target.before_switch")
            properties = None if position is None else self._properties(delta, table, position)
            write_deltalake(
                delta, made.to_pyarrow_table(), mode="overwrite", schema_mode="overwrite", commit_properties=properties
            )
        self.discard(new)

    def discard(self, table: TargetTable) -> None:
        shutil.rmtree(self._folder(table), ignore_errors=True)

    def forget(self) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction

        for folder in self._root.iterdir() if self._root.exists() else ():
            if DeltaTable.is_deltatable(str(folder)):
                delta = DeltaTable(folder)
                # Application transactions cannot be removed: later positions have another name.
                number = (delta.transaction_version(self._generations) or 0) + 1
                properties = CommitProperties(app_transactions=[Transaction(self._generations, number, None)])
                with self._explained():
                    delta.create_write_transaction([], "append", delta.schema(), [], commit_properties=properties)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _generations(self) -> str:
        return f"headwater.sync/{self._sync}/generation"

    def _application(self, delta: DeltaTable) -> str:
        return f"headwater.sync/{self._sync}/{delta.transaction_version(self._generations) or 0}"

    def _properties(self, delta: DeltaTable, table: TargetTable, position: Position) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        name = self._application(delta)
        numbers = {name: position.epoch} | {
            f"{name}/{table.topic_id}/{partition}": offset for partition, offset in position.offsets.items()
        }
        return CommitProperties(app_transactions=[Transaction(app, number, None) for app, number in numbers.items()])

    def _folder(self, table: TargetTable) -> Path:
        return self._root / table.name

    def _columns(self, table: TargetTable) -> pa.Schema:
        columns = self.stored(table.columns.empty_table()).schema
        return history_columns(columns) if self._mode == "history" else columns

    def _delta(self, table: TargetTable) -> DeltaTable | None:
        from deltalake import DeltaTable

        folder = self._folder(table)
        return DeltaTable(folder) if DeltaTable.is_deltatable(str(folder)) else None

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError as error:
            raise RetryLater(f"another writer was first ({error})") from error
        except DeltaError as error:
            why = " ".join(str(error).split()).rstrip(".")[:500]
            instead = "Correct the table in the folder, or run `headwater sync rebuild`"
            raise TargetRefused(target=self.name, why=why, instead=instead) from error


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _same(table: TargetTable) -> str:
    return " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in table.key)
