"""Every operator with rows and an oracle, for the contract suite: `test_contract.py` says what is proved of each.

Rows are the same on every run. The laws of each operator, which seek counter-examples over the engine without Spark,
stand in the operator's own file, and so does most of what is used here as an oracle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from headwater.operators import Dedupe, JoinWithin, Tumbling
from tests.operators import test_join_within, test_windows
from tests.operators.batches import final_table
from tests.operators.streaming import Batch, Stream

Rows = list[dict[str, Any]]
SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one run of the contract needs.

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
    is_bounded: bool = True
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
    return [delayed[len(rows) * at // batches : len(rows) * (at + 1) // batches] for at in range(batches)]


def flat(batches: Sequence[Sequence[Any]]) -> list[Any]:
    return [row for batch in batches for row in batch]


# -- windows over orders ------------------------------------------------------------------------------------------------

ORDERS = {"orders": {"schema": {"user": "string", "amount": "int64", "at": "timestamp"}, "key": "user"}}
LATE_BY = 7
_chance = random.Random(1)
#: Users, amounts and seconds. No user has two rows of one time: their order would be that of partitions and offsets, which
#: the oracles do not know.
ORDERED = arriving(
    [(user, _chance.randint(-9, 9), at) for user in "abcde" for at in _chance.sample(range(-60, 100), 16)],
    _chance,
    late_by=LATE_BY,
    time=2,
)


def orders(rows: Sequence[test_windows.Row]) -> Rows:
    return [{"user": user, "amount": amount, "at": at * SECOND} for user, amount, at in rows]


#: Rows from far later, in every partition, so that none holds time back.
ENDS = orders([(f"end{number}", 0, test_windows.END_OF_TIME) for number in range(40)])
ORDER_BATCHES: list[Batch] = [*({"orders": orders(batch)} for batch in ORDERED), {"orders": ENDS}, {"orders": ENDS}]
WINDOW: dict[str, Any] = {"on": "at", "by": "user", "compute": test_windows.COMPUTE, "late_by": LATE_BY, "ahead": None}


def own(rows: Rows) -> Rows:
    return [row for row in rows if not row["user"].startswith("end")]


def of_windows(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted(test_windows.flat(row) for row in own(rows))


def of_changing_windows(rows: Rows) -> list[tuple[Any, ...]]:
    return of_windows(list(final_table(rows, ["user", "window_start"]).values()))


TUMBLING = Entry(
    name="tumbling",
    operators=("Tumbling",),
    topics=ORDERS,
    batches=ORDER_BATCHES,
    build=lambda rows: rows.transform(Tumbling(size=15, emit="net", **WINDOW)),
    seen=of_changing_windows,
    wanted=lambda: sorted(test_windows.expected(flat(ORDERED), test_windows.windows_of(15, 15))),
    is_core=True,
)


def first_of_each(rows: Sequence[test_windows.Row], within: int) -> list[tuple[str, int, int]]:
    """The first row of each user, and then the first that comes so long after one that passed."""
    passed: list[test_windows.Row] = []
    for row in rows:
        if not any(row[0] == one[0] and abs(row[2] - one[2]) < within for one in passed):
            passed.append(row)
    return sorted(passed)


REPEATED = [
    [(f"u{number}", place, 10 * place + number % 3) for number in range(20)] for place in range(4)
] + [[(f"u{number}", 9, 7200) for number in range(0, 20, 2)]]  # fmt: skip
DEDUPE = Entry(
    name="dedupe",
    operators=("Dedupe",),
    topics=ORDERS,
    batches=[{"orders": orders(batch)} for batch in REPEATED],
    build=lambda rows: rows.transform(Dedupe(by="user", on="at", within="1 hour", late_by="10 minutes")),
    seen=lambda rows: sorted((row["user"], row["amount"], round(row["at"].timestamp())) for row in rows),
    wanted=lambda: first_of_each(flat(REPEATED), 3600),
    is_core=True,
)


# -- joins ---------------------------------------------------------------------------------------------------------------

SHOWN_AND_CLICKED = {
    "impressions": {"schema": {"user": "string", "n": "int64", "at": "timestamp"}, "key": "user"},
    "clicks": {"schema": {"visitor": "string", "n": "int64", "at": "timestamp"}, "key": "visitor"},
}
_chance = random.Random(2)
#: Which input, whose row, its second and its number.
MET = [
    [(*row, 100 * number + place) for place, row in enumerate(batch)]
    for number, batch in enumerate(
        arriving(
            [(_chance.randint(0, 1), _chance.choice("abc"), _chance.randint(-10, 40)) for _ in range(60)],
            _chance,
            late_by=9,
            time=2,
        )
    )
]


def meeting(rows: Sequence[test_join_within.Numbered]) -> Batch:
    return {
        "impressions": [{"user": user, "n": n, "at": at * SECOND} for side, user, at, n in rows if side == 0],
        "clicks": [{"visitor": user, "n": n, "at": at * SECOND} for side, user, at, n in rows if side == 1],
    }


MEETING_ENDS = meeting(
    [(side, f"end{number}-{side}", test_join_within.END_OF_TIME, -1) for number in range(40) for side in (0, 1)]
)
MEETING = [*(meeting(batch) for batch in MET), MEETING_ENDS, MEETING_ENDS]


def of_pairs(rows: Rows) -> list[tuple[Any, ...]]:
    return test_join_within.ordered([(row["user"], row["n"], row["n_click"]) for row in own(rows)])


def joined_within(impressions: DataFrame, clicks: DataFrame) -> DataFrame:
    settings: dict[str, Any] = {"late_by": 5, "grace": 4, "suffix": "_click", "ahead": None}
    return impressions.transform(
        JoinWithin(clicks, on={"user": "visitor"}, time="at", before=5, after=15, how="outer", **settings)
    )


JOIN_WITHIN = Entry(
    name="join_within",
    operators=("JoinWithin",),
    topics=SHOWN_AND_CLICKED,
    batches=MEETING,
    build=joined_within,
    seen=of_pairs,
    wanted=lambda: test_join_within.expected(flat(MET), before=5, after=15, how="outer"),
    is_core=True,
)

ENTRIES = (TUMBLING, DEDUPE, JOIN_WITHIN)
