"""What stored queries cost: every worker keeps count, and writes it where anybody may read it while the stream runs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.operators.keyed.files import Folder
from headwater.operators.percolate.index import Index

COSTS_SCHEMA = pa.schema(
    {
        "query_id": pa.string(),
        "candidates": pa.int64(),
        "checks": pa.int64(),
        "matches": pa.int64(),
        "seconds": pa.float64(),
    }
)
FOLDER = "costs"
#: One name per process: the number of a process may come again.
_WORKER = {"pid": 0, "name": ""}


@dataclass(frozen=True)
class QueryCost:
    """What one stored query has cost in all workers: documents tried, clauses looked at, matches, and seconds."""

    query_id: str
    candidates: int
    checks: int
    matches: int
    seconds: float


def costs_of(index: Index) -> pa.Table:
    """The queries that were tried at all, with what they cost since the index was made."""
    work, count = index.work, index.slots
    tried = np.flatnonzero(work.candidates[:count])
    columns = [
        pa.array([index.ids[slot] for slot in tried.tolist()], pa.string()),
        *(pa.array(held[tried]) for held in (work.candidates, work.rounds, work.matches, work.seconds)),
    ]
    return pa.table(columns, schema=COSTS_SCHEMA)


def write_costs(folder: Folder, index: Index, *, number: int) -> None:
    """Put down what this worker's index has cost; a worker that builds a new one begins a new file."""
    folder.within(FOLDER).write(f"{_worker()}-{number}", costs_of(index))


def costs(state: str | Path, name: str) -> list[QueryCost]:
    """What the stored queries of the operator called `name` have cost so far, the dearest first.

    `state` is the folder that the session keeps its state in. Work that was done twice, because a batch was done again,
    counts twice: it is what was spent. Workers write every ten seconds, so that the newest work may not be in yet.

    >>> costs("./nowhere", "alerts")
    []
    """
    tables = list(_tables(Path(state), name))
    if not tables:
        return []
    total = (
        pa.concat_tables(tables).group_by("query_id").aggregate([(column, "sum") for column in COSTS_SCHEMA.names[1:]])
    )
    rows = sorted(total.to_pylist(), key=lambda row: -row["seconds_sum"])
    return [QueryCost(row["query_id"], *(row[f"{column}_sum"] for column in COSTS_SCHEMA.names[1:])) for row in rows]


def _tables(state: Path, name: str) -> Iterator[pa.Table]:
    for path in sorted(state.glob(f"*/{name}/{FOLDER}/*.arrow")):
        try:
            with pa.OSFile(str(path)) as source:
                yield pa.ipc.open_file(source).read_all()
        except FileNotFoundError:  # its worker was just about to replace it
            continue


def _worker() -> str:
    if _WORKER["pid"] != os.getpid():
        _WORKER.update(pid=os.getpid(), name=uuid.uuid4().hex)
    return str(_WORKER["name"])
