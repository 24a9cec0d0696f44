"""Reads all outputs of the app back."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from headwater.errors import HeadwaterError
from headwater.log import Log
from tests.chaos.app.check import Outputs, expect
from tests.chaos.app.declaration import BILLS_TABLE, NAME, TIERS_TABLE, declare_app, lake_of, tariff_of
from tests.chaos.check import all_rows, recomputed, refused_rows
from tests.chaos.query import BILLS_SCHEMA, ORDERS

READ_SECONDS_MAX = 60.0
_TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
_TIERS_SCHEMA = {"user": "string", "n": "int64", "total": "int64", "tier": "string"}


def read_outputs(home: Path, log: Log, *, url: str | None) -> Outputs:
    """Read every output of an app that has stopped."""
    views = declare_app(home, url=None).views
    tables = {
        "spend, its store": ("spend", views["spend"].table()),
        "tiers, its store": ("tiers", views["tiers"].table()),
        "bills in the lake": ("bills", DeltaTable(lake_of(home)).to_pyarrow_table()),
    }
    if url is not None:
        tables["bills in PostgreSQL"] = ("bills", _postgres_table(url, BILLS_TABLE, BILLS_SCHEMA))
        tables["tiers in PostgreSQL"] = ("tiers", _postgres_table(url, TIERS_TABLE, _TIERS_SCHEMA))
    return Outputs(
        orders=all_rows(log, ORDERS),
        bills=all_rows(log, "bills"),
        refused=refused_rows(home / "log" / "apps" / NAME / "state"),
        spend=all_rows(log, "spend"),
        tiers=all_rows(log, "tiers"),
        tables=tables,
    )


def _postgres_table(url: str, table: str, columns: dict[str, str]) -> pa.Table:
    import psycopg

    names = ", ".join(f'"{name}"' for name in columns)
    with psycopg.connect(url) as connection:
        rows = connection.execute(f'SELECT {names} FROM "{table}"'.encode()).fetchall()
    schema = pa.schema([(name, _TYPES[kind]) for name, kind in columns.items()])
    return pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema)


def unread_writes(home: Path, log: Log) -> list[str]:
    """Append an order for each of a few users, and query the views for it at once; return the wrong answers."""
    app = declare_app(home, url=None)
    problems: list[str] = []
    for number in range(3):
        orders = all_rows(log, ORDERS)
        at = max(orders.column("at").to_pylist())
        user = f"user-{number}"
        row = {"id": f"mine-{number}", "user": user, "amount": 7 + number, "at": at}
        written = log.append(ORDERS, [row]).offsets_next
        database = _expected(all_rows(log, ORDERS), tariff=tariff_of(home))
        for view in ("spend", "tiers"):
            wanted = database.sql(f"FROM expected_{view} WHERE user = '{user}'").to_arrow_table().to_pylist()
            try:
                got = app.views[view].get(user=user, at_least={ORDERS: written}, timeout=READ_SECONDS_MAX)
            except HeadwaterError as error:
                problems.append(f"own write of {user} not read from {view}: {error}")
                continue
            if got != (wanted[0] if wanted else None):
                problems.append(f"own write of {user} read from {view} as {got}, not {wanted}")
    return problems


def _expected(orders: pa.Table, *, tariff: int) -> duckdb.DuckDBPyConnection:
    database = recomputed(orders, within_us=0, window_us=1, late_by_us=0)
    expect(database, tariff=tariff)
    return database
