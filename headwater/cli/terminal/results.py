"""The result of a SQL statement or an interactive query: a table for people; JSON, lines or CSV for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cli.session import Record, Session
from headwater.cli.terminal.tables import cell, data_column

if TYPE_CHECKING:
    import pyarrow as pa


def show_result(session: Session, table: pa.Table) -> None:
    """Show all rows of a result in the output format."""
    records = result_records(table)
    columns = [data_column(field.name, str(field.type)) for field in table.schema]
    session.show_all(records, columns, [[cell(value) for value in record.values()] for record in records])
    if not records and session.output == "table":
        session.say("No rows.")


def result_records(table: pa.Table) -> list[Record]:
    """The rows as JSON values; columns of one name get a number, so that none is lost."""
    import pyarrow as pa

    from headwater.cli.terminal.row_output import records

    names: list[str] = []
    for name in table.column_names:
        count = sum(one == name or one.startswith(f"{name}:") for one in names)
        names.append(f"{name}:{count}" if name in names else name)
    plain = pa.table([_json_column(column) for column in table.columns], names=names)
    return [record for batch in plain.to_batches() for record in records(batch)]


def _json_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a type that has a JSON form: intervals and other types of a database as text."""
    import pyarrow as pa

    from headwater.errors import HeadwaterError
    from headwater.schema import parse_schema

    try:
        parse_schema(pa.schema([("value", column.type)]))
    except HeadwaterError:
        texts = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column
