"""An app on three Kafka brokers of which any one may be lost: leaders of its topics are killed under load, and the app as well.

A producer appends orders all the while. In the end every acknowledged order must be in the topic once, and the app's topic of
windows and its view must be what follows from the orders alone.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

import headwater.log as hwlog
from benchmarks.kafka_broker import Kafka, KafkaBroker, kafka_brokers
from headwater.apps.home import Home
from headwater.errors import HeadwaterError
from headwater.home import home_of
from headwater.log import Log
from tests.conditions import until
from tests.spark.shop import USERS, create_orders, expected, started, totals

NAMESPACE = "chaos"
#: What happens, one after the other, and again from the beginning.
EVENTS = ("kill leader", "kill leader", "kill app", "kill leader", "kill leader")
ROWS = 40
#: So many orders must be read after each event.
PROGRESS_ROWS = 1_000
FILE = """
import headwater as hw
from headwater.operators import Tumbling, agg
from pyspark.sql import functions as F

JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m"
app = hw.App("shop", log="ADDRESS", conf={"spark.sql.shuffle.partitions": 2, "spark.driver.extraJavaOptions": JAVA})
app.input("orders")

@app.topic(rows_max=4000)
def totals(orders):
    return orders.transform(Tumbling(size="10 seconds", by="user", compute={"count": agg.count()}))

@app.view(key="user", rows_max=4000)
def spend(orders):
    return orders.groupBy("user").agg(F.count("*").alias("n"), F.sum(F.unix_micros("at")).alias("total"))
"""


class Orders(threading.Thread):
    """Appends orders until it is told to stop, and knows which the brokers have acknowledged."""

    def __init__(self, log: Log) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._stopped = threading.Event()
        self.acknowledged: list[range] = []
        self.refused = 0
        self.count = 0
        self.longest = 0.0

    def run(self) -> None:
        number = 0
        while not self._stopped.wait(0.05):
            began, rows = time.monotonic(), range(number, number + ROWS)
            number += ROWS
            try:
                self._log.append("orders", [{"user": one % USERS, "at": one * 100_000} for one in rows])
            except HeadwaterError:
                self.refused += ROWS  # they may be there or not
            else:
                self.acknowledged.append(rows)
                self.count += ROWS
            self.longest = max(self.longest, time.monotonic() - began)

    def stop(self) -> None:
        self._stopped.set()
        self.join(60)


@dataclass
class Scene:
    """The brokers, the app, and the orders that come all the while."""

    folder: Path
    kafka: Kafka
    log: Log
    orders: Orders
    driver: subprocess.Popen[bytes]
    waits: list[float] = field(default_factory=list)
    #: How the app's process has ended by itself.
    ended: list[int] = field(default_factory=list)

    def rows_read(self) -> int:
        """What both queries have read: the slower one counts."""
        home = Home(home_of(self.log.address) / "apps" / "shop")
        return min(home.read_checkpoint(name, 1).rows_read for name in ("totals", "spend"))

    def await_progress(self, what: str) -> None:
        """Wait until the app has read a thousand orders more. An app whose process has ended is started again, as by a service manager."""
        began = time.monotonic()
        goal = self.orders.count + PROGRESS_ROWS

        def went_on() -> bool:
            if self.driver.poll() is not None:
                self.ended.append(self.driver.returncode)
                self.driver = run_app(self.folder)
            return self.rows_read() >= goal

        until(went_on, f"the app goes on after: {what}")
        self.waits.append(time.monotonic() - began)

    def happen(self, event: str) -> None:
        if event == "kill app":
            self.driver.kill()
            self.driver.wait()
            self.driver = run_app(self.folder)
            self.await_progress(event)
            return
        broker = self.leader()
        broker.kill()
        self.await_progress(event)
        broker.start()
        until(lambda: self.in_sync() == len(self.kafka.brokers), "the broker is in sync again")

    def leader(self) -> KafkaBroker:
        """The broker that leads a partition of the orders."""
        found = until(lambda: self._partitions()[0].leader, "the partition has a leader")
        return next(broker for broker in self.kafka.brokers if broker.node == found.id)

    def in_sync(self) -> int:
        """How many brokers have all of every partition."""
        try:
            return min(len(partition.isr) for partition in self._partitions())
        except KafkaException:  # the client asked the broker that was killed
            return 0

    # Any of confluent-kafka's descriptions, which have no public type.
    def _partitions(self) -> list:  # type: ignore[type-arg]
        topics = [f"{NAMESPACE}.{name}" for name in ("orders", "totals", "spend", "__headwater")]
        # A new client each time: one that knows the broker that was killed waits for it.
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        futures = admin.describe_topics(TopicCollection(topics), request_timeout=30)
        return [partition for future in futures.values() for partition in future.result(30).partitions]


def run_app(folder: Path) -> subprocess.Popen[bytes]:
    return started(folder, "local[2]")


def disturb_kafka(*, kills: int, seed: int, keep: bool, say: Callable[[str], None]) -> list[str]:  # noqa: ARG001
    """Let events happen, and compare what the app has written with its input; return what is wrong."""
    chosen = [EVENTS[number % len(EVENTS)] for number in range(kills)]
    folder = Path(tempfile.mkdtemp(prefix="headwater-chaos-kafka-"))
    began = time.monotonic()
    with _scene(folder) as scene:
        say(f"{time.monotonic() - began:5.0f} s  three brokers and the app are at work")
        for number, event in enumerate(chosen):
            scene.happen(event)
            say(
                f"{time.monotonic() - began:5.0f} s  {number + 1}/{len(chosen)}: {event}, went on in {scene.waits[-1]:.1f} s"
            )
        scene.orders.stop()
        end = sum(scene.log.end_offsets("orders").values())
        until(lambda: scene.rows_read() >= end, "all is read", scene.driver)
        wanted = expected(scene.log)
        with contextlib.suppress(AssertionError):
            until(lambda: scene.log.read("totals").count() >= len(wanted), "all windows came", scene.driver)
        problems = [*_wrong_orders(scene), *_wrong_totals(scene.log, wanted), *_wrong_view(scene.log)]
        rows = sum(map(len, scene.orders.acknowledged))
        print(
            f"{Counter(chosen)} in {time.monotonic() - began:.0f} s: {rows} orders acknowledged, {scene.orders.refused} refused, "
            f"the slowest append {scene.orders.longest:.1f} s; {len(wanted)} windows; the app went on after at most {max(scene.waits):.1f} s, its process ended by itself {len(scene.ended)} times {scene.ended or ''}"
        )
        print("lost 0, doubled 0, other 0" if not problems else f"{len(problems)} problems")
    for problem in problems:
        print(f"WRONG {problem}")
    if problems or keep:
        print(f"folder: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return problems


@contextlib.contextmanager
def _scene(folder: Path) -> Iterator[Scene]:
    """Three brokers, the orders, and the app that has committed its first batches."""
    with kafka_brokers(folder / "brokers", count=3) as kafka:
        address = f"{kafka.address}/{NAMESPACE}"
        (folder / "shop.py").write_text(FILE.replace("ADDRESS", address))
        with hwlog.open(address) as log:
            create_orders(log)
            scene = Scene(folder, kafka, log, Orders(log), run_app(folder))
            scene.orders.start()
            try:
                until(lambda: scene.rows_read() > 0, "the app reads", scene.driver)
                yield scene
            finally:
                scene.orders.stop()
                scene.driver.kill()
                scene.driver.wait()
                shutil.rmtree(home_of(address), ignore_errors=True)


def _wrong_orders(scene: Scene) -> list[str]:
    """Orders that were acknowledged and are not there, and orders that are there twice."""
    found = Counter(int(at.timestamp() * 10 + 0.5) for at in scene.log.read("orders").table()["at"].to_pylist())
    lost = [number for rows in scene.orders.acknowledged for number in rows if number not in found]
    doubled = [number for number, count in found.items() if count > 1]
    return [
        *([f"{len(lost)} acknowledged orders lost: {lost[:5]}"] if lost else []),
        *([f"{len(doubled)} orders doubled: {doubled[:5]}"] if doubled else []),
    ]


def _wrong_totals(log: Log, wanted: Counter[tuple[int, int]]) -> list[str]:
    try:
        found = totals(log)
    except AssertionError as twice:
        return [f"window {twice}"]
    lost, other = wanted.keys() - found.keys(), [key for key in found if found[key] != wanted.get(key)]
    return [
        *([f"{len(lost)} windows lost: {sorted(lost)[:5]}"] if lost else []),
        *([f"{len(other)} windows with other counts: {other[:5]}"] if other else []),
    ]


def _wrong_view(log: Log) -> list[str]:
    """The view's topic must end with what the orders come to, and count each order once on its way there."""
    orders = log.read("orders", columns=["user", "at"]).table()
    times = orders.column("at").cast(pa.int64())
    sums = orders.set_column(1, "at", times).group_by("user").aggregate([("at", "count"), ("at", "sum")]).to_pylist()
    wanted = {row["user"]: (row["at_count"], row["at_sum"]) for row in sums}
    found: dict[int, tuple[int, int]] = {}
    problems = []
    for row in log.read("spend", columns=["user", "n", "total"]).rows():
        before = found.get(row["user"], (0, 0))
        if row["n"] <= before[0]:
            problems.append(f"the view went back for {row}, after {before}")
        found[row["user"]] = (row["n"], row["total"])
    other = {user: (found.get(user), row) for user, row in wanted.items() if found.get(user) != row}
    return [*problems[:5], *([f"the view differs from its input: {list(other.items())[:3]}"] if other else [])]
