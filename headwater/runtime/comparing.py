"""Two versions of an output beside each other: what they share, where they differ, and what makes one of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.log import EmbeddedLog

SAMPLES = 5


def contents(log: EmbeddedLog, topic: str, *, keyed: bool) -> pa.Table:
    """All rows of a topic or, of a keyed one, what holds now."""
    import duckdb

    declared = log.topic(topic)
    names = ", ".join(f'"{name}"' for name in declared.schema.names)
    rows = log.read(topic, columns=[*declared.schema.names, "_offset", *(["_tombstone"] if keyed else [])]).table()
    connection = duckdb.connect()
    connection.register("rows", rows)
    if not keyed:
        return _table(connection, f"select {names} from rows")
    key = ", ".join(f'"{name}"' for name in declared.key)
    newest = f"qualify row_number() over (partition by {key} order by _offset desc) = 1"
    kept = f"select * from (select * from rows {newest}) where not coalesce(_tombstone, false)"
    return _table(connection, f"select {names} from ({kept})")


def compared(old: pa.Table, new: pa.Table, *, key: Sequence[str]) -> dict[str, Any]:
    """How many rows two versions share, and where they differ; by key where there is one."""
    import duckdb

    connection = duckdb.connect()
    connection.register("old", old)
    connection.register("new", new)
    if not key:
        gone = _table(connection, "select * from (from old except all from new)")
        more = _table(connection, "select * from (from new except all from old)")
        samples = [{"version": "active", **row} for row in gone.slice(0, SAMPLES).to_pylist()]
        samples += [{"version": "trial", **row} for row in more.slice(0, SAMPLES).to_pylist()]
        counts = {"only_active": gone.num_rows, "only_trial": more.num_rows, "same": old.num_rows - gone.num_rows}
        return {**counts, "changed": 0, "samples": samples}
    using = ", ".join(f'"{name}"' for name in key)
    first = f'"{key[0]}"'
    # Names that no column of a topic has: rows are compared whole, as values of these names.
    joined = (
        f"(select _old, _new, _old.{first} is null as _added, _new.{first} is null as _gone"
        f" from old _old full join new _new using ({using}))"
    )
    [found] = connection.execute(
        "select count(*) filter (not _added and not _gone and _old is not distinct from _new),"
        " count(*) filter (not _added and not _gone and _old is distinct from _new),"
        f" count(*) filter (_gone), count(*) filter (_added) from {joined}"
    ).fetchall()
    different = (
        f"select _old as active, _new as trial from {joined}"
        f" where _added or _gone or _old is distinct from _new limit {SAMPLES}"
    )
    samples = _table(connection, different).to_pylist()
    same, changed, only_active, only_trial = found
    return {"same": same, "changed": changed, "only_active": only_active, "only_trial": only_trial, "samples": samples}


def corrections(log: EmbeddedLog, old: str, new: str) -> pa.Table:
    """The changes that make one keyed topic say what another says: rows to replace, and tombstones."""
    import duckdb

    key = log.topic(old).key
    names = [name for name in log.topic(old).schema.names if name in log.topic(new).schema.names]
    connection = duckdb.connect()
    connection.register("old", contents(log, old, keyed=True).select(names))
    connection.register("new", contents(log, new, keyed=True).select(names))
    same_key = " and ".join(f'o."{name}" = n."{name}"' for name in key)
    differs = " or ".join(f'o."{name}" is distinct from n."{name}"' for name in names)
    nothing = ", ".join(f'o."{name}"' if name in key else f'null as "{name}"' for name in names)
    sql = (
        f"select n.*, false as _tombstone from new n left join old o on {same_key} where {differs}"
        f" union all by name select {nothing}, true as _tombstone from old o anti join new n on {same_key}"
    )
    return _table(connection, sql)


# Any: DuckDB has no types.
def _table(connection: Any, statement: str) -> pa.Table:
    return connection.sql(statement).to_arrow_table()
