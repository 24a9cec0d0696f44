"""The result of a statement on its way out: a table for people; JSON, lines or CSV for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headwater.cli.session import Record, Session
from headwater.cli.terminal.tables import Column

if TYPE_CHECKING:
    import pyarrow as pa


def show_result(session: Session, table: pa.Table) -> None:
    """Show all rows of a result in the format that the flags ask for."""
    records = result_records(table)
    columns = [_column(field.name, str(field.type)) for field in table.schema]
    rows = [[_cell(value) for value in record.values()] for record in records]
    session.show_all(records, columns, rows)
    if not records and session.output == "table":
        session.say("No rows.")


def result_records(table: pa.Table) -> list[Record]:
    """The rows as JSON values; columns of one name get a number, so that none is lost."""
    from headwater.cli.terminal.row_output import records

    plain = _plain(table)
    return [record for batch in plain.to_batches() for record in records(batch)]


def _plain(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    names: list[str] = []
    for name in table.column_names:
        count = sum(one == name or one.startswith(f"{name}:") for one in names)
        names.append(f"{name}:{count}" if name in names else name)
    return pa.table([_speakable(column) for column in table.columns], names=names)


def _speakable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in a type that JSON can say: an interval, or whatever else a database makes up, as text."""
    import pyarrow as pa

    from headwater.errors import HeadwaterError
    from headwater.schema import parse_schema

    try:
        parse_schema(pa.schema([("value", column.type)]))
    except HeadwaterError:
        return pa.chunked_array([pa.array([_text(value) for value in column.to_pylist()], pa.string())])
    return column


# Any: a value of any type that a database has.
def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _column(name: str, kind: str) -> Column:
    is_number = kind.startswith(("int", "uint", "float", "double", "decimal"))
    return Column(title=name, right=is_number, cut=not is_number)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else text.encode("unicode_escape").decode()
