"""How the schema of a topic follows the columns of its table."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headwater.schema.evolution import widens


def followed(known: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The schema of a topic after its table has changed: new columns are added and widened ones widened, also in structs.

    Columns that the table no longer has stay, since older rows hold values there.

    >>> old = pa.schema([("id", pa.int32()), ("after", pa.struct([("id", pa.int32()), ("item", pa.string())]))])
    >>> new = pa.schema([("id", pa.int64()), ("after", pa.struct([("id", pa.int64()), ("price", pa.float64())]))])
    >>> [str(field.type) for field in followed(old, new)]
    ['int64', 'struct<id: int64, item: string, price: double>']
    """
    return pa.schema(_merged(known, wanted))


def _merged(known: Iterable[pa.Field], wanted: Iterable[pa.Field]) -> list[pa.Field]:
    fields = {field.name: field for field in known}
    for field in wanted:
        old = fields.get(field.name)
        if old is None:
            fields[field.name] = field.with_nullable(True)
        elif pa.types.is_struct(old.type) and pa.types.is_struct(field.type):
            fields[field.name] = old.with_type(pa.struct(_merged(old.type, field.type)))
        elif widens(old.type, field.type):
            fields[field.name] = old.with_type(field.type)
    return list(fields.values())
