"""Captures that an app declares: their tables are arguments of its queries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from headwater.apps.declaration import Query
from headwater.apps.errors import DeclarationInvalid
from headwater.capture import CaptureConfig, SourceInvalid, Table
from headwater.capture.config import without_password
from headwater.errors import ArgumentInvalid
from headwater.schema import parse_schema


@dataclass(frozen=True, kw_only=True)
class AppCapture:
    """A capture that an app declares; `app.capture` returns it.

    `capture["orders"]` is the topic of a table, for `inputs=` and for sinks.
    """

    config: CaptureConfig
    declared: dict[str, Table] = field(default_factory=dict)
    """Tables whose columns are declared beforehand, by name."""

    @property
    def name(self) -> str:
        return self.config.name

    def __getitem__(self, table: str) -> str:
        """The topic of a table."""
        return self.config.topic_of(table)

    # Any: whatever `Log.create` takes for a schema.
    def table(self, name: str, schema: Any, *, key: str | Sequence[str] = ()) -> str:
        """Declare the columns of a table beforehand, and return its topic.

        Tests and `headwater check` then need no database. A capture whose table lacks one of these columns, or has
        another key, does not start.
        """
        columns = schema if isinstance(schema, pa.Schema) else parse_schema(schema)
        keys = (key,) if isinstance(key, str) else tuple(key)
        for column in keys:
            if column not in columns.names:
                raise ArgumentInvalid(name="key", value=column, expected=f"one of {', '.join(columns.names)}")
        self.declared[name] = Table(name=name, columns=columns, key=keys)
        return self[name]

    def check(self, tables: Iterable[Table]) -> None:
        """Raise unless the tables of the database have the columns and keys that are declared."""
        actual = {table.name: table for table in tables}
        for name, wanted in self.declared.items():
            table = actual.get(name)
            if table is None:
                why = f"the capture has no such table, only {', '.join(actual) or 'none'}"
            elif table.key != wanted.key:
                why = f"its key is {_listed(table.key)}, and the app declares {_listed(wanted.key)}"
            else:
                why = next(filter(None, (_misfit(table.columns, column) for column in wanted.columns)), "")
            if why:
                raise SourceInvalid(
                    source=f"Table {name!r} of capture {self.name!r}",
                    why=why,
                    instead="Correct the table, or what `capture.table` declares",
                )


def _misfit(columns: pa.Schema, wanted: pa.Field) -> str:
    if wanted.name not in columns.names:
        near = difflib.get_close_matches(wanted.name, columns.names, n=1)
        return f"it has no column {wanted.name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    actual = columns.field(wanted.name).type
    return (
        "" if actual == wanted.type else f"its column {wanted.name!r} is {actual}, and the app declares {wanted.type}"
    )


def _listed(key: Sequence[str]) -> str:
    return ", ".join(key) or "none"


# Any: the settings of a capture.
def capture_of(url: str, *, name: str | None, tables: Sequence[str], options: Mapping[str, Any]) -> AppCapture:
    """The capture that an app declares by these settings; without a name it has that of its database."""
    known = {one.name for one in fields(CaptureConfig)} - {"paused", "id", "snapshot_requests"}
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            expected = f"settings of a capture, such as `{near[0] if near else 'envelope'}`"
            raise ArgumentInvalid(name="app.capture", value=option, expected=expected)
    if isinstance(tables, str):
        raise ArgumentInvalid(name="tables", value=tables, expected=f"a list, such as [{tables!r}]")
    config = CaptureConfig(name=name or database_of(url), url=url, tables=tuple(tables), **options)
    return AppCapture(config=config)


def database_of(url: str) -> str:
    """The name of the database in an address.

    >>> database_of("sqlite:///data/shop.db"), database_of("postgresql://app@db.example/shop")
    ('shop', 'shop')
    """
    name = PurePosixPath(urlsplit(url).path).stem
    if not name:
        raise ArgumentInvalid(
            name="url", value=without_password(url), expected="an address with the name of a database, or give `name=`"
        )
    return name


def named_tables(captures: Iterable[AppCapture]) -> dict[str, str]:
    """The tables that captures name or declare, by topic, without a look at the databases; patterns are left out."""
    return {
        one[table]: table
        for one in captures
        for table in (*one.config.tables, *one.declared)
        if set(table).isdisjoint("*?[")
    }


def with_captured_inputs(
    queries: Sequence[Query], captured: Mapping[str, str], *, inputs: Sequence[str]
) -> list[Query]:
    """The queries with the topics of captured tables in the place of the tables' names.

    `captured` has the tables by their topics. An argument names a table by its whole name, by its last part, or by its name
    with underscores for dots: `orders` and `public_orders` are both `public.orders`. What the app itself writes or
    declares as an input (`inputs`) comes first.
    """
    own = {*inputs, *(query.output for query in queries)}
    topics: dict[str, list[str]] = {}
    for topic, table in captured.items():
        for name in {table, table.rpartition(".")[2], table.replace(".", "_")}:
            topics.setdefault(name, []).append(topic)

    def resolved(query: Query) -> Query:
        found = []
        for one in query.inputs:
            chosen = [one.name] if one.name in own or one.name in captured else topics.get(one.name, [one.name])
            if len(chosen) > 1:
                why = (
                    f"{one.name!r} may be {' or '.join(sorted(chosen))}; "
                    f"say which, as in `inputs={{{one.parameter!r}: {sorted(chosen)[0]!r}}}`"
                )
                raise DeclarationInvalid(query=query.name, where=query.where, why=why)
            found.append(replace(one, name=chosen[0]))
        return replace(query, inputs=tuple(found))

    return [resolved(query) for query in queries]
