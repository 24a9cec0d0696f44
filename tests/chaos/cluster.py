"""An app on a standalone Spark cluster: workers and the driver are killed, a link is cut, state is rescaled.

Orders are appended between the events, and in the end the windows must be those that follow from the orders. Workers live in
network namespaces where those may be made; elsewhere they are processes on one address, and no link is cut.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import headwater as hw
from benchmarks.spark_cluster import SparkCluster, Worker, spark_cluster
from headwater.apps.home import Home
from headwater.log import Log
from headwater.services.queries import Queries
from headwater.services.remote import remote
from tests.chaos.hosts import Host, Network, can_have_hosts, network
from tests.conditions import until
from tests.spark.shop import FILE, append_orders, create_orders, expected, started, totals

CUT_SECONDS = 20.0
ROWS = 1_500
#: What happens, in an order that the seed chooses; the link is cut only where there are hosts.
EVENTS = ("kill worker", "cut link", "kill driver", "add worker", "rescale 4", "rescale 2")


@dataclass
class Scene:
    """The cluster, the app on it, and how far the orders are."""

    folder: Path
    cluster: SparkCluster
    log: Log
    hosts: list[Host]
    driver: subprocess.Popen[bytes]
    appended: int = 0
    places: dict[int, Host] = field(default_factory=dict)

    @property
    def home(self) -> Home:
        return Home(self.folder / "data" / "apps" / "shop")

    def append(self) -> None:
        append_orders(self.log, self.appended, self.appended + ROWS)
        self.appended += ROWS

    def await_rows(self, rows: int) -> None:
        until(lambda: self.home.read_checkpoint("totals", 1).rows_read >= rows, f"{rows} rows were read", self.driver)

    def living(self) -> list[Worker]:
        return [worker for worker in self.cluster.workers if worker.process.poll() is None]

    def add_worker(self) -> None:
        taken = [self.places.get(worker.process.pid) for worker in self.living()]
        free = [host for host in self.hosts if host not in taken]
        host = free[0] if free else None
        before, address = (host.before, host.address) if host is not None else ([], None)
        worker = self.cluster.add_worker(host=address, before=before)
        if host is not None:
            self.places[worker.process.pid] = host
        self.cluster.await_workers()

    def happen(self, event: str, chance: random.Random) -> None:
        if event == "kill worker":
            chance.choice(self.living()).kill()
            self.append()
            if not self.living():
                self.add_worker()
        elif event == "cut link":
            host = self.places[chance.choice(self.living()).process.pid]
            host.cut()
            self.append()
            time.sleep(CUT_SECONDS)  # the event itself: so long is the link down
            host.join()
        elif event == "kill driver":
            self.append()
            self.driver.kill()
            self.driver.wait()
            self.driver = started(self.folder, self.cluster.url)
        elif event == "add worker":
            self.add_worker()
            self.append()
        else:
            self.append()
            self.rescale(int(event.rpartition(" ")[2]))

    def rescale(self, partitions: int) -> None:
        until(lambda: self.home.active_runner() is not None, "the app is served", self.driver)
        with self.home.connected(seconds_max=120) as connection:
            remote(Queries)(connection).rescale("totals", partitions, app="shop")


def disturb_cluster(*, kills: int, seed: int, keep: bool, say: Callable[[str], None]) -> list[str]:
    """Let events happen, each once or more, and compare what the app has written with its input; return what is wrong."""
    chance = random.Random(seed)
    has_hosts = can_have_hosts()
    events = [event for event in EVENTS if has_hosts or event != "cut link"]
    chosen = [event for _ in range(max(1, kills // len(events))) for event in chance.sample(events, len(events))]
    folder = Path(tempfile.mkdtemp(prefix="headwater-chaos-cluster-"))
    began = time.monotonic()
    problems = []
    with _scene(folder, has_hosts=has_hosts) as scene:
        for number, event in enumerate(chosen):
            scene.happen(event, chance)
            scene.await_rows(scene.appended)
            say(f"{time.monotonic() - began:5.0f} s  {number + 1}/{len(chosen)}: {event}")
        scene.append()
        scene.await_rows(scene.appended)
        wanted = expected(scene.log)
        with contextlib.suppress(AssertionError):
            until(lambda: len(scene.log.read("totals").table()) >= len(wanted), "all windows came", scene.driver)
        try:
            found = totals(scene.log)
        except AssertionError as twice:
            found, problems = type(wanted)(), [str(twice)]
        lost, wrong = wanted.keys() - found.keys(), [key for key in found if found[key] != wanted.get(key)]
        print(
            f"{len(chosen)} events in {time.monotonic() - began:.0f} s, workers {'in namespaces' if has_hosts else 'as processes'}: "
            f"{scene.appended} orders, {len(found)} windows, lost {len(lost)}, other {len(wrong)}, doubled {len(problems)}"
        )
        problems += [f"lost: {sorted(lost)[:5]}"] if lost else []
        problems += [f"other: {wrong[:5]}"] if wrong else []
    for problem in problems:
        print(f"WRONG {problem}")
    if problems or keep:
        print(f"folder: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return problems


@contextlib.contextmanager
def _scene(folder: Path, *, has_hosts: bool) -> Iterator[Scene]:
    """Two workers, and the app that has committed its first batch."""
    (folder / "shop.py").write_text(FILE)
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(network(3)) if has_hosts else Network("127.0.0.1")
        cluster = stack.enter_context(spark_cluster(folder / "cluster", workers=0, host=net.address))
        log = stack.enter_context(hw.open(folder / "data", create=True))
        create_orders(log)
        scene = Scene(folder, cluster, log, net.hosts, started(folder, cluster.url))
        try:
            scene.append()
            for _ in range(2):
                scene.add_worker()
            scene.await_rows(scene.appended)
            yield scene
        finally:
            scene.driver.kill()
            scene.driver.wait()
