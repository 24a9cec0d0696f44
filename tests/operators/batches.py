"""Operators over the engine itself, without Spark: the same batches, watermarks and state, and hundreds of examples a second.

What an operator says of Spark's expressions is not tried here: arguments of aggregates are names of columns.
"""

from __future__ import annotations

import atexit
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from headwater.engine.aggregation import ARGUMENT
from headwater.engine.columns import ALL, HASH, INPUT, SLOT
from headwater.engine.contract import Contract
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine, run_bounded
from headwater.operators.aggregates import Aggregate

Make = Callable[[pa.Schema], Contract]


def state_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for state, in memory where there is one: laws write thousands of files, and what a disk does with them is
    tested elsewhere."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=memory if Path(memory).is_dir() else None)


@contextmanager
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with no tables. Opening it takes longer than a query over a few rows, so it is opened once."""
    with _opened().cursor() as connection:
        yield connection


@cache
def _opened() -> duckdb.DuckDBPyConnection:
    atexit.register(_opened.cache_clear)  # before the interpreter goes: DuckDB tells of connections that are left
    return duckdb.connect(config={"threads": 1})


def with_arguments(
    rows: pa.Table, compute: Mapping[str, Aggregate], *, by: tuple[str, ...] | str = ("user",)
) -> pa.Table:
    """What Spark would have evaluated before the engine."""
    for name, aggregate in compute.items():
        if aggregate.of is not None:
            rows = rows.append_column(f"{ARGUMENT}{name}", rows.column(str(aggregate.of)))
    return rows if by else rows.append_column(ALL, pa.array([0] * rows.num_rows, pa.int32()))


def together(*inputs: pa.Table) -> pa.Table:
    """Several inputs as one, tagged, as `apply` makes it of several DataFrames."""
    tagged = [
        table.append_column(INPUT, pa.array([number] * table.num_rows, pa.int32()))
        for number, table in enumerate(inputs)
    ]
    return pa.concat_tables(tagged, promote_options="default")


def streamed(
    make: Make,
    batches: Sequence[pa.Table],
    *,
    partitions: int | Sequence[int] = 2,
    replay: int | None = None,
    processing_us: Sequence[int] | None = None,
    sides: dict[str, list[pa.Table]] | None = None,
) -> list[pa.Table]:
    """The output of each batch; batch number `replay` is done twice, as after a crash. Sides are put into `sides`.

    With a number of partitions for each batch, the query is stopped and rescaled between two batches.
    """
    contract = make(batches[0].schema)
    counts = [partitions] * len(batches) if isinstance(partitions, int) else partitions
    outputs = []
    with state_folder() as folder:
        for number, rows in enumerate(batches):
            now = processing_us[number] if processing_us is not None else None
            contract = replace(contract, partitions=counts[number])
            for _ in range(2 if number == replay else 1):
                done = [
                    PartitionEngine(contract, LocalFolder(Path(folder)), slot=slot).run(
                        part, batch=number, processing_us=now, broadcast={}
                    )
                    for slot, part in enumerate(_placed(rows, contract))
                ]
            outputs.append(pa.concat_tables(done))
        if sides is not None:
            for path in sorted(Path(folder).glob("sides/*/*.arrow")):
                with pa.memory_map(str(path)) as source:
                    sides.setdefault(path.parent.name, []).append(pa.ipc.open_file(source).read_all())
    return outputs


def bounded(
    make: Make, rows: pa.Table, *, broadcast: Mapping[str, pa.Table] | None = None
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The output over rows that are all there, and its sides."""
    contract = make(rows.schema)
    return run_bounded(contract, _placed(rows, replace(contract, partitions=1))[0], broadcast or {})


def table_of(changes: Sequence[pa.Table], key: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The table that a changelog makes. Each retraction must name what is there, and nothing may come twice."""
    return final_table([row for table in changes for row in table.to_pylist()], key)


def final_table(changes: Sequence[dict[str, Any]], key: Sequence[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The same for changes as rows; those of one key must come in their order."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in changes:
        change = dict(row)
        op = change.pop("_op")
        at = tuple(change[name] for name in key)
        if op in ("-U", "-D"):
            assert found.pop(at) == change, f"{op} of {change}, which is not what stands there"
        else:
            assert at not in found, f"{op} of {change}, which stands there already"
            found[at] = change
    return found


def _placed(rows: pa.Table, contract: Contract) -> list[pa.Table]:
    keys = list(zip(*(rows.column(name).to_pylist() for name in contract.key), strict=True))
    hashes = np.array([zlib.crc32(repr(key).encode()) * 2_654_435_761 % 2**62 for key in keys], np.int64)
    slots = hashes % contract.partitions
    rows = rows.append_column(HASH, pa.array(hashes, pa.int64())).append_column(SLOT, pa.array(slots, pa.int32()))
    return [rows.filter(pa.array(slots == slot)) for slot in range(contract.partitions)]
