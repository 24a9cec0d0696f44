"""The maintenance of views: one thread follows the changelogs of all views and brings their rows into the store.

It waits in the log until a changelog has more, and then applies what is there in few transactions: the further a view
is behind, the more rows each one has. A view that cannot go on is kept with its problem and tried again from time to
time, and the others go on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError, NotFound, did_you_mean
from headwater.log import Log, Offsets
from headwater.views.changelog import MaintainedView, catch_up, producers_sources
from headwater.views.spec import Sources, ViewSpec
from headwater.views.store import ViewStore

if TYPE_CHECKING:
    from headwater.views.view import View


#: How long a sleep may take before metadata of transactions without rows is looked at, and a stop is seen.
LOOK_SECONDS = 0.25
#: The same while a reader waits for its own write: a transaction without rows wakes no reader.
LOOK_SECONDS_WAITED_FOR = 0.01
RETRY_SECONDS = 1.0
#: After work the keeper rests for a multiple of the time that it took, so that readers have the machine for the most
#: part, and rows that come meanwhile share a transaction. A reader that waits for its own write ends the rest.
REST_SHARE = 3.0
REST_SECONDS_MAX = 0.05


class ViewKeeper:
    """Keeps views up to date, and serves them: `keeper.views["spend"].get(card=42)`.

    `derived` names the queries that write topics which are no views, so that a reader's own write is followed through
    them too. With `read_only`, what the store holds is served as it is, and nothing is applied.
    """

    def __init__(
        self,
        log: Log,
        store: ViewStore,
        *,
        clock: Clock | None = None,
        derived: Mapping[str, tuple[str, ...]] | None = None,
        rest_seconds_max: float = REST_SECONDS_MAX,
        read_only: bool = False,
    ) -> None:
        self.log = log
        self.store = store
        self.clock = clock or SystemClock()
        self.derived = dict(derived or {})
        self._rest_seconds_max = rest_seconds_max
        self._hurry = threading.Event()
        self._kept: dict[tuple[str, int], MaintainedView] = {}
        self._lock = threading.RLock()
        self._applied = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._waiters = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._read_only = read_only
        if read_only:
            self._kept = {
                (one.spec.name, one.spec.version): MaintainedView(
                    spec=one.spec, active=one.active, position=one.position
                )
                for one in store.stored()
            }

    # -- which views --------------------------------------------------------------------------------------------------

    def add(self, spec: ViewSpec) -> View:
        """Keep a version of a view from now on. The first one is served; a later one is when `switch` says so."""
        with self._lock:
            stored = self.store.declare(spec)
            known = self._kept.get((spec.name, spec.version))
            self._kept[spec.name, spec.version] = MaintainedView(
                spec=stored.spec,
                active=stored.active,
                position=stored.position,
                rows_applied=known.rows_applied if known else 0,
            )
        self.tell()
        return self.view(spec.name)

    def remove(self, name: str, *, version: int | None = None, drop: bool = False) -> None:
        """Keep a view no longer; with `drop`, forget its rows too. Its changelog stays."""
        with self._lock:
            self._check_known(name)
            for key in [key for key in self._kept if key[0] == name and version in (None, key[1])]:
                del self._kept[key]
            if drop:
                self.store.drop(name, version)
        self.tell()

    def switch(self, name: str, version: int) -> None:
        """Serve another version of a view, which has been kept beside the one in use."""
        with self._lock:
            self._check_known(name)
            if (name, version) not in self._kept:
                raise NotFound(kind="view", name=f"{name}@{version}")
            self.store.activate(name, version)
            for (other, number), maintained in self._kept.items():
                if other == name:
                    maintained.active = number == version
        self.tell()

    @property
    def views(self) -> Mapping[str, View]:
        """The views that are served now, by name."""
        return {name: self.view(name) for name in self.names()}

    def names(self) -> list[str]:
        return sorted({maintained.spec.name for maintained in list(self._kept.values()) if maintained.active})

    def view(self, name: str) -> View:
        """One view by its name."""
        from headwater.views.view import View

        self._check_known(name)
        return View(self, name)

    def maintained(self, name: str, version: int | None = None) -> MaintainedView:
        """Where a view stands now: the version that is served, or another one."""
        for maintained in list(self._kept.values()):
            if maintained.spec.name == name and (
                maintained.active if version is None else maintained.spec.version == version
            ):
                return maintained
        raise self._unknown(name)

    def versions(self, name: str) -> list[MaintainedView]:
        return [maintained for (other, _), maintained in sorted(self._kept.items()) if other == name]

    @property
    def problems(self) -> dict[str, Exception]:
        """What keeps views from going on, by the table's name."""
        return {one.spec.table: one.problem for one in list(self._kept.values()) if one.problem is not None}

    def _check_known(self, name: str) -> None:
        if not any(other == name for other, _ in list(self._kept)):
            raise self._unknown(name)

    def _unknown(self, name: str) -> NotFound:
        return NotFound(kind="view", name=name, near=did_you_mean(name, self.names()))

    # -- keeping ------------------------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Bring all views up to the present ends of their changelogs; the first problem is raised after all others."""
        self._pass(retry=True)
        for problem in self.problems.values():
            raise problem

    def start(self) -> None:
        """Follow the changelogs in a thread of its own."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="headwater-views", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; what it has begun, it finishes."""
        if self._thread is not None:
            self._stopping.set()
            self._hurry.set()
            self._thread.join()
            self._thread = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            if self._pass():
                self._rest(REST_SHARE * (time.monotonic() - began))
            else:
                self._sleep()

    def _rest(self, seconds: float) -> None:
        if not self._waiters:
            self._hurry.clear()
            self._hurry.wait(min(seconds, self._rest_seconds_max))

    def _sleep(self) -> None:
        positions = {
            maintained.spec.topic: dict(maintained.position.offsets)
            for maintained in sorted(self._kept.values(), key=lambda one: one.active)
            if maintained.problem is None and maintained.position.offsets
        }
        seconds = LOOK_SECONDS_WAITED_FOR if self._waiters else LOOK_SECONDS
        try:
            if positions:
                self.log.wait(positions, seconds=seconds)
            else:
                self._stopping.wait(seconds)
        except HeadwaterError:  # a topic was deleted: the next pass says so of its view
            self._stopping.wait(seconds)

    def _pass(self, *, retry: bool = False) -> bool:
        changed = False
        for key in list(self._kept) if not self._read_only else ():
            with self._lock:
                maintained = self._kept.get(key)
                if maintained is None or (
                    maintained.problem is not None and not retry and time.monotonic() < maintained.retry_at
                ):
                    continue
                changed |= self._keep(maintained)
        return changed

    def _keep(self, maintained: MaintainedView) -> bool:
        try:
            changed = catch_up(self.log, self.store, maintained, clock=self.clock, told=self.tell)
        # One view's trouble must not stop the others: it is kept with the view, shown, and raised to readers that wait.
        except Exception as error:
            if isinstance(error, NotFound) and error.kind == "topic":
                return False  # its query has not written yet
            maintained.problem, maintained.retry_at = error, time.monotonic() + RETRY_SECONDS
            self.tell()
            return False
        if maintained.problem is not None:
            maintained.problem = None
            self.tell()
        return changed

    # -- telling readers ----------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Wake all readers that wait for a change."""
        with self._applied:
            self._applied.notify_all()
        for listener in list(self._listeners):
            listener()

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Have a function called, from the keeper's thread, whenever something has changed. It must be quick."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def wait_for(self, condition: Callable[[], bool], *, deadline: float) -> bool:
        """Sleep until a condition on the views holds; False when the time (monotonic) is over."""
        with self._waiting():
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if not self.running:
                    self._pass()
                with self._applied:
                    if not condition():
                        self._applied.wait(min(left, LOOK_SECONDS_WAITED_FOR))
            return True

    def wait_for_change(self, condition: Callable[[], bool], *, seconds: float | None) -> bool:
        """Sleep until a condition on what has been applied holds; nothing but a change is looked at."""
        with self._applied:
            return self._applied.wait_for(condition, timeout=seconds)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        with self._applied:
            self._waiters += 1
        self._hurry.set()
        try:
            yield
        finally:
            with self._applied:
                self._waiters -= 1

    # -- where topics come from ---------------------------------------------------------------------------------------

    def sources_of_topic(self, topic: str) -> Sources | None:
        """What the queries that write a topic reflect by now; None for a topic that no query writes."""
        producers = self.derived.get(topic, ())
        for maintained in list(self._kept.values()):
            if maintained.spec.topic == topic:
                producers += maintained.spec.producers
        return producers_sources(self.log, tuple(dict.fromkeys(producers))) if producers else None

    def end_offsets(self, topic: str) -> Offsets:
        return self.log.end_offsets(topic)
