"""Aggregates alone, without Spark: rows to partial results to values, in one process and on one core.

Rows a second of each approximate aggregate beside the exact one, and how many bytes its partial results take: in ten
groups of very many values, and in very many groups of few.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from benchmarks.harness import Bench, Result, Sample, Stopwatch, median_rate
from headwater.engine.aggregation import ARGUMENT, Computation, Groups, Order
from headwater.engine.columns import ALL, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import BatchTime
from headwater.operators import KMeans, agg
from headwater.operators.seen_before import SHARD, VALUE, SeenBefore

#: Each approximate aggregate, and the exact one that answers the same question, where there is one.
PAIRS: dict[str, tuple[agg.Aggregate, agg.Aggregate | None]] = {
    "approx_count_distinct": (agg.approx_count_distinct("v"), agg.count_distinct("v")),
    "theta": (agg.sketch.theta("v"), agg.count_distinct("v")),
    "kll": (agg.approx_percentile("v", [0.5, 0.99]), agg.percentile("v", 0.99)),
    "tdigest": (agg.approx_percentile("v", [0.5, 0.99], method="tdigest"), agg.percentile("v", 0.99)),
    "approx_top_k": (agg.approx_top_k("v", 10), agg.top_k("v", 10)),
    "count_min": (agg.count_min("v", [1]), agg.top_k("v", 10)),
    "sample": (agg.sample("v", 10), agg.collect_list("v")),
    "decayed_sum": (agg.decayed_sum("v", half_life=60), agg.sum("v")),
}


def few_groups(bench: Bench) -> list[Result]:
    """Ten groups."""
    return _pairs(bench, "few", rows=bench.size(4_000_000, 200_000), groups=10)


def many_groups(bench: Bench) -> list[Result]:
    """A hundred thousand groups of ten rows each."""
    groups = bench.size(100_000, 10_000)
    return _pairs(bench, "many", rows=10 * groups, groups=groups)


def _pairs(bench: Bench, part: str, *, rows: int, groups: int) -> list[Result]:
    results = []
    for name, (ours, exact) in PAIRS.items():
        subjects = {"ours": _Lifting(ours, rows, groups)}
        if exact is not None:
            subjects["exact"] = _Lifting(exact, rows, groups)
        samples = bench.interleave(f"{part}.{name}", subjects, rounds=bench.size(3, 1))
        more = {
            "rows": rows,
            "groups": groups,
            "state_bytes_per_group": round(subjects["ours"].bytes / groups),
            "microseconds_per_group": round(1e6 * rows / groups / median_rate(samples["ours"]), 2),
        }
        if exact is not None:
            more["exact_state_bytes_per_group"] = round(subjects["exact"].bytes / groups)
        results.append(
            Result(
                name=f"{part}.{name}",
                value=median_rate(samples["ours"]),
                unit="rows/s",
                peer=None if exact is None else f"agg.{exact.called}",
                peer_value=None if exact is None else median_rate(samples["exact"]),
                more=more,
            )
        )
    return results


class _Lifting:
    """Rows to partial results, two halves merged, and values."""

    def __init__(self, aggregate: agg.Aggregate, rows: int, groups: int) -> None:
        random = np.random.default_rng(1)
        self._numbers = np.sort(random.integers(0, groups, rows))
        self._rows = pa.table({f"{ARGUMENT}v": random.integers(0, rows, rows)})
        self._order = Order(np.arange(rows), np.arange(rows))
        self._computation = Computation.over({"v": aggregate}, self._rows.schema)
        self.bytes = 0

    def __call__(self) -> Sample:
        half = len(self._numbers) // 2
        with Stopwatch() as watch:
            parts = [self._lifted(0, half), self._lifted(half, len(self._numbers))]
            numbers = np.concatenate([one for one, _ in parts])
            partials = pa.concat_tables([one for _, one in parts]).combine_chunks()
            merged = self._computation.merge(partials, Groups.of(numbers))
            self._computation.finish(merged)
        self.bytes = merged.nbytes
        return watch.sample(len(self._numbers))

    def _lifted(self, start: int, stop: int) -> tuple[np.ndarray, pa.Table]:
        numbers = self._numbers[start:stop]
        groups = Groups.of(numbers)
        order = Order(self._order.at_us[start:stop], self._order.position[start:stop])
        return numbers[groups.starts], self._computation.lift(self._rows.slice(start, stop - start), order, groups)


def operators(bench: Bench) -> list[Result]:
    """The steps of `SeenBefore` and `KMeans`, without Spark: ten batches with the state between them."""
    rows = bench.size(2_000_000, 100_000)
    subjects: dict[str, Callable[[], Sample]] = {
        "operators.seen_before": lambda: _seen_before(rows),
        "operators.k_means": lambda: _k_means(rows),
    }
    samples = bench.interleave("operators", subjects, rounds=bench.size(3, 1))
    return [Result(name=name, value=median_rate(found), unit="rows/s") for name, found in samples.items()]


def _seen_before(rows: int) -> Sample:
    operator = SeenBefore(of="v", time="at", period="1 hour", capacity=1_000_000)
    hashes = np.random.default_rng(2).integers(-(2**62), 2**62, rows // 2)
    hashes = np.concatenate([hashes, hashes])
    order = np.argsort(hashes % operator.shards, kind="stable")
    columns = {SHARD: hashes % operator.shards, VALUE: hashes, KEY: hashes % operator.shards}
    return _stepped(operator.contract, pa.table(columns).take(pa.array(order)), rows)


def _k_means(rows: int) -> Sample:
    points = np.random.default_rng(3).normal(size=(rows, 2))
    operator = KMeans(columns=("x", "y"), k=8, time="at")
    none = np.zeros(rows, np.int64)
    table = pa.table({ALL: none.astype(np.int32), "x": points[:, 0], "y": points[:, 1], KEY: none})
    return _stepped(operator.contract, table, rows)


def _stepped(make: Callable[[pa.Schema], Contract], table: pa.Table, rows: int) -> Sample:
    times = pa.array(np.arange(rows) * 1_000, pa.timestamp("us", "UTC"))
    table = table.append_column("at", times)
    contract = make(table.schema.remove(table.schema.get_field_index(KEY)))
    state = pa.schema([*contract.state, pa.field(KEY, pa.int64())]).empty_table()
    with Stopwatch() as watch:
        for batch in range(10):
            part = table.take(pa.array(np.arange(batch, rows, 10)))
            stepped = contract.step(state, part, BatchTime())
            state = stepped.state if isinstance(stepped, StepResult) else stepped[0]
    return watch.sample(rows)
