"""The series that kills a capture, at the steps of its pieces and at any moment, while writers change its database.

Syncs apply a captured table to targets meanwhile; their process is killed, too.

Between the kills the database is restarted, connections are cut, and a process dies whose connection the server still
believes in, so that its replication slot is held.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from headwater.capture import CaptureConfig, CaptureStore
from headwater.faults import CAPTURE_CRASH_POINTS
from headwater.log import Log
from headwater.log import open as open_log
from tests.chaos.capture import targets
from tests.chaos.capture.capture_process import CAPTURE, CaptureProcess
from tests.chaos.capture.check import CaptureVerdict, compare, compare_target, read_tables, read_topics
from tests.chaos.capture.databases import PASSWORD_ENV, Database, database
from tests.chaos.capture.load import LAST_ID, seed_rows
from tests.chaos.kills import Order
from tests.chaos.process import PROGRESS_SECONDS_MAX, ROOT, Stuck
from tests.chaos.tally import Tally

ANY_MOMENT = "any moment"
#: Points of the log's transaction that appends a piece.
COMMIT_POINTS = (
    "commit.written",
    "commit.synced",
    "commit.recording",
    "commit.durable",
    "commit.recorded",
    "commit.flipped",
    "commit.finished",
)
POINTS = (*CAPTURE_CRASH_POINTS, *COMMIT_POINTS, *targets.POINTS, ANY_MOMENT)
DISTURBANCES = ("cut", "restart", "hold")
Say = Callable[[str], None]


def plan(*, kills: int, seed: int) -> list[Order]:
    """Choose the kills: a third at any moment, the others at all points in turn, and at each if there are enough."""
    chance = random.Random(seed)
    named = [point for point in POINTS if point != ANY_MOMENT]
    moments = min(kills // 3, kills - len(named)) if kills > len(named) else kills // 3
    points = [point for _ in range(-(-kills // len(named))) for point in chance.sample(named, len(named))]
    chosen = [*points[: kills - moments], *[ANY_MOMENT] * moments]
    chance.shuffle(chosen)
    return [
        Order(point=point, victim="worker", visit=1 if point == ANY_MOMENT else chance.randrange(1, 6), number=number)
        for number, point in enumerate(chosen)
    ]


def run(
    orders: list[Order],
    home: Path,
    tally: Tally,
    *,
    seed: int,
    kind: str = "sqlite",
    say: Say = lambda _: None,
) -> CaptureVerdict:
    """Carry out all orders under load, let the capture catch up, and compare its topics with the tables."""
    chance = random.Random(seed)
    began = time.monotonic()
    with database(kind, home) as source, open_log(home / "log") as log:
        session = source.session()
        seed_rows(session)
        session.close()
        CaptureStore(log).create(config_of(source))
        capture = CaptureProcess(home, log)
        items, notes = (CAPTURE + "." + table for table in source.tables)
        sync = targets.SyncProcess(home / "sync", log, source, items)
        disturbances: Counter[str] = Counter()
        try:
            with load(source, home, seed=seed) as writers:
                first_streamed = 0
                for order in orders:
                    if order.number and order.number % 5 == 0 and source.proxy is not None:
                        disturb(DISTURBANCES[(order.number // 5) % len(DISTURBANCES)], source, capture, disturbances)
                    strike = carry_out(order, capture, sync, chance)
                    tally.kills[order.point, order.victim] += 1
                    say(f"{time.monotonic() - began:5.0f} s  kill {tally.kills.total()}/{len(orders)}: {strike}")
                    if not first_streamed and capture.progress()[0]:
                        first_streamed = audited(source) + 1
                said = finish(capture, source, writers, home)
                say("the targets catch up")
                sync.catch_up()
        finally:
            tally.lives = capture.lives + sync.lives
            tally.orphans = [*capture.bury(), *sync.bury()]
            tally.seconds = time.monotonic() - began
        tally.events.append(said)
        tally.events += [f"{what}: {count} times" for what, count in disturbances.items()]
        tally.events += [
            f"the process ended by itself {count} times: {what}" for what, count in Counter(capture.ended).items()
        ]
        say("comparing topics and tables")
        written = read_tables(source)
        verdict = compare(written, read_topics(log, items=items, notes=notes), first_streamed=first_streamed or 1)
        for name, rows in sync.tables().items():
            compare_target(name, written.items, rows, verdict)
        return verdict


def carry_out(order: Order, capture: CaptureProcess, sync: targets.SyncProcess, chance: random.Random) -> str:
    """Kill the capture, or the process that applies its topic to the targets."""
    if order.point not in targets.POINTS:
        return capture.carry_out(order, chance)
    capture.wait_for_pieces(1)
    capture.start()
    return f"sync, {sync.strike(order)}"


def config_of(source: Database) -> CaptureConfig:
    return CaptureConfig(
        name=CAPTURE,
        url=source.url,
        tables=source.tables,
        envelope="debezium",
        partitions=2,
        password_env=PASSWORD_ENV if source.kind == "postgres" else None,
    )


def disturb(what: str, source: Database, capture: CaptureProcess, done: Counter[str]) -> None:
    """Disturb the database or its connections, and wait until the capture appends again."""
    assert source.proxy is not None
    assert source.restart is not None
    capture.wait_for_pieces(1)
    match what:
        case "cut":
            done["connections cut"] += bool(source.proxy.cut())
        case "restart":
            source.restart()
            done["database restarted"] += 1
        case "hold":
            source.proxy.holds = True
            capture.kill_after(0.05)
            wait_until(
                lambda: source.proxy is None or source.proxy.held > 0, "the proxy has seen the end of the process"
            )
            source.proxy.holds = False
            done["killed while the server believed in its connection"] += 1
    capture.wait_for_pieces(2)
    source.proxy.forget()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PROGRESS_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise Stuck(f"not within {PROGRESS_SECONDS_MAX:.0f} s: {what}")
        time.sleep(0.01)


def audited(source: Database) -> int:
    session = source.session()
    ((last,),) = session.run("SELECT coalesce(max(seq), 0) FROM audit")
    session.close()
    return int(last)


@contextlib.contextmanager
def load(source: Database, home: Path, *, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    """The process that changes the tables."""
    words = [source.kind, source.address, str(source.writers), str(seed)]
    with (home / "load.log").open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.capture.load", *words], cwd=ROOT, stdout=output, stderr=output
        )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def finish(capture: CaptureProcess, source: Database, writers: subprocess.Popen[bytes], home: Path) -> str:
    """Let the writers commit their last rows, and the capture read all of them; return what the writers did."""
    capture.wait_for_pieces(1)
    writers.send_signal(signal.SIGTERM)
    if writers.wait(PROGRESS_SECONDS_MAX) != 0:
        raise Stuck(f"the load ended with code {writers.returncode}: {(home / 'load.log').read_text()[-500:]}")
    deadline = time.monotonic() + PROGRESS_SECONDS_MAX
    for topic, column in zip((f"{CAPTURE}.{table}" for table in source.tables), ("id", "who"), strict=True):
        while not has_last(capture.log, topic, column):
            if not capture.runs:
                capture.wait_for_pieces(1)
            if time.monotonic() > deadline:
                raise Stuck(f"the last row did not arrive in {topic}")
            time.sleep(capture.poll_seconds)
    capture.stop()
    return (home / "load.log").read_text().splitlines()[-1]


def has_last(log: Log, topic: str, column: str) -> bool:
    """Whether a topic has the last row of the load; it is among the newest of its partition."""
    ends = log.end_offsets(topic)
    starts = {partition: max(0, end - 50) for partition, end in ends.items()}
    return any((row["after"] or {}).get(column) == LAST_ID for row in log.read(topic, start=starts).rows())
