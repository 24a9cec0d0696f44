"""Runs in Flink's own virtual environment: MATCH_RECOGNIZE over rows in files, and how long each job took.

`python flink_job.py <settings as JSON>`: the last line that it prints is JSON. It must not import anything of ours.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "execution.runtime-mode": "streaming",
    # Nothing is written down meanwhile: with checkpoints it would do more.
    "state.backend.type": "hashmap",
    "taskmanager.memory.network.max": "256mb",
    "table.exec.source.idle-timeout": "0 ms",
}
SOURCE = """
CREATE TEMPORARY TABLE events (
    user_id BIGINT, kind STRING, amount BIGINT, at_us BIGINT,
    event_time AS TO_TIMESTAMP_LTZ(at_us / 1000, 3), WATERMARK FOR event_time AS event_time - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""


def main() -> None:
    settings = json.loads(sys.argv[1])
    found: dict[str, Any] = {"seconds": {}, "rows": None}
    for name, path in settings["sources"].items():
        began = time.perf_counter()
        found["rows"] = _run(path, settings["query"], collect=settings["collect"])
        found["seconds"][name] = time.perf_counter() - began
    print(json.dumps(found))


def _run(path: str, query: str, *, collect: bool) -> list[list[Any]] | None:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for name, value in SETTINGS.items():
        configuration.set_string(name, value)
    made = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(made)
    tables.execute_sql(SOURCE.format(path=path))
    if collect:
        with tables.execute_sql(query).collect() as rows:
            return [list(row) for row in rows]
    columns = ", ".join(f"{name} BIGINT" for name in ("user_id", "m1", "m2", "m3"))
    tables.execute_sql(f"CREATE TEMPORARY TABLE sink ({columns}) WITH ('connector' = 'blackhole')")
    tables.execute_sql(f"INSERT INTO sink {query}").wait()
    return None


if __name__ == "__main__":
    main()
