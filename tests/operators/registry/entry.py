"""What the contract suite needs to know of an operator."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from pyspark.sql import DataFrame

from tests.operators.stream_runs import Batch, Stream

Rows = list[dict[str, Any]]
SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Operators in a query, rows for it, and an oracle.

    `build` makes the query of a DataFrame for each topic; where there are `tables`, it also gets the path of the log as
    `log`. `seen` brings rows that came out into the form in which `wanted`, the oracle, gives them.
    """

    name: str
    #: The names in `headwater.operators.__all__` of what the query uses.
    operators: tuple[str, ...]
    topics: Mapping[str, Mapping[str, Any]]
    #: The rows of each topic, batch by batch. In the second batch a worker is killed, after it the query is restarted.
    batches: Sequence[Batch]
    build: Callable[..., DataFrame]
    seen: Callable[[Rows], Any]
    wanted: Callable[[], Any]
    #: What rows that are all there give, where that is not what the stream gives.
    wanted_bounded: Callable[[], Any] | None = None
    #: Why there is no batch job to compare with.
    unbounded_because: str | None = None
    #: Topics that the operator follows by itself, and their rows: those of each batch are there before it.
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    told: Sequence[Batch] = ()
    #: What else holds at the end.
    check: Callable[[Stream], None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    is_core: bool = False


def arriving(
    rows: Sequence[Any], chance: random.Random, *, late_by: int, time: int, batches: int = 3
) -> list[list[Any]]:
    """Rows in batches, in an order in which none comes more than `late_by` seconds after a later one."""
    delayed = sorted(rows, key=lambda row: row[time] + chance.randint(0, late_by))
    return cut(delayed, batches)


def cut(rows: Sequence[Any], batches: int) -> list[list[Any]]:
    return [list(rows[len(rows) * at // batches : len(rows) * (at + 1) // batches]) for at in range(batches)]


def numbered(batches: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The rows with their numbers over all batches at their ends."""
    firsts = [sum(len(one) for one in batches[:number]) for number in range(len(batches))]
    return [
        [(*row, first + place) for place, row in enumerate(batch)]
        for first, batch in zip(firsts, batches, strict=True)
    ]  # fmt: skip


def flat(batches: Sequence[Sequence[Any]]) -> list[Any]:
    return [row for batch in batches for row in batch]


def in_utc(rows: Rows, *names: str) -> Rows:
    """Spark gives times without a zone, in that of the machine."""
    return [{**row, **{name: row[name].astimezone(UTC) for name in names}} for row in rows]
