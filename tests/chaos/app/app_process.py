"""The child process that runs the app: its restarts, its progress, and requests to it."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from deltalake import DeltaTable

from headwater.apps.home import Home
from headwater.errors import HeadwaterError
from headwater.log import Log
from headwater.services import Services, app_services
from headwater.spark.batch_offsets import source_offsets
from tests.chaos.app.declaration import NAME, lake_of
from tests.chaos.kills import Order, Strike
from tests.chaos.process import PROGRESS_SECONDS_MAX, Child, Stuck

#: At the end it must read the rows that were appended while it was killed and restarted.
CATCH_UP_SECONDS_MAX = 300.0
#: A version on trial with at most this lag can be switched to: the switch processes the rest.
LAG_ROWS_MAX = 3_000


class AppProcess(Child):
    """The app under load."""

    poll_seconds = 0.2  # reading its progress takes milliseconds

    def __init__(self, home: Path, log: Log, *, url: str | None) -> None:
        super().__init__(home, log)
        self.url = url
        self.app_home = Home(home / "log" / "apps" / NAME)

    def arguments(self) -> list[str]:
        url = [] if self.url is None else ["--url", self.url]
        return ["-m", "tests.chaos.app.child", str(self.home), *url]

    # -- progress -----------------------------------------------------------------------------------------------------

    def progress(self) -> tuple[int, ...]:
        return *(self.committed(name) for name in ("bills", "spend", "tiers")), self.archived()

    def query_id(self, name: str) -> str | None:
        topic = None if name == "archive" else name
        return self.app_home.query_id(name, self.app_home.versions(name, topic=topic).active.number)

    def committed(self, name: str) -> int:
        identity = self.query_id(name)
        return -1 if identity is None else self.log.committed_sequence(identity)

    def archived(self) -> int:
        """The last batch in the lake, -1 for none."""
        identity = self.query_id("archive")
        lake = lake_of(self.home)
        if identity is None or not DeltaTable.is_deltatable(str(lake)):
            return -1
        committed = DeltaTable(lake).transaction_version(identity)
        return -1 if committed is None else committed

    def has_read(self, name: str, topic: str) -> bool:
        """Whether a query has committed all rows of the topic that it reads."""
        identity = self.query_id(name)
        if name == "archive":
            sources = source_offsets(str(self.app_home.checkpoint(name, 1)), self.archived())
        else:
            metadata = None if identity is None else self.log.transaction_metadata(identity)
            sources = (metadata or {}).get("sources", [])
        ends = {str(partition): offset for partition, offset in self.log.end_offsets(topic).items()}
        return bool(sources) and sources[0]["topics"].get(topic) == ends

    def catch_up(self) -> None:
        """Wait until all queries have read everything, while no process appends."""
        for name, topic in (("bills", "orders"), ("spend", "orders"), ("tiers", "spend")):
            self.wait(lambda n=name, t=topic: self.has_read(n, t), f"{name} at the end", seconds=CATCH_UP_SECONDS_MAX)  # type: ignore[misc]
        goal = self.committed("bills") + 3  # the watermark follows a batch behind, in each of two operators
        self.wait(lambda: self.committed("bills") >= goal, "timers", seconds=CATCH_UP_SECONDS_MAX)
        self.wait(lambda: self.has_read("archive", "bills"), "the archive's end", seconds=CATCH_UP_SECONDS_MAX)

    # -- requests -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def services(self) -> Iterator[Services]:
        """The services of the app's process, as soon as it answers."""

        def answers() -> bool:
            try:
                with app_services(self.app_home) as services:
                    services.queries.statuses()
            except HeadwaterError:
                return False
            return True

        self.wait(answers, "an answer of the app", seconds=PROGRESS_SECONDS_MAX)
        with app_services(self.app_home) as services:
            yield services

    def rebuild(self, view: str) -> int:
        """Rebuild a view; return the version that is served then."""
        self.start()
        self.wait_for_batches(1)
        with self.services() as services:
            return services.views.rebuild(view).version

    def ask_to_rebuild(self, view: str) -> None:
        """Ask to rebuild a view, without waiting for an answer."""
        self.wait_for_batches(1)
        self._ask(lambda services: services.views.rebuild(view))

    def ask_to_switch(self, query: str) -> None:
        """Start a second version of a query on trial, and ask to switch to it once its lag is small."""
        if self.app_home.versions(query, topic=query).trial is None:
            with self.services() as services:
                services.queries.replay(query, version="v2")

        def near() -> bool:
            identity = self.app_home.query_id(query, 2)
            metadata = None if identity is None else self.log.transaction_metadata(identity)
            if not metadata:
                return False
            read: dict[str, int] = metadata["sources"][0]["topics"]["orders"]
            return sum(self.log.end_offsets("orders").values()) - sum(read.values()) <= LAG_ROWS_MAX

        self.wait(near, "the trial near the end", seconds=PROGRESS_SECONDS_MAX)
        self._ask(lambda services: services.queries.switch(query))

    def _ask(self, act: Callable[[Services], object]) -> None:
        with self.services():  # it answers now
            pass

        def ask() -> None:
            with contextlib.suppress(HeadwaterError), app_services(self.app_home) as services:
                act(services)  # the process is killed before it answers

        threading.Thread(target=ask, daemon=True).start()

    # -- restarts -----------------------------------------------------------------------------------------------------

    def hand_over(self, order: Order) -> tuple[Strike, float, float]:
        """Kill the process while a standby waits; return the seconds until the standby ran the app, and until it wrote."""
        self.start()
        self.wait_for_batches(1)
        standby = self.born([*self.arguments(), "--standby"])
        self.wait(
            lambda: f"life {self.lives}: waits" in self.said(), "a standby that waits", seconds=PROGRESS_SECONDS_MAX
        )
        strike = self.strike(order)
        began, before = time.monotonic(), self.progress()
        self._child = standby
        held = f"life {self.lives}: runs the app"
        self.wait(lambda: held in self.said(), "the standby to take over", seconds=PROGRESS_SECONDS_MAX)
        held_seconds = time.monotonic() - began
        self.wait(lambda: self.progress() > before, "a batch of the standby", seconds=PROGRESS_SECONDS_MAX)
        return strike, held_seconds, time.monotonic() - began

    def said(self) -> str:
        return (self.home / "driver.log").read_text(errors="replace")

    def stop(self) -> None:
        """Let the current batches and the process finish."""
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            code = self._child.wait(90)
        except subprocess.TimeoutExpired:
            raise Stuck("the app does not stop when it is asked to") from None
        if code != 0:
            raise Stuck(f"the app ended with code {code} when it was asked to stop")
