"""Windows, panes and repetitions, over orders of users."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.operators import CountWindow, Dedupe, Hopping, Panes, Session, Sliding, Tumbling
from headwater.operators.trigger import AfterProcessingTime, FirstOf, rows
from tests.operators import test_count_window, test_panes, test_session, test_sliding, test_windows
from tests.operators.batches import final_table
from tests.operators.registry.entry import SECOND, Entry, Rows, arriving, flat, in_utc
from tests.operators.stream_runs import Batch, Stream

ORDERS = {"orders": {"schema": {"user": "string", "amount": "int64", "at": "timestamp"}, "key": "user"}}
LATE_BY = 7
Row = test_windows.Row


def some_orders(seed: int, *, late_by: int) -> list[list[Row]]:
    """Users, amounts and seconds. No user has two rows of one time: their order would be that of offsets, which the
    oracles do not know."""
    chance = random.Random(seed)
    made = [(user, chance.randint(-9, 9), at) for user in "abcde" for at in chance.sample(range(-60, 100), 16)]
    return arriving(made, chance, late_by=late_by, time=2)


def orders(some: Sequence[Row]) -> Rows:
    return [{"user": user, "amount": amount, "at": at * SECOND} for user, amount, at in some]


def closed(batches: Sequence[Sequence[Row]], *, ends: int = 2) -> list[Batch]:
    """The batches, and rows from far later in every partition, so that none holds time back: what a batch sees moves the
    watermark of the next. A changelog needs no end, it says at once what it knows."""
    end = orders([(f"end{number}", 0, test_windows.END_OF_TIME) for number in range(40)])
    return [*({"orders": orders(batch)} for batch in batches), *[{"orders": end}] * ends]


ORDERED = some_orders(1, late_by=LATE_BY)
WINDOW: dict[str, Any] = {
    "time": EventTime("at", delay=LATE_BY, future_max=None),
    "by": "user",
    "compute": test_windows.COMPUTE,
}
CHANGING: dict[str, Any] = {"topics": ORDERS, "batches": closed(ORDERED, ends=1)}
FINAL: dict[str, Any] = {"topics": ORDERS, "batches": closed(ORDERED)}


def own(found: Rows) -> Rows:
    return [row for row in found if not row["user"].startswith("end")]


def of_windows(found: Rows) -> list[tuple[Any, ...]]:
    return sorted(test_windows.flat(row) for row in own(found))


def of_changing_windows(found: Rows) -> list[tuple[Any, ...]]:
    return of_windows(list(final_table(found, ["user", "window_start"]).values()))


def by_sql(batches: Sequence[Sequence[Row]], size: int, every: int) -> list[tuple[Any, ...]]:
    return sorted(test_windows.expected(flat(batches), test_windows.windows_of(size, every)))


TUMBLING = Entry(
    name="tumbling",
    operators=("Tumbling",),
    # Behind columns and conditions that the reader computes.
    build=lambda orders: (
        orders.where("amount BETWEEN -100 AND 100 AND at IS NOT NULL")
        .withColumn("amount", F.expr("amount - 5 + 5"))
        .transform(Tumbling(size=15, emit="changes", **WINDOW))
    ),
    seen=of_changing_windows,
    wanted=lambda: by_sql(ORDERED, 15, 15),
    is_core=True,
    **CHANGING,
)
HOPPING = Entry(
    name="hopping",
    operators=("Hopping",),
    build=lambda orders: orders.transform(Hopping(size=20, every=10, **WINDOW)),
    seen=of_windows,
    wanted=lambda: by_sql(ORDERED, 20, 10),
    **FINAL,
)
SESSION = Entry(
    name="session",
    operators=("Session",),
    build=lambda orders: orders.transform(Session(gap=6, emit="changes", **WINDOW)),
    seen=of_changing_windows,
    wanted=lambda: sorted(test_session.sessions(flat(ORDERED), 6)),
    **CHANGING,
)
SLIDING = Entry(
    name="sliding",
    operators=("Sliding",),
    build=lambda orders: orders.transform(Sliding(size=12, **WINDOW)),
    seen=lambda found: test_sliding.results(in_utc(found, "window_start", "window_end")),
    wanted=lambda: test_sliding.windows(flat(ORDERED), 12),
    **FINAL,
)
COUNT_WINDOW = Entry(
    name="count_window",
    operators=("CountWindow",),
    build=lambda orders: orders.transform(CountWindow(size=3, every=2, **WINDOW)),
    seen=test_count_window.results,
    wanted=lambda: test_count_window.windows(test_count_window.in_time(flat(ORDERED)), 3, 2),
    **FINAL,
)

# -- panes ---------------------------------------------------------------------------------------------------------------

#: Rows of which some come after the watermark, which trails by eight seconds.
LATE = some_orders(2, late_by=20)


def panes_are_in_order(stream: Stream) -> None:
    panes: dict[Any, Rows] = defaultdict(list)
    for row in stream.rows():
        if row["_op"] in ("+I", "+U"):
            panes[row["user"], row["window_start"]].append(row)
    for held in panes.values():
        test_panes.check_order(held)
    assert {"early", "on_time"} <= {row["pane_timing"] for held in panes.values() for row in held}


PANES = Entry(
    name="panes",
    operators=("Panes", "Hopping"),
    topics=ORDERS,
    batches=closed(LATE),
    build=lambda orders: orders.transform(
        Panes(
            window=Hopping(size=20, every=10, time=EventTime("at", delay=8, future_max=None)),
            by="user",
            compute=test_windows.COMPUTE,
            early=FirstOf(rows(2), AfterProcessingTime("1 ms")),
            allowed_lateness=20,
            mode="retracting",
        )
    ),
    seen=of_changing_windows,
    wanted=lambda: by_sql(LATE, 20, 10),
    check=panes_are_in_order,
)

# -- repetitions ---------------------------------------------------------------------------------------------------------

#: Each user comes in four batches, and half of them again after two hours.
REPEATED = [
    *([(f"u{number}", place, 10 * place + number % 3) for number in range(20)] for place in range(4)),
    [(f"u{number}", 9, 7200) for number in range(0, 20, 2)],
    [(f"u{number}", 10, 7201) for number in range(0, 20, 2)],
]


def first_of_each(some: Sequence[Row], within: int) -> list[Row]:
    """The first row of each user, and those that come so long after the last one that passed."""
    passed: dict[str, list[Row]] = defaultdict(list)
    for row in some:
        if not passed[row[0]] or row[2] - passed[row[0]][-1][2] >= within:
            passed[row[0]].append(row)
    return sorted(flat(list(passed.values())))


DEDUPE = Entry(
    name="dedupe",
    operators=("Dedupe",),
    topics=ORDERS,
    batches=[{"orders": orders(batch)} for batch in REPEATED],
    build=lambda orders: orders.transform(Dedupe(by="user", time=EventTime("at", delay="10 minutes"), within="1 hour")),
    seen=lambda found: sorted((row["user"], row["amount"], round(row["at"].timestamp())) for row in found),
    wanted=lambda: first_of_each(flat(REPEATED), 3600),
)

ENTRIES = (TUMBLING, HOPPING, SESSION, SLIDING, COUNT_WINDOW, PANES, DEDUPE)
