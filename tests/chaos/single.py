"""The series that kills one streaming query: source → Dedupe → Process → topic, at every step of its batches.

The driver with its JVM, the JVM alone, or one Python worker dies at a named point inside a batch. Whatever died is
started again from the checkpoint.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.kafka_broker import kafka_brokers
from benchmarks.peer_servers import seaweedfs
from benchmarks.s3a import s3a_jars
from headwater.engine.state_folder import open_folder
from headwater.log import Log
from headwater.log import open as open_log
from headwater.testing import QUERY_CRASH_POINTS, SINK_CRASH_POINTS
from tests.chaos.check import Verdict, check
from tests.chaos.kills import Order
from tests.chaos.process import PROGRESS_SECONDS_MAX, Child, Stuck, end_producing, producing
from tests.chaos.query import (
    BILLS,
    BILLS_SCHEMA,
    LATE_BY_SECONDS,
    ORDERS,
    ORDERS_SCHEMA,
    WINDOW_US,
    WITHIN_SECONDS,
)
from tests.chaos.tally import Tally

__all__ = ["POINTS", "POINTS_ON_KAFKA", "Stuck", "Tally", "plan", "run", "run_on_kafka"]

COMMIT_POINTS = (
    "commit.written",
    "commit.synced",
    "commit.recording",
    "commit.recorded",
    "commit.flipped",
    "commit.finished",
)
POINTS = (*QUERY_CRASH_POINTS, *SINK_CRASH_POINTS[:3], *COMMIT_POINTS, *SINK_CRASH_POINTS[3:])
#: Where a batch meets the log: what a query does between them is the same on every log.
POINTS_ON_KAFKA = (
    "source.planned",
    "source.timed",
    "source.read",
    *SINK_CRASH_POINTS[:3],
    # Not `kafka.staged`: the rows of so small a batch reach the brokers in the transaction alone.
    "kafka.sent",
    "kafka.committing",
    "kafka.committed",
    *SINK_CRASH_POINTS[3:],
)
#: In this order the points' victims change from round to round. A new driver takes long, a new worker does not.
TURNS = ("driver", "worker", "jvm", "worker")
#: Points that the tasks of one batch pass several times.
FREQUENT = ("source.read", "engine", "side", "run.written", "manifest", "stage")


def plan(*, kills: int, seed: int, points: Sequence[str] = POINTS) -> list[Order]:
    """Which kills to do: all points in turn, each with another kind of victim in the next round."""
    chance = random.Random(seed)
    places = list(range(len(points)))
    orders: list[Order] = []
    for number in range(-(-kills // len(points))):
        chance.shuffle(places)
        places.sort(key=lambda place: not points[place].startswith("kafka."))
        for place in places:
            point = points[place]
            visits = chance.randrange(1, 7) if point.startswith(FREQUENT) else chance.randrange(1, 3)
            victim = TURNS[(place + number + seed) % len(TURNS)]
            orders.append(
                Order(point=point, victim=victim, visit=1 if point == "run.merged" else visits, number=len(orders))
            )
    return orders[:kills]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where the query keeps its state, and Spark its checkpoint."""

    state: str
    checkpoint: str


@contextmanager
def places(home: Path, store: str) -> Iterator[Places]:
    """Folders on this disk, or prefixes of an object store that runs meanwhile and is found by the environment."""
    if store == "disk":
        yield Places(state=str(home / "state"), checkpoint=str(home / "checkpoint"))
        return
    s3a_jars()  # fetched before the clock runs
    with seaweedfs(home / "objects") as server:
        os.environ |= server.environment | {"HEADWATER_STATE_CACHE_DIR": str(home / "copies")}
        yield Places(state=f"s3://{server.bucket}/state", checkpoint=f"s3a://{server.bucket}/checkpoint")


class Query(Child):
    """The child that runs the query, through all its lives."""

    def __init__(self, home: Path, log: Log, *, master: str, places: Places) -> None:
        super().__init__(home, log)
        self.master = master
        self.places = places

    def arguments(self) -> list[str]:
        words = ["-m", "tests.chaos.driver", str(self.home), "--log", self.log.address, "--master", self.master]
        return [*words, "--state", self.places.state, "--checkpoint", self.places.checkpoint]

    def progress(self) -> tuple[int, ...]:
        """The last batch that is in the output topic, -1 for none."""
        identity = self.query_id()
        return (-1 if identity is None else self.log.committed_sequence(identity),)

    def query_id(self) -> str | None:
        text = open_folder(self.places.checkpoint).read_text("metadata")
        try:
            return None if text is None else str(orjson.loads(text)["id"])
        except orjson.JSONDecodeError:
            return None

    def has_caught_up(self) -> bool:
        identity = self.query_id()
        told = None if identity is None else self.log.transaction_metadata(identity)
        if not told or not told["sources"]:
            return False
        ends = {str(partition): offset for partition, offset in self.log.end_offsets(ORDERS).items()}
        return bool(told["sources"][0]["topics"][ORDERS] == ends)


def run_on_kafka(orders: list[Order], home: Path, tally: Tally, **settings: Any) -> Verdict:
    """The same on a broker of Kafka, whose time to start does not count."""
    with kafka_brokers(home / "broker") as kafka:
        return run(orders, home, tally, address=f"{kafka.address}/chaos", **settings)


def run(
    orders: list[Order],
    home: Path,
    tally: Tally,
    *,
    seed: int,
    master: str = "local[2,4]",
    store: str = "disk",
    address: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Carry out all orders while the producer works, let the query catch up, and check what it wrote."""
    chance = random.Random(seed)
    began = time.monotonic()
    with places(home, store) as chosen, open_log(address or home / "log") as log:
        log.create(ORDERS, ORDERS_SCHEMA, partitions=4, key="user")
        log.create(BILLS, BILLS_SCHEMA, partitions=3, key="user")
        query = Query(home, log, master=master, places=chosen)
        try:
            with producing(log, seed=seed) as producer:
                for order in orders:
                    # Half of the restarts are killed in their first batch, the one that is done again.
                    if query.lives and chance.random() < 0.5:
                        query.start()
                        query.wait_for_batches(1)
                    strike = query.strike(order)
                    tally.kills[order.point, order.victim] += 1
                    say(f"{time.monotonic() - began:5.0f} s  kill {tally.kills.total()}/{len(orders)}: {strike}")
                finish(query, producer)
        finally:
            tally.lives = query.lives
            tally.orphans = query.bury()
            tally.seconds = time.monotonic() - began
        return check(
            log,
            state=chosen.state,
            within_us=WITHIN_SECONDS * 1_000_000,
            window_us=WINDOW_US,
            late_by_us=LATE_BY_SECONDS * 1_000_000,
        )


def finish(query: Query, producer: subprocess.Popen[bytes]) -> None:
    """Stop the producer, and let the query read and bill all that there is."""
    query.start()
    query.wait_for_batches(1)
    end_producing(producer)
    query.wait(query.has_caught_up, "the end of the input", seconds=PROGRESS_SECONDS_MAX)
    query.wait_for_batches(3)  # the watermark follows a batch behind, in each of two operators
    query.stop()
