"""Readings of sensors, in any order within what is allowed and cut in any way, for the laws of analytics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headwater.engine.ordered_rows import OrderedOperator
from headwater.operators.aggregates import Aggregate
from tests.operators.batches import bounded, streamed, with_arguments

SECOND = 1_000_000
LATE_BY = 7
#: Long after everything else, so that all that waits may leave.
END_OF_TIME = 10_000_000
#: Sensor, value, second.
Reading = tuple[str, float | None, int]
#: The readings of one sensor up to and including those of a time, in their order, and the reading that asks.
Model = Callable[[list[tuple[int, float | None]], tuple[int, float | None]], dict[str, Any]]

VALUES = st.integers(-9, 9).map(float)
READINGS = st.tuples(st.sampled_from("abc"), st.one_of(VALUES, VALUES, VALUES, st.none()), st.integers(-60, 100))


@st.composite
def arrivals(draw: st.DrawFn, *, rows_min: int = 1, rows_max: int = 40) -> list[list[Reading]]:
    """Readings in batches; none comes more than `LATE_BY` seconds after a later one."""
    rows = draw(st.lists(READINGS, min_size=rows_min, max_size=rows_max))
    delays = draw(st.lists(st.integers(0, LATE_BY), min_size=len(rows), max_size=len(rows)))
    arrived = [row for _, row in sorted(zip(delays, rows, strict=True), key=lambda one: one[0] + one[1][2])]
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), min_size=2, max_size=4)))
    return [arrived[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(arrived)], strict=True)]


def table(rows: Sequence[Reading], compute: Mapping[str, Aggregate], *, first: int = 0) -> pa.Table:
    made = pa.table(
        {
            "sensor": pa.array([sensor for sensor, _, _ in rows], pa.string()),
            "celsius": pa.array([value for _, value, _ in rows], pa.float64()),
            "at": pa.array([at * SECOND for _, _, at in rows], pa.timestamp("us", "UTC")),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )
    return with_arguments(made, compute)


def batches_of(batches: Sequence[Sequence[Reading]], compute: Mapping[str, Aggregate]) -> list[pa.Table]:
    """Batches with offsets, and at the end rows from far later."""
    tables, offset = [], 0
    for batch in [*batches, [("end", 0.0, END_OF_TIME)], [("end", 0.0, END_OF_TIME)]]:
        tables.append(table(batch, compute, first=offset))
        offset += len(batch)
    return tables


def expected(rows: Sequence[Reading], model: Model) -> dict[int, dict[str, Any]]:
    """What the model says of each row, by its place in the topic."""
    found = {}
    for place, (sensor, value, at) in enumerate(rows):
        past = [(time, one) for own, one, time in rows if own == sensor and time <= at]
        past.sort(key=lambda pair: pair[0])
        found[place] = model(past, (at, value))
    return found


def of_rows(tables: Sequence[pa.Table], names: Sequence[str]) -> dict[int, dict[str, Any]]:
    """The added columns of each row, by its place; no row may come twice."""
    found: dict[int, dict[str, Any]] = {}
    for row in (row for one in tables for row in one.to_pylist() if row["sensor"] != "end"):
        assert row["_offset"] not in found
        found[row["_offset"]] = {name: row[name] for name in names}
    return found


def check(operator: OrderedOperator, batches: Sequence[Sequence[Reading]], model: Model, **how: Any) -> None:
    """The stream, however it was cut, and the same rows at once, give what the model says, each row once."""
    rows = [row for batch in batches for row in batch]
    wanted = expected(rows, model)
    compute = operator.arguments()
    outputs = streamed(operator.contract, batches_of(batches, compute), **how)
    names = list(next(iter(wanted.values()), {}))
    whole, _ = bounded(operator.contract, table(rows, compute))
    for found in (of_rows(outputs, names), of_rows([whole], names)):
        assert found.keys() == wanted.keys()
        for place, values in wanted.items():
            assert same(found[place], values), f"row {place}, {rows[place]}: {found[place]}, not {values}"


def same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether two rows are the same, but for what floats lose."""
    return found.keys() == wanted.keys() and all(_close(found[name], value) for name, value in wanted.items())


def _close(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and isinstance(wanted, int | float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(found == wanted)
