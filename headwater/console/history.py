"""Measurements of the last half hour: rates of topics, lag of groups, progress of queries, depth of queues.

In memory, and bounded. With a store they survive a restart, at a distance of ten seconds instead of two.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from headwater.console.kit.gaps import gaps
from headwater.console.topics.use import TopicKind, kind_of, written_topics
from headwater.errors import HeadwaterError
from headwater.log.port import Lag
from headwater.queues.journal import SUFFIX as JOURNAL

if TYPE_CHECKING:
    from headwater.apps.status import QueryStatus
    from headwater.console.history_store import HistoryStore, Key
    from headwater.log import Log
    from headwater.services.captures import Captures, CaptureStatus
    from headwater.services.gateways import Gateways, GatewayStatus
    from headwater.services.queries import Queries
    from headwater.services.queues import Queues, QueueStatus
    from headwater.services.syncs import Syncs, SyncStatus

Kind = Literal["topic", "group", "query", "capture", "queue", "gateway", "sync", "log"]
#: The series of all inputs together.
TOTAL: tuple[Kind, str, str] = ("log", "", "rate")
INTERVAL_SECONDS = 2.0
POINTS_MAX = 900
#: Measuring may take up to this share of the time; with ten thousand topics it is done less often.
SHARE_MAX = 0.1
SERIES_MAX = 20_000
#: Up to so many topics, each of them is measured in every round, and its series get a point each time.
DENSE_TOPICS_MAX = 500
#: Beyond that, a topic whose files have not changed is measured once in so many rounds: only compaction changes its size.
ROUNDS = 60
#: A file that was written more recently than this may be written again with the same time.
TICK_NS = 4_000_000_000
#: Measurements that are older than this, and than a few rounds take, are not current.
STALE_SECONDS = 15.0
#: How long `stop` waits for the round that is under way.
STOP_SECONDS_MAX = 3.0

logger = logging.getLogger("headwater.console")


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic as it was last measured."""

    name: str
    partitions: int
    rows: int
    bytes: int
    appended_at_us: int | None
    rate: float = 0.0
    """Rows a second since the measurement before."""


class History:
    """Measures the log and the apps every two seconds, in a thread of its own."""

    def __init__(
        self,
        log: Log,
        queries: Queries,
        captures: Captures | None = None,
        gateways: Gateways | None = None,
        syncs: Syncs | None = None,
        queues: Queues | None = None,
        *,
        store: HistoryStore | None = None,
    ) -> None:
        self._log = log
        self._captures = captures
        self._captures_due = 0.0
        self._gateways = gateways
        self._syncs = syncs
        self._syncs_due = 0.0
        self._queues = queues
        self._queues_before: dict[str, tuple[float, dict[str, int]]] = {}
        self._queries = queries
        self._store = store
        self._thread: threading.Thread | None = None
        self._series: dict[tuple[Kind, str, str], deque[tuple[float, float]]] = {}
        self._stop = threading.Event()
        self._measured = threading.Condition()
        self._before: dict[str, tuple[float, int]] = {}
        self._states: dict[str, tuple[Path, tuple[int, int]] | None] = {}
        self._round = 0
        self.topics: dict[str, TopicStatus] = {}
        self.lags: list[Lag] = []
        self.statuses: list[QueryStatus] = []
        self.captures: list[CaptureStatus] = []
        self.gateways: list[GatewayStatus] = []
        self.syncs: list[SyncStatus] = []
        self.queues: list[QueueStatus] = []
        self._journals: Set[str] = frozenset()
        self.running: list[str] = []
        """The apps that run, as far as they answered."""
        self.silent: list[str] = []
        """The apps that run, but did not answer when they were last asked."""
        self._written: dict[str, TopicKind] = {}
        self._restored_topics: Set[str] = frozenset()
        """Topics with restored series, until the first round tells which of them still exist."""
        self.rates: deque[tuple[float, float]] = deque(maxlen=POINTS_MAX)
        """Rows a second of all inputs together, oldest first. What queries write comes from them, and is not counted."""
        self.measured_at: float = 0.0
        """When the last round ended, in seconds since 1970; 0 before the first."""
        self._whole_at = time.monotonic()
        self._pause = INTERVAL_SECONDS

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="headwater-history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:  # it saves the last measurements, unless an app that it asks does not answer
            self._thread.join(STOP_SECONDS_MAX)

    def wait(self, *, seconds: float = 5.0) -> None:
        """Wait for the first round; a page that is opened before would be empty."""
        with self._measured:
            self._measured.wait_for(lambda: self.measured_at > 0, timeout=seconds)

    def series(self, kind: Kind, name: str, measure: str, *, points: int = POINTS_MAX) -> list[tuple[float, float]]:
        """Times in seconds since 1970, and values; oldest first.

        Topics have `rate`, `bytes` and `rows`; groups `lag` and `lag_seconds`; queries `rate`, `lag`, `batch_ms`, `state_rows`,
        `state_bytes`, `late`, `watermark_delay` and `busy`, and `phase.…` for the parts of their last batch; captures `rate`, `delay`,
        `pending` and `retained`, and `table.…` for the rates of their tables; gateways the rates of their counters by name; syncs `rate`,
        `delay` and `pending`; groups of queues, named `queue/group`, `depth`, `oldest`, `in_flight` and `scheduled`, and the rates
        `delivered`, `redelivered` and `acknowledged`.
        """
        series = self._series.get((kind, name, measure), ())
        with contextlib.suppress(RuntimeError):  # it grew during the copy
            return list(series)[-points:]
        return list(series)[-points:]

    def values(self, kind: Kind, name: str, measure: str, *, points: int = 40) -> list[float]:
        """The last values, as far as there is no gap between them."""
        return [value for _, value in unbroken(self.series(kind, name, measure, points=points))]

    def kind(self, topic: str) -> TopicKind:
        """What kind a topic is."""
        return "internal" if topic in self._journals else kind_of(topic, self._written)

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        self._succeeds(self.restore)
        while not self._stop.wait(pause):
            self._measure_round()
            pause = self._pause
        self._succeeds(lambda: self._save(last=True))
        if self._store is not None:
            self._store.close()

    def restore(self) -> None:
        """Take over what the store has of the last half hour, from before a restart."""
        if self._store is None:
            return
        points = self._store.load(since=time.time() - POINTS_MAX * INTERVAL_SECONDS)
        self.rates.extend(points.pop(TOTAL, []))
        for (kind, name, measure), line in points.items():
            if kind in get_args(Kind) and len(self._series) < SERIES_MAX:
                self._series[cast("Kind", kind), name, measure] = deque(line, maxlen=POINTS_MAX)
        self._restored_topics = {name for kind, name, _ in self._series if kind == "topic"}

    def _save(self, *, last: bool = False) -> None:
        if self._store is not None:
            series: dict[Key, Sequence[tuple[float, float]]] = dict(self._series.items())
            self._store.save(series | {TOTAL: self.rates}, now=time.time(), last=last)

    def measure(self) -> None:
        """Measure everything once, now, also what would be asked less often because it answers slowly."""
        self._captures_due = self._syncs_due = 0.0
        self._measure_round()

    def _measure_round(self) -> None:
        # First, because queries say which topics are inputs. Waiting for apps of other processes costs this machine
        # nothing, so it does not count.
        went_well = [self._succeeds(self._measure_queries), self._succeeds(self._measure_captures)]
        went_well += [self._succeeds(self._measure_gateways), self._succeeds(self._measure_syncs)]
        began = time.monotonic()
        parts = (self._measure_queues, self._measure_topics, self._measure_groups)
        went_well += [self._succeeds(part) for part in parts]
        self._pause = max(INTERVAL_SECONDS, (time.monotonic() - began) / SHARE_MAX)
        if all(went_well):
            self._whole_at = time.monotonic()
        self._succeeds(self._save)
        with self._measured:
            self.measured_at = time.time()
            self._measured.notify_all()

    @staticmethod
    def _succeeds(part: Callable[[], None]) -> bool:
        try:
            part()
        except (HeadwaterError, OSError):  # something was deleted meanwhile; the next round knows it
            return False
        # Whatever the error is, the thread continues: without it no page would be updated.
        except Exception:
            logger.exception("the console could not measure")
            return False
        return True

    def stale_seconds(self) -> float:
        """The age of the measurements if they are not current; else 0."""
        age = time.monotonic() - self._whole_at
        return age if age > max(STALE_SECONDS, 3 * self._pause) else 0.0

    def _measure_topics(self) -> None:
        """Describe the topics that have changed, and of the others a part in each round. So ten thousand topics stay cheap."""
        names = self._log.topics(internal=True)
        is_dense = len(names) <= DENSE_TOPICS_MAX
        topics = {}
        for place, name in enumerate(names):
            if self._stop.is_set():
                return
            with contextlib.suppress(HeadwaterError, OSError):
                is_due = is_dense or place % ROUNDS == self._round
                known = self.topics.get(name)
                if known is None or is_due or known.rate or self._has_changed(name):
                    topics[name] = self._topic(name, is_dense=is_dense)
                else:
                    topics[name] = known
        gone = (self.topics.keys() | self._restored_topics) - topics.keys()
        self._restored_topics = frozenset()
        for name in gone:
            self._before.pop(name, None)
            self._states.pop(name, None)
        self._forget("topic", gone)
        # Added up once, so that no page has to add up the series of ten thousand topics.
        total = sum(topic.rate for name, topic in topics.items() if self.kind(name) == "input")
        if self.measured_at:  # in the first round no rate is known
            self.rates.append((time.time(), total))
        self._round = (self._round + 1) % ROUNDS
        self.topics = topics

    def _has_changed(self, name: str) -> bool:
        """Whether any process has written the state file of a topic, which holds its end offsets, since it was described."""
        known = self._states[name]
        if known is None:
            return True
        now = _signature(known[0])
        # Clocks of file systems tick slowly: a file may be written twice with the same time.
        return now != known[1] or time.time_ns() - now[1] < TICK_NS

    def _topic(self, name: str, *, is_dense: bool) -> TopicStatus:
        paths = self._log.row_watch({name: {}}).paths
        # First: the next round sees what is written meanwhile.
        self._states[name] = (paths[0], _signature(paths[0])) if paths else None
        described, now = self._log.describe(name), time.time()
        end = sum(partition.offset_next for partition in described.partitions)
        is_new = name not in self._before
        before, end_before = self._before.get(name, (now, end))
        rate = max(0.0, (end - end_before) / (now - before)) if now > before else 0.0
        self._before[name] = (now, end)
        appended = [part.appended_at_us for part in described.partitions if part.appended_at_us is not None]
        if is_dense or rate or ("topic", name, "rate") in self._series:
            values: dict[str, float] = {"bytes": described.bytes, "rows": described.rows}
            self._note("topic", name, now, values if is_new else {"rate": rate, **values})
        return TopicStatus(
            name=name,
            partitions=len(described.partitions),
            rows=described.rows,
            bytes=described.bytes,
            appended_at_us=max(appended, default=None),
            rate=rate,
        )

    def _measure_groups(self) -> None:
        self.lags, now = self._log.groups.lag(), time.time()
        totals: dict[str, tuple[int, float]] = {}
        for lag in self.lags:
            for name in (lag.group, f"{lag.group}/{lag.topic}"):
                rows, seconds = totals.get(name, (0, 0.0))
                totals[name] = (rows + lag.rows, max(seconds, lag.seconds))
        self._forget("group", {name for kind, name, _ in tuple(self._series) if kind == "group"} - totals.keys())
        for name, (rows, seconds) in totals.items():
            self._note("group", name, now, {"lag": rows, "lag_seconds": seconds})

    def _measure_queries(self) -> None:
        answer, now = self._queries.statuses(), time.time()
        self.statuses, self.running, self.silent = answer.queries, answer.running, answer.silent
        self._written = written_topics(self.statuses)
        names = series_names(self.statuses)
        for status, name in zip(self.statuses, names, strict=True):
            values = {
                "busy": status.busy,
                "rate": status.rows_per_second,
                "state_rows": status.state_rows,
                "state_bytes": status.state_bytes,
                "late": status.late,
            }
            if status.lag_rows is not None:
                values["lag"] = float(status.lag_rows)
            if status.batch_ms is not None:
                values["batch_ms"] = status.batch_ms
            if status.watermark_us is not None:
                values["watermark_delay"] = max(0.0, now - status.watermark_us / 1e6)
            values |= {f"phase.{phase}": value for phase, value in status.phases_ms.items()}
            self._note("query", name, now, values)
        # The series of an app that restarts continue; those of an app that does not are dropped when their last point is old.
        last = now - POINTS_MAX * INTERVAL_SECONDS
        queries = {
            name for (kind, name, _), line in tuple(self._series.items()) if kind == "query" and line[-1][0] < last
        }
        self._forget("query", queries - set(names))

    def _measure_captures(self) -> None:
        began = time.monotonic()
        if self._captures is None or began < self._captures_due:
            return
        self.captures = self._captures.list_captures()
        # A database that does not answer is asked less often.
        self._captures_due = time.monotonic() + (time.monotonic() - began) / SHARE_MAX
        now = time.time()
        for one in self.captures:
            values = {"rate": one.rows_per_second}
            if one.delay_seconds is not None:
                values["delay"] = one.delay_seconds
            if one.pending is not None:
                values["pending"] = float(one.pending)
            if one.retained_bytes is not None:
                values["retained"] = float(one.retained_bytes)
            values |= {f"table.{table.table}": table.rows_per_second for table in one.tables}
            self._note("capture", one.name, now, values)
        known = {name for kind, name, _ in tuple(self._series) if kind == "capture"}
        self._forget("capture", known - {one.name for one in self.captures})

    def _measure_syncs(self) -> None:
        began = time.monotonic()
        if self._syncs is None or began < self._syncs_due:
            return
        self.syncs = self._syncs.list_syncs()
        # A target that does not answer is asked less often.
        self._syncs_due = time.monotonic() + (time.monotonic() - began) / SHARE_MAX
        now = time.time()
        for one in self.syncs:
            values = {"rate": one.rows_per_second}
            if one.delay_seconds is not None:
                values["delay"] = one.delay_seconds
            if one.pending is not None:
                values["pending"] = float(one.pending)
            self._note("sync", one.name, now, values)
        known = {name for kind, name, _ in tuple(self._series) if kind == "sync"}
        self._forget("sync", known - {one.name for one in self.syncs})

    def _measure_gateways(self) -> None:
        if self._gateways is None:
            return
        self.gateways = self._gateways.list_gateways()
        now = time.time()
        for one in self.gateways:
            self._note("gateway", one.name, now, dict(one.per_second))
        known = {name for kind, name, _ in tuple(self._series) if kind == "gateway"}
        self._forget("gateway", known - {one.name for one in self.gateways})

    def _measure_queues(self) -> None:
        if self._queues is None:
            return
        self.queues, now = self._queues.list_queues(), time.time()
        self._journals = {queue.name + JOURNAL for queue in self.queues}
        known: dict[str, tuple[float, dict[str, int]]] = {}
        for queue in self.queues:
            for group in queue.groups:
                name, stats = f"{queue.name}/{group.name}", group.stats
                counters = {"delivered": stats.delivered, "redelivered": stats.redelivered}
                counters["acknowledged"] = stats.acknowledged
                known[name] = (now, counters)
                values = {"depth": stats.depth, "in_flight": stats.in_flight, "scheduled": stats.scheduled}
                rates = {"oldest": stats.oldest_seconds or 0.0}
                if name in self._queues_before:
                    before, counted = self._queues_before[name]
                    passed = max(now - before, 1e-3)
                    rates |= {one: max(0.0, (counters[one] - counted[one]) / passed) for one in counters}
                self._note("queue", name, now, {**values, **rates})
        self._queues_before = known
        self._forget("queue", {name for kind, name, _ in tuple(self._series) if kind == "queue"} - known.keys())

    def _forget(self, kind: Kind, names: Set[str]) -> None:
        """Drop the series of what no longer exists: their number is bounded."""
        if names:
            for key in [key for key in tuple(self._series) if key[0] == kind and key[1] in names]:
                self._series.pop(key, None)

    def _note(self, kind: Kind, name: str, now: float, values: dict[str, float]) -> None:
        for measure, value in values.items():
            key = (kind, name, measure)
            if key not in self._series:
                if len(self._series) >= SERIES_MAX:
                    continue
                self._series[key] = deque(maxlen=POINTS_MAX)
            self._series[key].append((now, float(value)))


def unbroken(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The last points, back to the first gap between them.

    >>> unbroken([(0.0, 7), (100.0, 1), (102.0, 2), (104.0, 3)])
    [(100.0, 1), (102.0, 2), (104.0, 3)]
    """
    first = max(gaps(points), default=0)
    return list(points[first:])


def series_names(statuses: Iterable[QueryStatus]) -> list[str]:
    """The name of each query's series: its own, or a longer one where another query has that name already.

    A version on trial comes after the active one; another app may have a query of the same name.
    """
    owners: dict[str, str] = {}
    names: dict[str, None] = {}
    for status in statuses:
        name = (
            status.name if owners.setdefault(status.name, status.app) == status.app else f"{status.app}/{status.name}"
        )
        names[name if name not in names else f"{name} v{status.version}"] = None
    return list(names)


def _signature(path: Path) -> tuple[int, int]:
    """The identity of a file, and when it was written last."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns


def lag_by(lags: Iterable[Lag], field: Literal["group", "topic"]) -> dict[str, int]:
    """Lag in rows, summed by group or by topic."""
    rows: dict[str, int] = {}
    for lag in lags:
        name = getattr(lag, field)
        rows[name] = rows.get(name, 0) + lag.rows
    return rows
