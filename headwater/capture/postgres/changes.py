"""From whole transactions to the changes of tables, with values that the stream did not send read from the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.errors import SourceInvalid
from headwater.capture.port import Changes, Misfit, Table
from headwater.capture.postgres.catalogue import Catalogue
from headwater.capture.postgres.connection import Connection, identifier
from headwater.capture.postgres.decoder import Places, decode_joined, transactions_of
from headwater.capture.postgres.messages import LogicalMessage, Relation, format_lsn
from headwater.capture.postgres.shape import Built, Facts, Shape, build
from headwater.capture.postgres.transactions import Batch, EventSegment, RowSegment, Run

#: Logical messages are rows of a topic of their own.
MESSAGES = Table(
    name="messages",
    columns=pa.schema(
        [
            ("prefix", pa.string()),
            ("content", pa.binary()),
            ("transactional", pa.bool_()),
            ("lsn", pa.string()),
        ]
    ),
)


@dataclass(frozen=True)
class TableChanges:
    """Changes of one table with the ids of their transactions, and rows that do not fit."""

    changes: Changes
    xids: Places
    misfits: list[Misfit]


class ChangeReader:
    """Makes changes of the transactions of a stream."""

    def __init__(self, connection: Connection, catalogue: Catalogue, *, with_before: bool) -> None:
        self._connection = connection
        self._catalogue = catalogue
        self._with_before = with_before
        self._shapes: dict[Relation, Shape] = {}
        self.names: dict[int, str] = {}
        """The names of captured tables, by the numbers of their relations."""

    def read(self, batch: Batch, order: int) -> Iterator[TableChanges]:
        """The changes of a batch in commit order; `order` is the number of changes before it."""
        for run in batch.runs:
            for segment in run.segments():
                if isinstance(segment, RowSegment):
                    yield from self._rows(run, segment, order)
                elif segment.part not in run.aborted:
                    yield from self._event(run, segment, order)
            order += run.count
            run.release()

    def _rows(self, run: Run, segment: RowSegment, order: int) -> Iterator[TableChanges]:
        shape = self._shape(segment.relation)
        messages = decode_joined(
            segment.joined, segment.lengths, columns=len(segment.relation.columns), streamed=run.streamed
        )
        facts = _facts(run, segment.order, order)
        built = build(shape, messages, facts, with_before=self._with_before)
        if built.missing:
            built = self._filled(shape, built)
        if run.aborted:
            parts = transactions_of(segment.joined, segment.lengths)
            kept = np.isin(parts, np.array(list(run.aborted), np.uint32), invert=True)
            built = _kept(built, np.isin(built.changes.order.to_numpy(), facts.order[kept]))
        if built.changes.count:
            yield TableChanges(built.changes, built.xids, built.misfits)

    def _event(self, run: Run, segment: EventSegment, order: int) -> Iterator[TableChanges]:
        facts = _facts(run, np.array([segment.order]), order)
        if isinstance(segment.event, LogicalMessage):
            message = segment.event
            row = {
                "prefix": message.prefix,
                "content": message.content,
                "transactional": message.transactional,
                "lsn": format_lsn(message.lsn),
            }
            yield _single(MESSAGES, "m", row, facts)
            return
        for relation in segment.event:
            yield _single(self._shape(relation).table, "t", {}, facts)

    def _shape(self, relation: Relation) -> Shape:
        shape = self._shapes.get(relation)
        if shape is None:
            known = self.names.get(relation.id)
            if known is None or known == relation.full_name:
                shape = self._catalogue.shape_of(relation)
            elif self._catalogue.name_of(relation.id) == known:  # it had another name then
                schema, _, name = known.partition(".")
                shape = self._catalogue.shape_of(replace(relation, schema=schema, name=name))
            else:
                raise renamed(self._connection.place, known, relation.full_name)
            self._shapes[relation] = shape
        return shape

    # -- values that were not sent ------------------------------------------------------------------------------------

    def _filled(self, shape: Shape, built: Built) -> Built:
        """Read large values that did not change and were not sent from the table, by the key of their row.

        They are as of now. If such a value has changed since, its change follows and has it. If the row is gone, its deletion
        follows; until then the value is null, and the row is told as a misfit.
        """
        rows, misfits = built.changes.rows, list(built.misfits)
        wanted = np.logical_or.reduce(list(built.missing.values()))
        places = np.flatnonzero(wanted)
        known = self._look_up(shape, rows.take(pa.array(places)), list(built.missing))
        columns = list(rows.columns)
        for number, (column, mask) in enumerate(built.missing.items()):
            at = np.flatnonzero(mask)
            index = {place: position for position, place in enumerate(places.tolist())}
            texts = [known[index[place]] for place in at.tolist()]
            values, _ = shape.types[column].array(
                pa.array([None if text is None else text[number] for text in texts], pa.string())
            )
            source = np.arange(rows.num_rows)
            source[at] = rows.num_rows + np.arange(len(at))
            columns[column] = pa.concat_arrays([columns[column], values]).take(pa.array(source))
            name = shape.table.columns.names[column]
            misfits += [
                Misfit(
                    table=shape.table.name,
                    row=orjson.dumps(
                        rows.slice(place, 1).select(list(shape.table.key)).to_pylist()[0], default=str
                    ).decode(),
                    why=f"the large value of column {name!r} was not sent, and the row is gone: it is null until the deletion "
                    "of the row follows. REPLICA IDENTITY FULL avoids this",
                )
                for place, text in zip(at.tolist(), texts, strict=True)
                if text is None
            ]
        filled = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        return Built(replace(built.changes, rows=filled), built.xids, misfits)

    # Any: values of rows, as text.
    def _look_up(self, shape: Shape, rows: pa.RecordBatch, columns: list[int]) -> list[tuple[Any, ...] | None]:
        table, key = shape.table, shape.table.key
        types = self._catalogue.type_names(shape.number)
        names = table.columns.names
        if not key or not all(names[column] in types for column in columns) or not all(name in types for name in key):
            return [None] * rows.num_rows
        schema, _, name = table.name.partition(".")
        values = ", ".join(f"t.{identifier(names[column])}::text" for column in columns)
        same = " AND ".join(f"t.{identifier(one)} = w.k{place}::{types[one]}" for place, one in enumerate(key))
        arrays = ", ".join("%s::text[]" for _ in key)
        wanted = ", ".join(f"k{place}" for place in range(len(key)))
        texts = [_key_texts(rows.column(one)) for one in key]
        found = self._connection.query(
            f"SELECT w.n, {values} FROM unnest({arrays}) WITH ORDINALITY AS w({wanted}, n) "
            f"JOIN {identifier(schema)}.{identifier(name)} AS t ON {same}",
            texts,
        )
        by_place = {place - 1: tuple(row) for place, *row in found}
        return [by_place.get(place) for place in range(rows.num_rows)]


def renamed(place: str, before: str, now: str) -> SourceInvalid:
    return SourceInvalid(
        source=f"Table {before!r} of {place}",
        why=f"it was renamed to {now!r}",
        instead="Rename it back; or drop the capture and create it again, with the new name",
    )


def _key_texts(values: pa.Array) -> list[str | None]:
    return [
        None if one is None else "\\x" + one.hex() if isinstance(one, bytes) else str(one) for one in values.to_pylist()
    ]


def _facts(run: Run, places: Places, order: int) -> Facts:
    transaction = np.searchsorted(np.array(run.first), places, side="right") - 1
    return Facts(
        places + order + 1,
        np.array(run.xids, np.int64)[transaction],
        np.array(run.at_us, np.int64)[transaction],
    )


def _kept(built: Built, mask: Any) -> Built:
    kept = pa.array(mask)
    changes = built.changes

    def filtered(values: pa.Array | None) -> pa.Array | None:
        return None if values is None else values.filter(kept)

    return Built(
        replace(
            changes,
            operations=changes.operations.filter(kept),
            rows=changes.rows.filter(kept),
            at_us=changes.at_us.filter(kept),
            order=changes.order.filter(kept),
            before=None if changes.before is None else changes.before.filter(kept),
            transaction=filtered(changes.transaction),
            unchanged=filtered(changes.unchanged),
        ),
        built.xids[mask],
        built.misfits,
    )


def kept_changes(one: TableChanges, mask: Any) -> TableChanges:
    """Changes without those that the mask leaves out."""
    built = _kept(Built(one.changes, one.xids, one.misfits), mask)
    return TableChanges(built.changes, built.xids, one.misfits)


# Any: values of a row.
def _single(table: Table, operation: str, row: dict[str, Any], facts: Facts) -> TableChanges:
    columns = [pa.array([row.get(one.name)], one.type) for one in table.columns]
    changes = Changes(
        table=table,
        operations=pa.array([operation]),
        rows=pa.RecordBatch.from_arrays(columns, schema=table.columns),
        at_us=pa.array(facts.at_us),
        order=pa.array(facts.order),
        transaction=pc.cast(pa.array(facts.xids), pa.string()),
    )
    return TableChanges(changes, facts.xids, [])


def read_changes(table: Table, rows: pa.RecordBatch, order: int, *, clock: Callable[[], float] = time.time) -> Changes:
    """The rows of a snapshot as changes."""
    count = rows.num_rows
    return Changes(
        table=table,
        operations=pa.repeat(pa.scalar("r"), count),
        rows=rows,
        at_us=pa.repeat(pa.scalar(round(clock() * 1e6), pa.int64()), count),
        order=pa.array(np.arange(order + 1, order + 1 + count)),
    )


def truncation(table: Table, order: int, *, clock: Callable[[], float] = time.time) -> Changes:
    """A change that deletes all rows of a table."""
    at_us = np.array([round(clock() * 1e6)])
    return _single(table, "t", {}, Facts(np.array([order]), np.array([0]), at_us)).changes
