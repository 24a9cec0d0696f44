"""What a capture leaves out or hides of a table: rows by a condition, columns by name, values by masks.

All of it happens on Arrow batches before anything is appended: what is left out is never in the log, also not in its
dead letters. Conditions see the rows as they are in the database; masks are applied last.

A row that leaves the condition is a deletion, and one that enters it an insertion. Where the database does not tell what
a row was before, each row that does not meet the condition is a deletion of its key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.condition import Condition
from headwater.capture.config import CaptureConfig
from headwater.capture.errors import SourceInvalid
from headwater.capture.outbox import Outbox
from headwater.capture.port import Changes, Misfit, Table
from headwater.errors import ArgumentInvalid, did_you_mean

HASH, NULL = "hash", "null"
HIDDEN = "***"


@dataclass(frozen=True, kw_only=True)
class Transform:
    """The filters, columns and masks of a capture, by table; masks by `table.column`."""

    where: Mapping[str, Condition] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    mask: Mapping[str, str] = field(default_factory=dict)
    salt: bytes = field(default=b"", repr=False)

    @classmethod
    def of(
        cls, *, where: Mapping[str, str], columns: Mapping[str, Sequence[str]], mask: Mapping[str, str], salt_env: str
    ) -> Transform:
        """Parse the conditions, and read the salt of hashes from the environment."""
        salt = os.environ.get(salt_env, "").encode()
        if HASH in mask.values() and not salt:
            raise ArgumentInvalid(
                name="salt_env",
                value=salt_env,
                expected="the name of an environment variable with a secret text: hashes without one can be guessed",
            )
        return cls(where={name: Condition(text) for name, text in where.items()}, columns=columns, mask=mask, salt=salt)

    def check(self, tables: Sequence[Table]) -> None:
        """Raise unless the tables have the columns that the capture names."""
        known = {table.name: table for table in tables}
        named = [(table, column) for table, condition in self.where.items() for column in condition.columns]
        named += [(table, column) for table, columns in self.columns.items() for column in columns]
        named += [(table, column) for table, _, column in (one.rpartition(".") for one in self.mask)]
        for name, column in named:
            table = known.get(name)
            if table is None:
                why = "the capture has no such table." + did_you_mean(name, known).rstrip(".")
            elif column not in table.columns.names:
                why = f"it has no column {column!r}." + did_you_mean(column, table.columns.names).rstrip(".")
            else:
                continue
            raise SourceInvalid(
                source=f"Table {name!r}", why=why, instead="Correct the name in `where`, `columns` or `mask`"
            )
        for table in tables:
            self._check_key(table)

    def _check_key(self, table: Table) -> None:
        masked = self._masks(table)
        lost = [name for name in table.key if name not in self.columns.get(table.name, table.key)]
        lost += [name for name in table.key if masked.get(name, HASH) != HASH]
        if lost:
            raise SourceInvalid(
                source=f"Table {table.name!r}",
                why=f"column {lost[0]!r} is of its key, without which its rows cannot be told apart",
                instead="Keep the columns of the key, and mask them only with 'hash'",
            )

    def table(self, table: Table) -> Table:
        """The table as topics have it."""
        chosen = self.columns.get(table.name)
        masked = self._masks(table)
        fields = [
            pa.field(one.name, pa.string()) if masked.get(one.name, NULL) != NULL else one
            for one in table.columns
            if chosen is None or one.name in chosen
        ]
        return replace(table, columns=pa.schema(fields))

    def apply(self, changes: Changes) -> Changes | None:
        """The changes as topics have them; None if none is left."""
        condition = self.where.get(changes.table.name)
        if condition is not None:
            changes = _filtered(changes, condition)
        if not changes.count:
            return None
        table = self.table(changes.table)
        if table == changes.table and not self._masks(table):
            return changes
        before = None if changes.before is None else self._batch(changes.table, table, changes.before)
        return replace(changes, table=table, rows=self._batch(changes.table, table, changes.rows), before=before)

    def misfit(self, misfit: Misfit) -> Misfit:
        """A row that does not fit, without what must not be seen."""
        chosen = self.columns.get(misfit.table)
        masked = {column for table, _, column in (one.rpartition(".") for one in self.mask) if table == misfit.table}
        if chosen is None and not masked:
            return misfit
        shown = {
            name: HIDDEN if name in masked else value
            for name, value in orjson.loads(misfit.row).items()
            if chosen is None or name in chosen
        }
        return replace(misfit, row=orjson.dumps(shown).decode(), why="a value does not fit its column; some are hidden")

    def _masks(self, table: Table) -> dict[str, str]:
        return {
            one.name: self.mask[f"{table.name}.{one.name}"]
            for one in table.columns
            if f"{table.name}.{one.name}" in self.mask
        }

    def _batch(self, old: Table, new: Table, rows: pa.RecordBatch) -> pa.RecordBatch:
        masked = self._masks(old)
        columns = [
            self._masked(rows[one.name], masked[one.name], one.type) if one.name in masked else rows[one.name]
            for one in new.columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=new.columns)

    def _masked(self, values: pa.Array, mask: str, kind: pa.DataType) -> pa.Array:
        if mask == NULL:
            return pa.nulls(len(values), kind)
        if mask != HASH:
            return pc.if_else(pc.is_valid(values), pa.scalar(mask), pa.scalar(None, pa.string()))
        coded = values.dictionary_encode()
        hashes = [hashed(value, self.salt) for value in coded.dictionary.to_pylist()]
        return pa.array(hashes, pa.string()).take(coded.indices)


def transform_of(config: CaptureConfig) -> Transform:
    """The filters, columns and masks of a capture."""
    return Transform.of(where=config.where, columns=config.columns, mask=config.mask, salt_env=config.salt_env)


def check_tables(config: CaptureConfig, tables: Sequence[Table]) -> None:
    """Raise unless the tables have what the definition of a capture names."""
    transform_of(config).check(tables)
    if config.outbox is not None:
        chosen = next((table for table in tables if table.name == config.outbox), None)
        if chosen is None:
            raise SourceInvalid(
                source=f"Outbox {config.outbox!r}",
                why="the capture has no such table."
                + did_you_mean(config.outbox, [one.name for one in tables]).rstrip("."),
                instead="Name one of the captured tables as `outbox`",
            )
        Outbox(config.outbox).check(chosen)


def hashed(value: object, salt: bytes) -> str:
    """The hash of a value: HMAC-SHA256 of its text, keyed by the salt, so that equal values stay equal and none can be guessed.

    >>> hashed("ada@example.org", b"a secret")[:16]
    'd266fa008e239a68'
    """
    raw = value if isinstance(value, bytes) else str(value).encode()
    return hmac.new(salt, raw, hashlib.sha256).hexdigest()


def _filtered(changes: Changes, condition: Condition) -> Changes:
    _check_sent(changes, condition)
    operations = changes.operations
    meets = condition.matches(changes.rows)
    is_update, is_deletion = pc.equal(operations, "u"), pc.equal(operations, "d")
    is_other = pc.is_in(operations, value_set=pa.array(["t", "m"]))
    # Of a deleted row the database may tell only the key: then the condition is undecided, and the deletion is kept.
    may_have_met = pc.fill_null(condition.values(changes.rows), True)
    met = pa.array(np.ones(changes.count, bool))
    before = changes.before
    if before is not None:
        is_known = _is_known(before)
        met = pc.or_(pc.invert(is_known), condition.matches(before))
        entered = pc.and_(pc.and_(is_update, meets), pc.and_(is_known, pc.invert(condition.matches(before))))
    else:
        entered = pa.array(np.zeros(changes.count, bool))
    left = pc.and_(pc.and_(is_update, pc.invert(meets)), met)
    kept = pc.or_(pc.or_(meets, is_other), pc.or_(left, pc.and_(is_deletion, may_have_met)))
    operations = pc.if_else(left, "d", pc.if_else(entered, "c", operations))
    rows = _chosen(left, _left_rows(changes), changes.rows)
    if before is not None:
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(changes.count, one.type) for one in changes.table.columns], schema=changes.table.columns
        )
        before = _chosen(pc.or_(left, entered), nothing, before).filter(kept)
    return replace(
        changes,
        operations=operations.filter(kept),
        rows=rows.filter(kept),
        at_us=changes.at_us.filter(kept),
        order=changes.order.filter(kept),
        before=before,
        transaction=None if changes.transaction is None else changes.transaction.filter(kept),
        unchanged=None if changes.unchanged is None else changes.unchanged.filter(kept),
    )


def _check_sent(changes: Changes, condition: Condition) -> None:
    """Raise if the database did not send a value that the condition needs."""
    if changes.unchanged is None:
        return
    absent = condition.columns & set(pc.list_flatten(changes.unchanged).to_pylist())
    if absent:
        raise SourceInvalid(
            source=f"Table {changes.table.name!r}",
            why=f"the condition {condition.text!r} needs column {sorted(absent)[0]!r}, whose large value the database did not send because it had not changed",
            instead=f"Run ALTER TABLE {changes.table.name} REPLICA IDENTITY FULL, then drop the capture and create it again",
        )


def _left_rows(changes: Changes) -> pa.RecordBatch:
    """The rows of deletions of rows that left the condition: as they were, or their keys alone."""
    columns = []
    for one in changes.table.columns:
        column = changes.rows[one.name]
        if one.name not in changes.table.key:
            column = pa.nulls(len(column), one.type) if changes.before is None else changes.before[one.name]
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=changes.table.columns)


def _is_known(rows: pa.RecordBatch) -> pa.BooleanArray:
    """Which rows have a value at all."""
    known = pa.array(np.zeros(rows.num_rows, bool))
    for column in rows.columns:
        known = pc.or_(known, pc.is_valid(column))
    return known


def _chosen(condition: pa.BooleanArray, one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pc.if_else(condition, left, right) for left, right in zip(one.columns, other.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=other.schema)
