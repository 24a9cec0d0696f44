"""`headwater demo log`: start a shop of several processes, watch it, kill one of its processes, and count at the end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.session import Session
from headwater.cli.terminal.streams import is_terminal
from headwater.units import format_bytes

if TYPE_CHECKING:
    from headwater.cli.demo.log_scene import Watcher
    from headwater.log import Log


ORDERS, CUSTOMERS, INVOICES, LEDGER = "orders", "customers", "invoices", "ledger"
BILLING, AUDIT = "billing", "audit"
PARTITIONS = 4
NAMES = (
    *("ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal"),
    *("ida", "joe", "kim", "lou", "mia", "ned", "oda", "pia"),
)
ITEMS = ("lamp", "chair", "kettle", "rug", "mirror", "clock", "shelf", "vase")
ROWS_PER_SECOND = 1_500
LINGER_SECONDS = 0.02
SECONDS_MIN = 4.0
LOOK_SECONDS = 0.25
START_SECONDS_MAX = 30.0
DRAIN_SECONDS_MAX = 30.0


def make_topics(log: Log) -> None:
    """Orders come in, customers are a table, and each invoice has its line in the ledger."""
    order = "id int64 not null, customer string, item string, amount float64, at timestamp"
    log.create(ORDERS, order, partitions=PARTITIONS, key="customer", time="at")
    log.create(CUSTOMERS, "customer string not null, orders int64, spent float64", key="customer", compact=True)
    log.create(INVOICES, "order int64 not null, customer string, amount float64", partitions=2, key="customer")
    log.create(LEDGER, "order int64 not null, cents int64")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When things happen, in seconds from the start.

    >>> Schedule.of(20).kill_at
    9.0
    """

    seconds: float
    kill_at: float
    compact_at: float
    stop_at: float

    @classmethod
    def of(cls, seconds: float) -> Schedule:
        return cls(seconds=seconds, kill_at=seconds * 0.45, compact_at=seconds * 0.65, stop_at=seconds * 0.88)


@dataclass(frozen=True, kw_only=True)
class Reckoning:
    """The counts of all orders; `lost` and `doubled` add up over both groups, the ledger and the log itself."""

    sent: int
    appended: int
    billed: int
    audited: int
    lost: int
    doubled: int

    @property
    def holds(self) -> bool:
        return self.lost == 0 and self.doubled == 0 and self.sent == self.appended == self.billed == self.audited

    def __str__(self) -> str:
        return f"appended {self.appended:,}  consumed {self.billed:,}  lost {self.lost:,}  doubled {self.doubled:,}"


def reckon(log: Log, *, sent: int, audited: dict[str, Any]) -> Reckoning:
    """Count every order by its number, wherever it should be.

    `audited` is what the process that read for the second group saw; for the first group its invoices speak.
    """
    orders = _numbers(log, ORDERS, "id")
    places = [_numbers(log, INVOICES, "order"), _numbers(log, LEDGER, "order")]
    lost = sent - len(orders) + sum(len(orders.keys() - place.keys()) for place in places)
    doubled = sum(count - 1 for place in (orders, *places) for count in place.values())
    return Reckoning(
        sent=sent,
        appended=orders.total(),
        billed=places[0].total(),
        audited=audited["seen"],
        lost=lost + len(orders) - audited["seen"],
        doubled=doubled + audited["doubled"],
    )


def _numbers(log: Log, topic: str, column: str) -> Counter[int]:
    counts: Counter[int] = Counter()
    for batch in log.read(topic, columns=[column]):
        counts.update(batch.column(0).to_pylist())
    return counts


class Tour:
    """One run of the demo."""

    def __init__(self, session: Session, folder: Path, seconds: float) -> None:
        self._session = session
        self._folder = folder
        self._schedule = Schedule.of(seconds)
        from headwater.cli.demo.log_scene import Scene

        self._scene = Scene(folder=str(folder), seconds=seconds)
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._killed: set[str] = set()
        self._reports: dict[str, Any] = {}

    def run(self) -> Reckoning:
        import headwater

        with headwater.open(self._folder) as log:
            make_topics(log)
            try:
                for name, role in (
                    ("shop", "produce"),
                    ("billing-1", "bill"),
                    ("billing-2", "bill"),
                    ("audit", "audit"),
                ):
                    self._start(name, role)
                with self._display() as show:
                    self._watch(log, show)
            finally:
                self._end_all()
            return reckon(log, sent=self._reports["shop"]["orders"], audited=self._reports["audit"])

    # -- the course of events -----------------------------------------------------------------------------------------

    def _watch(self, log: Log, show: Callable[[], None]) -> None:
        from headwater.cli.demo.log_scene import Watcher

        watcher, scene = Watcher(log, self._scene), self._scene
        self._await_processes(watcher, show)
        scene.happened("four processes: a producer, two members of billing, one of audit")
        steps: list[tuple[float, Callable[[], None]]] = [
            (self._schedule.kill_at, lambda: self._kill("billing-2")),
            (self._schedule.compact_at, lambda: self._compact(log)),
            (self._schedule.stop_at, self._stop_producer),
        ]
        while True:
            watcher.look()
            self._notice_takeover()
            show()
            self._check_alive()
            while steps and scene.elapsed >= steps[0][0]:
                steps.pop(0)[1]()
            drained = not steps and all(group.rows == 0 for group in scene.groups.values())
            if drained and scene.elapsed >= scene.seconds:
                return
            if scene.elapsed > scene.seconds + DRAIN_SECONDS_MAX:
                return
            time.sleep(LOOK_SECONDS)

    def _await_processes(self, watcher: Watcher, show: Callable[[], None]) -> None:
        """The schedule begins when all are at work: on a busy machine, starting takes its time."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._scene.is_complete and time.monotonic() < deadline:
            watcher.begin()
            watcher.look()
            show()
            self._check_alive()
            time.sleep(LOOK_SECONDS / 2)

    def _kill(self, name: str) -> None:
        process = self._processes[name]
        self._killed.add(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._scene.groups[BILLING].killed.append(process.pid)
        self._scene.happened(f"SIGKILL to process {process.pid} of billing, in the middle of its work")
        self._killed_at = time.monotonic()
        self._taken_over = False

    def _notice_takeover(self) -> None:
        """See when the partitions of the killed member are read again."""
        if not self._killed or self._taken_over:
            return
        alive = [one for one in self._scene.groups[BILLING].members if one.alive]
        if sum(len(one.partitions) for one in alive) == PARTITIONS:
            took = time.monotonic() - self._killed_at
            self._taken_over = True
            self._scene.happened(f"process {alive[0].pid} has taken over its partitions, after {took:.1f} s at most")

    def _compact(self, log: Log) -> None:
        before = log.read(CUSTOMERS, columns=["_offset"]).count()
        size = log.describe(CUSTOMERS).bytes
        from headwater.log.embedded import local_log

        local_log(log).maintain(CUSTOMERS, seal=True)
        after = log.read(CUSTOMERS, columns=["_offset"]).count()
        self._scene.compacted = (before, after)
        sizes = f"{format_bytes(size)} → {format_bytes(log.describe(CUSTOMERS).bytes)}"
        self._scene.happened(f"customers compacted beside its writer: {before:,} → {after:,} rows, {sizes}")

    def _stop_producer(self) -> None:
        self._end("shop")
        self._scene.happened("the producer has stopped; the groups read to the end")

    # -- processes ----------------------------------------------------------------------------------------------------

    def _start(self, name: str, role: str) -> None:
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", "headwater.cli.demo.log_workers", role, str(self._folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None and name not in self._killed and name not in self._reports:
                _, complaint = process.communicate()
                raise RuntimeError(f"the demo's process {name} ended by itself: {complaint.strip()[-2000:]}")

    def _end(self, name: str) -> None:
        process = self._processes[name]
        process.terminate()
        try:
            output, complaint = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            output, complaint = process.communicate()
        self._reports[name] = json.loads(output) if output else {}
        if process.returncode and name not in self._killed:
            self._session.warn(f"{name} ended with {process.returncode}: {complaint.strip()[-500:]}")

    def _end_all(self) -> None:
        for name in self._processes:
            if name not in self._reports:
                self._end(name)

    # -- what is shown ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _display(self) -> Iterator[Callable[[], None]]:
        if not is_terminal(sys.stdout) or self._session.output != "table":
            from headwater.cli.demo.log_scene import Teller

            yield Teller(self._session, self._scene).tell
            return
        from rich.console import Console
        from rich.live import Live

        from headwater.cli.demo.log_scene import draw

        console = Console(no_color=self._session.config.color == "never")

        def picture() -> Any:  # Any: whatever rich can draw
            return draw(self._scene, width=console.width, height=console.height)

        with Live(picture(), console=console, screen=True, auto_refresh=False) as live:
            yield lambda: live.update(picture(), refresh=True)
        for event in self._scene.events:
            self._session.say(f"{event.at:5.1f} s  {event.text}")
