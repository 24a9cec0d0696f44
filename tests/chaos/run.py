"""Kill a streaming query at every step of its batches, and compare what it wrote with what it should have written.

    python -m tests.chaos.run --kills 50 --seed 1

A producer appends orders all the while. A child process runs source → Dedupe → Process → topic, and dies by SIGKILL:
the driver with its JVM, the JVM alone, or one Python worker, each at a named point inside a batch. Whatever died is
started again from the checkpoint. In the end DuckDB computes from the input topic what the output topic must hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psutil

from headwater.log import EmbeddedLog
from headwater.log import open as open_log
from headwater.testing import QUERY_CRASH_POINTS, SINK_CRASH_POINTS
from tests.chaos.check import Verdict, check
from tests.chaos.killing import FOLDER, VICTIMS, Control, Order, Strike
from tests.chaos.query import (
    BILLS,
    BILLS_SCHEMA,
    LATE_BY_SECONDS,
    ORDERS,
    ORDERS_SCHEMA,
    WINDOW_US,
    WITHIN_SECONDS,
)

ROOT = Path(__file__).parents[2]
COMMIT_POINTS = (
    "commit.written",
    "commit.synced",
    "commit.recording",
    "commit.recorded",
    "commit.flipped",
    "commit.finished",
)
POINTS = (*QUERY_CRASH_POINTS, *SINK_CRASH_POINTS[:3], *COMMIT_POINTS, *SINK_CRASH_POINTS[3:])
#: In this order the points' victims change from round to round. A new driver takes long, a new worker does not.
TURNS = ("driver", "worker", "jvm", "worker")
#: Points that the tasks of one batch pass several times.
FREQUENT = ("source.read", "engine", "side", "run.written", "manifest", "stage")
STRIKE_SECONDS_MAX = 120.0
PROGRESS_SECONDS_MAX = 90.0
EXIT_SECONDS_MAX = 30.0


class Stuck(Exception):
    """Something that should have happened did not."""


@dataclass
class Tally:
    """What a run has come to."""

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    lives: int = 0
    seconds: float = 0.0
    orphans: list[str] = field(default_factory=list)

    def at(self, point: str) -> int:
        return sum(self.kills[point, victim] for victim in VICTIMS)


def plan(*, kills: int, seed: int) -> list[Order]:
    """Which kills to do: all points in turn, each with another kind of victim in the next round."""
    chance = random.Random(seed)
    places = list(range(len(POINTS)))
    orders: list[Order] = []
    for number in range(-(-kills // len(POINTS))):
        chance.shuffle(places)
        for place in places:
            point = POINTS[place]
            visits = chance.randrange(1, 7) if point.startswith(FREQUENT) else chance.randrange(1, 3)
            victim = TURNS[(place + number + seed) % len(TURNS)]
            orders.append(
                Order(point=point, victim=victim, visit=1 if point == "run.merged" else visits, number=len(orders))
            )
    return orders[:kills]


class Query:
    """The child that runs the query, through all its lives."""

    def __init__(self, home: Path, log: EmbeddedLog, *, master: str) -> None:
        self.home = home
        self.log = log
        self.control = Control(home / "control")
        self.master = master
        self.lives = 0
        self._child: subprocess.Popen[bytes] | None = None
        for folder in ("site", "tmp"):
            (home / folder).mkdir(exist_ok=True)
        # Python runs it at the start of every process, also of those that Spark starts.
        customize = "from tests.chaos.killing import install_from_environment\ninstall_from_environment()\n"
        (home / "site" / "sitecustomize.py").write_text(customize)

    def start(self) -> None:
        """Start the child, unless it is running."""
        if self._child is not None and self._child.poll() is None:
            return
        (self.control.folder / "pids.json").unlink(missing_ok=True)
        self.lives += 1
        environ = os.environ | {
            FOLDER: str(self.control.folder),
            f"{FOLDER}_LIFE": str(self.lives),
            "PYTHONPATH": f"{self.home / 'site'}{os.pathsep}{ROOT}",
            "TMPDIR": str(self.home / "tmp"),
        }
        with (self.home / "driver.log").open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.driver", str(self.home), "--master", self.master],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def committed(self) -> int:
        """The last batch that is in the output topic, -1 for none."""
        identity = self.query_id()
        return -1 if identity is None else self.log.committed_sequence(identity)

    def query_id(self) -> str | None:
        try:
            return str(orjson.loads((self.home / "checkpoint" / "metadata").read_bytes())["id"])
        except (FileNotFoundError, orjson.JSONDecodeError):
            return None

    def has_caught_up(self) -> bool:
        identity = self.query_id()
        told = None if identity is None else self.log.transaction_metadata(identity)
        if not told or not told["sources"]:
            return False
        ends = {str(partition): offset for partition, offset in self.log.end_offsets(ORDERS).items()}
        return bool(told["sources"][0]["topics"][ORDERS] == ends)

    def wait(self, until: Callable[[], bool], what: str, *, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if self._child is not None and self._child.poll() is not None:
                raise Stuck(f"the driver ended by itself, with code {self._child.returncode}, instead of: {what}")
            if time.monotonic() > deadline:
                raise Stuck(f"not within {seconds:.0f} s: {what}")
            time.sleep(0.02)

    def wait_for_batches(self, count: int) -> None:
        before = self.committed()
        self.wait(lambda: self.committed() >= before + count, f"{count} more batches", seconds=PROGRESS_SECONDS_MAX)

    def strike(self, order: Order) -> Strike:
        """Give an order, and wait until it was carried out and its victim is gone."""
        self.control.arm(order)
        self.start()
        assert self._child is not None
        deadline = time.monotonic() + STRIKE_SECONDS_MAX
        while (strike := self.control.strike(order.number)) is None:
            if self._child.poll() is not None and self.control.strike(order.number) is None:
                raise Stuck(f"the driver ended by itself, with code {self._child.returncode}, before: {order}")
            if time.monotonic() > deadline:
                raise Stuck(f"nobody came to the point: {order}")
            time.sleep(0.01)
        if order.victim in ("driver", "jvm"):
            try:
                self._child.wait(EXIT_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise Stuck(f"the driver lives on without its JVM after: {order}") from None
        else:
            if order.victim != "task":
                self.wait(lambda: not _is_alive(strike.pid), f"the end of {strike}", seconds=EXIT_SECONDS_MAX)
            self.wait_for_batches(1)
        return strike

    def stop(self) -> None:
        """Let the child come to its end."""
        (self.home / "stop").touch()
        if self._child is not None and self._child.wait(60) != 0:
            raise Stuck(f"the driver ended with code {self._child.returncode}")

    def processes(self) -> list[psutil.Process]:
        """All processes of all lives."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(FOLDER) == str(self.control.folder):
                    found.append(process)
        return found

    def bury(self) -> list[str]:
        """End whatever is left, and say what it was."""
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        told = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                told.append(f"life {process.environ()[f'{FOLDER}_LIFE']}: {' '.join(process.cmdline())[:150]}")
                process.kill()
        return told


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def producing(log: EmbeddedLog, *, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that appends orders, until it gets SIGTERM."""
    log.create(ORDERS, ORDERS_SCHEMA, partitions=4, key="user")
    log.create(BILLS, BILLS_SCHEMA, partitions=3, key="user")
    command = [sys.executable, "-m", "tests.chaos.producer", str(log.path), str(seed)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def run(
    orders: list[Order],
    home: Path,
    tally: Tally,
    *,
    seed: int,
    master: str = "local[2,4]",
    say: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """Carry out all orders while the producer works, let the query catch up, and check what it wrote."""
    chance = random.Random(seed)
    began = time.monotonic()
    with open_log(home / "log") as log, producing(log, seed=seed) as producer:
        query = Query(home, log, master=master)
        try:
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
            state=home / "state",
            within_us=WITHIN_SECONDS * 1_000_000,
            window_us=WINDOW_US,
            late_by_us=LATE_BY_SECONDS * 1_000_000,
        )


def finish(query: Query, producer: subprocess.Popen[bytes]) -> None:
    """Stop the producer, and let the query read and bill all that there is."""
    query.start()
    query.wait_for_batches(1)
    producer.send_signal(signal.SIGTERM)
    if producer.wait(30) != 0:
        raise Stuck(f"the producer ended with code {producer.returncode}")
    query.wait(query.has_caught_up, "the end of the input", seconds=PROGRESS_SECONDS_MAX)
    query.wait_for_batches(3)  # the watermark follows a batch behind, in each of two operators
    query.stop()


def report(tally: Tally, orders: list[Order]) -> str:
    points = [point for point in POINTS if any(order.point == point for order in orders)]
    lines = ["", f"{'killed at':24}" + "".join(f"{victim:>8}" for victim in VICTIMS) + f"{'kills':>8}"]
    lines += [
        f"{point:24}" + "".join(f"{tally.kills[point, victim]:>8}" for victim in VICTIMS) + f"{tally.at(point):>8}"
        for point in points
    ]
    sums = [sum(tally.kills[point, victim] for point in points) for victim in VICTIMS]
    lines += [f"{'all':24}" + "".join(f"{one:>8}" for one in sums) + f"{sum(sums):>8}"]
    lines += ["", f"{sum(sums)} kills, {tally.lives} drivers started, {tally.seconds:.0f} s"]
    if tally.orphans:
        lines += ["processes left behind:", *(f"  {one}" for one in tally.orphans)]
    return "\n".join(lines)


def missed(tally: Tally, orders: list[Order]) -> list[str]:
    """Points without a kill: of all points, where there are enough kills for all."""
    wanted = POINTS if len(orders) >= len(POINTS) else [order.point for order in orders]
    return [point for point in wanted if not tally.at(point)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.run", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="which series of kills, and which orders")
    parser.add_argument("--keep", action="store_true", help="keep the folder; one where something is wrong is kept")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    chosen = parser.parse_args(arguments)
    orders = plan(kills=chosen.kills, seed=chosen.seed)
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="headwater-chaos-", dir=memory if os.access(memory, os.W_OK) else None))
    tally = Tally()
    problems: list[str] = []
    try:
        verdict = run(
            orders, home, tally, seed=chosen.seed, say=lambda line: None if chosen.quiet else print(line, flush=True)
        )
        print(report(tally, orders))
        print(verdict)
        if not verdict.good:
            problems.append("the output is not what it should be")
    except Stuck as stuck:
        print(report(tally, orders))
        problems.append(str(stuck))
    problems += [f"never killed at {point}" for point in missed(tally, orders)]
    for problem in problems:
        print(f"WRONG {problem}")
    if problems or chosen.keep:
        print(f"folder: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
