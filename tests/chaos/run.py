"""Kill streaming programs at every step of their batches, and compare what they wrote with what they should have written.

    python -m tests.chaos.run --what all --kills 50 --seed 1

A producer appends orders all the while. `query` is one streaming query, `query-on-kafka` the same on a broker of Kafka, `app` a whole App with views and sinks; in the end
DuckDB computes from the input topic what every output must hold. `capture` is the capture of a database (`--database`) that
writers change; in the end its topics must hold what its tables hold. `queue` is 16 workers of a queue in 4 processes, with `--http` through a server that is
killed as well; `sourcing` 8 processes that send commands to the same entities; `cluster` an app
on a Spark cluster whose workers and driver are killed, with a link cut and its state rescaled; `kafka` an app on three
Kafka brokers whose leaders are killed. `all` runs each after the other, with its own kills.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.chaos import single
from tests.chaos.app import series as whole
from tests.chaos.capture import series as captured
from tests.chaos.capture.databases import KINDS
from tests.chaos.cluster import disturb_cluster
from tests.chaos.kafka import disturb_kafka
from tests.chaos.kills import VICTIMS, Order
from tests.chaos.process import Stuck
from tests.chaos.queue import kill_workers
from tests.chaos.sourcing import kill_writers
from tests.chaos.tally import Tally, missed, report

Say = Callable[[str], None]


class Found(Protocol):
    """What a checker says of the outputs; printed as it is."""

    @property
    def good(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Series:
    """A kind of program to kill: where, in which order, and how."""

    points: tuple[str, ...]
    plan: Callable[..., list[Order]]
    run: Callable[..., Found]
    victims: tuple[str, ...] = VICTIMS


SERIES = {
    "query": Series(points=single.POINTS, plan=single.plan, run=single.run),
    "query-on-kafka": Series(
        points=single.POINTS_ON_KAFKA,
        plan=partial(single.plan, points=single.POINTS_ON_KAFKA),
        run=single.run_on_kafka,
    ),
    "app": Series(points=whole.POINTS, plan=whole.plan, run=whole.run),
    "capture": Series(points=captured.POINTS, plan=captured.plan, run=captured.run, victims=("worker",)),
}
#: Series that choose their own kills.
WITHOUT_ORDERS = {"queue": kill_workers, "sourcing": kill_writers, "cluster": disturb_cluster, "kafka": disturb_kafka}
#: How many kills each has, unless it is said.
KILLS, FEWER_KILLS = 50, {"kafka": 5}


def kill(what: str, *, kills: int, seed: int, keep: bool, say: Say, **settings: str) -> list[str]:
    """Carry out one series, print its report, and return what is wrong. `settings` are those of the series."""
    series = SERIES[what]
    orders = series.plan(kills=kills, seed=seed)
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix=f"headwater-chaos-{what}-", dir=memory if os.access(memory, os.W_OK) else None))
    tally = Tally()
    problems: list[str] = []
    verdict: Found | None = None
    try:
        verdict = series.run(orders, home, tally, seed=seed, say=say, **settings)
    except Stuck as stuck:
        problems.append(str(stuck))
    struck = [point for point in series.points if any(order.point == point for order in orders)]
    print(report(tally, struck, title=f"{what} killed at", victims=series.victims))
    if verdict is not None:
        print(verdict)
        problems += [] if verdict.good else ["the output is not what it should be"]
    problems += [f"never killed at {point}" for point in missed(tally, orders, series.points)]
    for problem in problems:
        print(f"WRONG {problem}")
    if problems or keep:
        print(f"folder: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return problems


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.run", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--what", choices=[*SERIES, *WITHOUT_ORDERS, "all"], default="all", help="what to kill")
    parser.add_argument("--database", choices=KINDS, default="sqlite", help="what is captured")
    parser.add_argument(
        "--store", choices=("disk", "s3"), default="disk", help="where the query keeps its state and its checkpoint"
    )
    parser.add_argument("--http", action="store_true", help="the workers of the queue reach it through a server")
    parser.add_argument("--kills", type=int, help=f"in each series: {KILLS}, or {FEWER_KILLS}, unless it is said")
    parser.add_argument("--seed", type=int, default=1, help="which series of kills, and which orders")
    parser.add_argument("--keep", action="store_true", help="keep the folder; one where something is wrong is kept")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        if not chosen.quiet:
            print(line, flush=True)

    wanted = [*SERIES, *WITHOUT_ORDERS] if chosen.what == "all" else [chosen.what]
    found = []
    for what in wanted:
        kills = chosen.kills if chosen.kills is not None else FEWER_KILLS.get(what, KILLS)
        if what in WITHOUT_ORDERS:
            others = {"http": chosen.http} if what == "queue" else {}
            series = WITHOUT_ORDERS[what]
            found += series(kills=kills, seed=chosen.seed, keep=chosen.keep, say=say, **others)
            continue
        settings = {"capture": {"kind": chosen.database}, "query": {"store": chosen.store}}.get(what, {})
        found += kill(what, kills=kills, seed=chosen.seed, keep=chosen.keep, say=say, **settings)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
