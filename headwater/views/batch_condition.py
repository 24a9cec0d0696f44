"""A condition in SQL on the rows of one batch: one expression that reads nothing but the row.

It may take more than its bounds say, as any SQL may: conditions of visitors run in `headwater.server.statements`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.views.bounds import Bounds, Ending, Stoppable, run_duckdb
from headwater.views.duck_types import ingestible
from headwater.views.packages import required

if TYPE_CHECKING:
    import duckdb


def offsets_where(rows: pa.Table, condition: str, *, bounds: Bounds, stoppable: Stoppable | None = None) -> pa.Table:
    """The `_offset` of each row for which a condition is true; `stoppable` is handed what ends it from another thread.

    >>> rows = pa.table({"_offset": [7, 8, 9], "amount": [1.0, None, 3.0]})
    >>> offsets_where(rows, "amount > 2", bounds=Bounds(threads_max=1)).to_pydict()
    {'_offset': [9]}
    """
    with (
        _database(bounds).cursor() as connection,
        Ending(connection.interrupt, condition, seconds_max=bounds.seconds_max) as ending,
    ):
        if stoppable is not None:
            stoppable(ending.stoppable())

        def relation() -> duckdb.DuckDBPyRelation:
            # DuckDB parses the condition by itself: text that would end it and begin something else is refused.
            return connection.from_arrow(ingestible(rows)).filter(condition).project('"_offset"')

        return run_duckdb(relation, condition, bounds, ending)


@cache
def _database(bounds: Bounds) -> duckdb.DuckDBPyConnection:
    """A database without data, kept since opening one takes longer than most conditions."""
    database: duckdb.DuckDBPyConnection = required("duckdb").connect(":memory:")
    for setting in (
        "SET GLOBAL TimeZone = 'UTC'",
        "SET GLOBAL python_enable_replacements = false",
        *bounds.settings(),
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ):
        database.execute(setting)
    return database
