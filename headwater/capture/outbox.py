"""The outbox: a table whose insertions are events, each for the topic of its aggregate type.

A program inserts events in the transaction of what they tell of, so that neither is there without the other. The table has
the columns `id`, `aggregatetype`, `aggregateid`, `type` and `payload`, and any others. An event goes to the topic
`<prefix>events.<aggregatetype>`, keyed by `aggregateid`, with `id` as a header, by which consumers find repeated ones.
Deletions are how programs clean the table, and are no events. An update is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.errors import SourceInvalid
from headwater.capture.port import Changes, Misfit, Table
from headwater.errors import HeadwaterError
from headwater.log.topic_rules import check_name

COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")
OUTBOX_KEY = "aggregateid"
_PREFIX = "events."


@dataclass(frozen=True, kw_only=True)
class Events:
    """Events for one topic: the part of its name behind the capture's prefix, and its rows."""

    name: str
    rows: pa.RecordBatch


class Outbox:
    """Routes the rows of an outbox table."""

    def __init__(self, table: str) -> None:
        self.table = table

    def check(self, table: Table) -> None:
        """Raise unless the table has the columns of an outbox."""
        lacking = [name for name in COLUMNS if name not in table.columns.names]
        if lacking:
            raise SourceInvalid(
                source=f"Outbox {table.name!r}",
                why=f"it has no column {lacking[0]!r}",
                instead=f"Give it the columns {', '.join(COLUMNS)}, or name another table as `outbox`",
            )

    def schema(self, table: Table) -> pa.Schema:
        """The columns of a topic of events: all but the id, which is a header, and the aggregate type, which is the topic."""
        fields = [one for one in table.columns if one.name not in ("id", "aggregatetype")]
        return pa.schema([one.with_nullable(one.name != OUTBOX_KEY) for one in fields])

    def events(self, changes: Changes) -> Iterator[Events]:
        """The insertions by topic, in order; rows that are none are left out."""
        inserted = pc.and_(_is_inserted(changes), _is_whole(changes))
        rows = changes.rows.filter(inserted)
        kinds = rows["aggregatetype"].cast(pa.string())
        schema = self.schema(changes.table)
        for kind in pc.unique(kinds).to_pylist():
            if _name_error(kind):
                continue
            some = rows.filter(pc.equal(kinds, kind))
            ids = some["id"].cast(pa.string()).cast(pa.binary())
            places = pa.array(range(some.num_rows + 1), pa.int32())
            headers = pa.MapArray.from_arrays(places, pa.array(["id"] * some.num_rows), ids)
            columns = [some[name] for name in schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema).append_column("_headers", headers)
            yield Events(name=_PREFIX + kind, rows=batch)

    def misfits(self, changes: Changes) -> list[Misfit]:
        """Changes of the outbox that are no events, other than deletions."""
        inserted, whole = _is_inserted(changes).to_pylist(), _is_whole(changes).to_pylist()
        kinds = changes.rows["aggregatetype"].to_pylist()
        misfits = []
        for place, operation in enumerate(changes.operations.to_pylist()):
            if operation == "u":
                why = "a row of the outbox was updated; only insertions are events"
            elif not inserted[place]:
                continue
            elif not whole[place]:
                why = "aggregatetype, aggregateid or id is null"
            else:
                why = _name_error(str(kinds[place]))
            if why:
                row = {name: str(value) for name, value in changes.rows.slice(place, 1).to_pylist()[0].items()}
                misfits.append(Misfit(table=self.table, row=orjson.dumps(row).decode(), why=why))
        return misfits


def _is_inserted(changes: Changes) -> pa.BooleanArray:
    return pc.is_in(changes.operations, value_set=pa.array(["c", "r"]))


def _is_whole(changes: Changes) -> pa.BooleanArray:
    whole = pc.is_valid(changes.rows["id"])
    for name in ("aggregatetype", OUTBOX_KEY):
        whole = pc.and_(whole, pc.is_valid(changes.rows[name]))
    return whole


def _name_error(kind: str) -> str:
    try:
        check_name("topic", _PREFIX + kind)
    except HeadwaterError as error:
        return str(error)
    return ""
