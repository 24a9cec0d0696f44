"""What PostgreSQL's catalogue says: tables with their columns and keys, types, and the parts of partitioned tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa

from headwater.capture.errors import SourceInvalid
from headwater.capture.port import Table
from headwater.capture.postgres.connection import Connection, identifier
from headwater.capture.postgres.messages import Relation, RelationColumn
from headwater.capture.postgres.shape import Shape
from headwater.capture.postgres.types import CatalogueType, column_type
from headwater.errors import did_you_mean

_TABLES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text, c.relkind::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
ORDER BY n.nspname, c.relname
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a WHERE a.attrelid = %s::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
#: The columns of the replica identity, or of the primary key, in the order of the index.
_KEY = """
SELECT a.attname, i.indisreplident FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s::bigint::oid AND i.indisvalid AND i.indimmediate AND (i.indisprimary OR i.indisreplident) ORDER BY k.place
"""
_TYPES = "SELECT oid::bigint, typname, typtype::text, typbasetype::bigint, typtypmod, CASE WHEN typcategory = 'A' THEN typelem::bigint ELSE 0 END FROM pg_type WHERE oid::bigint = ANY(%s::bigint[])"


@dataclass(frozen=True)
class CatalogueTable:
    """A table of the database that a capture names."""

    number: int
    schema: str
    name: str
    identity: str
    is_partitioned: bool

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{identifier(self.schema)}.{identifier(self.name)}"


class Catalogue:
    """Reads the catalogue by a connection; types are remembered."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._types: dict[int, CatalogueType] = {}

    def tables(self, wanted: Sequence[str]) -> list[CatalogueTable]:
        """The tables that names or patterns choose; a name without a schema stands for any schema."""
        every = [
            CatalogueTable(number, schema, name, identity, kind == "p")
            for number, schema, name, identity, kind in self._connection.query(_TABLES)
        ]
        chosen: dict[int, CatalogueTable] = {}
        for pattern in wanted:
            matching = [one for one in every if _matches(one, pattern)]
            if not matching:
                names = [one.full_name for one in every]
                raise SourceInvalid(
                    source=f"Table {pattern!r} of {self._connection.place}",
                    why="there is no such table, it was dropped or renamed, or it is temporary or unlogged."
                    + did_you_mean(pattern, names).rstrip("."),
                    instead=f"Name one of {', '.join(names[:20]) or 'its tables, of which there are none yet'}; "
                    "if it was renamed, rename it back, or drop the capture and create it again",
                )
            chosen |= {one.number: one for one in matching}
        return list(chosen.values())

    def key(self, table: int, identity: str) -> tuple[str, ...]:
        """The columns that tell rows apart: of the index that is the replica identity, or of the primary key."""
        rows = self._connection.query(_KEY, (table,))
        if identity == "i":
            return tuple(name for name, is_identity in rows if is_identity)
        return tuple(name for name, is_identity in rows if not is_identity) or tuple(
            name for name, _ in rows
        )  # a primary key that is the replica identity, too

    def shape(self, table: CatalogueTable) -> Shape:
        """A table as it is now."""
        columns = tuple(
            RelationColumn(name, kind, modifier)
            for name, kind, modifier, _ in self._connection.query(_COLUMNS, (table.number,))
        )
        return self.shape_of(Relation(table.number, table.schema, table.name, table.identity, columns))

    def shape_of(self, relation: Relation) -> Shape:
        """A table as the replication stream describes it."""
        self._learn({column.type for column in relation.columns})
        types = tuple(column_type(column.type, column.modifier, self._types) for column in relation.columns)
        schema = pa.schema(
            [pa.field(column.name, kind.arrow) for column, kind in zip(relation.columns, types, strict=True)]
        )
        key = self.key(relation.id, relation.identity)
        names = schema.names
        if not set(key) <= set(names):
            key = ()
        table = Table(name=relation.full_name, columns=schema, key=key)
        return Shape(table, types, tuple(names.index(name) for name in key), relation.id)

    def name_of(self, number: int) -> str | None:
        """The name that a table has now."""
        rows = self._connection.query(
            "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = %s::bigint::oid",
            (number,),
        )
        return rows[0][0] if rows else None

    def type_names(self, table: int) -> dict[str, str]:
        """The types of a table's columns as SQL writes them."""
        return {name: text for name, _, _, text in self._connection.query(_COLUMNS, (table,))}

    def _learn(self, numbers: set[int]) -> None:
        unknown = numbers - self._types.keys()
        while unknown:
            # Any: values of rows.
            rows: list[tuple[Any, ...]] = self._connection.query(_TYPES, (list(unknown),))
            inner: set[int] = set()
            for number, name, kind, base, modifier, element in rows:
                self._types[number] = CatalogueType(name, kind, base, modifier, element)
                inner |= {base, element} - {0}
            unknown = inner - self._types.keys()


def _matches(table: CatalogueTable, pattern: str) -> bool:
    return fnmatchcase(table.full_name, pattern) or ("." not in pattern and fnmatchcase(table.name, pattern))
