"""Flink SQL in its own virtual environment: `python -m benchmarks.nexmark.flink_child 2`.

Flink has what is best for it: state on the heap, no checkpoints, objects used again, mini-batches, distinct counts in two
phases. It must not import anything of Headwater's.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from benchmarks.nexmark.child import Changes, Request, serve
from benchmarks.nexmark.flink_queries import QUERIES

SETTINGS = {
    "pipeline.object-reuse": "true",
    "execution.runtime-mode": "streaming",
    "state.backend.type": "hashmap",
    "taskmanager.memory.network.max": "256mb",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}
#: Every other column is a whole number.
TEXTS = ("name", "email", "credit_card", "city", "state", "extra", "item", "description", "channel", "url")
OPS = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}


def run(request: Request, cores: str) -> Mapping[str, Any]:
    """Run a query over files; returns how long that took, with its planning."""
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, Schema, TableDescriptor, TableEnvironment

    began = time.perf_counter()
    configuration = Configuration()
    for name, value in {"parallelism.default": cores, **SETTINGS}.items():
        configuration.set_string(name, value)
    made = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(made)
    for topic, columns in request["columns"].items():
        tables.execute_sql(source(topic, columns, request["csv"][topic]))
    tables.execute_sql(side(request["side"]))
    rows = tables.sql_query(QUERIES[request["query"]])
    names = rows.get_schema().get_field_names()
    if request.get("collect"):
        changes = Changes(request["collect"])
        with rows.execute().collect() as found:
            for row in found:
                values = dict(zip(names, map(_plain, row), strict=True))
                changes.add(OPS[row.get_row_kind().name], values)
        changes.close()
        return {"seconds": time.perf_counter() - began}
    schema = Schema.new_builder().from_fields(names, rows.get_schema().get_field_data_types()).build()
    sink = TableDescriptor.for_connector("blackhole").schema(schema)
    if request["query"] == "q10":
        sink = TableDescriptor.for_connector("filesystem").schema(schema).option("path", request["files"]).format("csv")
    rows.execute_insert(sink.build()).wait()
    seconds = time.perf_counter() - began
    shutil.rmtree(request["files"], ignore_errors=True)
    return {"seconds": seconds}


def source(topic: str, columns: list[str], path: str) -> str:
    """A topic as a table over its CSV files."""
    names = {"at": "at_ms"}
    kinds = [f"`{names.get(column, column)}` {'STRING' if column in TEXTS else 'BIGINT'}" for column in columns]
    if "at" in columns:
        kinds += ["event_time AS TO_TIMESTAMP_LTZ(at_ms, 3)", "WATERMARK FOR event_time AS event_time"]
    return _table(topic, kinds, path)


def side(path: str) -> str:
    """The table that does not change."""
    return _table("side", ["number BIGINT", "`value` STRING"], path)


def _table(name: str, columns: list[str], path: str) -> str:
    options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'"
    return f"CREATE TEMPORARY TABLE {name} ({', '.join(columns)}) WITH ({options})"


# Any: a value of a row.
def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=UTC).timestamp() * 1_000)
    return value


if __name__ == "__main__":
    serve(lambda request: run(request, sys.argv[1]))
