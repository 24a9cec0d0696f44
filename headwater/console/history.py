"""What was measured in the last half hour: rates of topics, lag of groups, how queries did. Kept in memory, bounded."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headwater.errors import HeadwaterError
from headwater.log.embedded import local_log
from headwater.log.port import Lag

if TYPE_CHECKING:
    from headwater.apps.status import QueryStatus
    from headwater.log import Log
    from headwater.services.queries import Queries

Kind = Literal["topic", "group", "query", "view"]
LOOK_SECONDS = 2.0
POINTS_MAX = 900
#: Looking may take up to this share of the time; with ten thousand topics we look less often.
SHARE_MAX = 0.1
SERIES_MAX = 20_000
#: Up to so many topics, each of them is looked at each time, and has a point in its lines for each look.
DENSE_TOPICS_MAX = 500
#: Beyond that, a topic whose files have not changed is measured once in so many rounds: only compaction changes its size.
TURNS = 60
#: A file that was written more recently than this is not believed to stay as it is.
TICK_NS = 4_000_000_000
#: What is measured less recently than this, and than a few looks take, is not of now.
STALE_SECONDS = 15.0

logger = logging.getLogger("headwater.console")


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic as it was last looked at."""

    name: str
    partitions: int
    rows: int
    bytes: int
    offset_next: int
    appended_at_us: int | None
    rate: float = 0.0
    """Rows a second since the look before."""


class History:
    """Looks at the log and the apps every now and then, from a thread of its own."""

    def __init__(self, log: Log, queries: Queries) -> None:
        self._log = log
        self._queries = queries
        self._series: dict[tuple[Kind, str, str], deque[tuple[float, float]]] = {}
        self._stop = threading.Event()
        self._looked = threading.Condition()
        self._thread: threading.Thread | None = None
        self._before: dict[str, tuple[float, int]] = {}
        self._states: dict[str, tuple[Path, tuple[int, int]]] = {}
        self._turn = 0
        self.topics: dict[str, TopicStatus] = {}
        self.lags: list[Lag] = []
        self.statuses: list[QueryStatus] = []
        self.silent: list[str] = []
        """The apps that run, but did not answer when they were last asked."""
        self.rates: deque[tuple[float, float]] = deque(maxlen=POINTS_MAX)
        """Rows a second of all topics together, oldest first; our own topics are not counted."""
        self.looked_at: float = 0.0
        """When the last look ended, in seconds since 1970; 0 before the first."""
        self._whole_at = time.monotonic()
        self._pause = LOOK_SECONDS

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="headwater-history", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def wait(self, *, seconds: float = 5.0) -> None:
        """Wait for the first look; pages that come before it would be empty."""
        with self._looked:
            self._looked.wait_for(lambda: self.looked_at > 0, timeout=seconds)

    def series(self, kind: Kind, name: str, measure: str, *, points: int = POINTS_MAX) -> list[tuple[float, float]]:
        """Times in seconds since 1970, and values; oldest first.

        Topics have `rate`, `bytes` and `rows`; groups `lag` and `lag_seconds`; queries `rate`, `lag`, `batch_ms`, `state_rows`,
        `state_bytes`, `late`, `watermark_delay` and `busy`, and `phase.…` for the parts of their last batch.
        """
        found = self._series.get((kind, name, measure), ())
        with contextlib.suppress(RuntimeError):  # it grew while we copied
            return list(found)[-points:]
        return list(found)[-points:]

    def values(self, kind: Kind, name: str, measure: str, *, points: int = 40) -> list[float]:
        return [value for _, value in self.series(kind, name, measure, points=points)]

    # -- looking ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            self.look()
            pause = self._pause

    def look(self) -> None:
        """Look once, now."""
        began = time.monotonic()
        went_well = [self._looked_at(part) for part in (self._look_at_topics, self._look_at_groups)]
        # Apps of other processes are only waited for; that costs this machine nothing.
        self._pause = max(LOOK_SECONDS, (time.monotonic() - began) / SHARE_MAX)
        went_well.append(self._looked_at(self._look_at_queries))
        if all(went_well):
            self._whole_at = time.monotonic()
        with self._looked:
            self.looked_at = time.time()
            self._looked.notify_all()

    @staticmethod
    def _looked_at(part: Callable[[], None]) -> bool:
        try:
            part()
        except (HeadwaterError, OSError):  # deleted while we looked; the next look knows it
            return False
        # Whatever it is, the thread goes on: without it every page would stand still.
        except Exception:
            logger.exception("the console could not look")
            return False
        return True

    def stale_seconds(self) -> float:
        """How old the numbers are where that is more than it should be; else 0."""
        age = time.monotonic() - self._whole_at
        return age if age > max(STALE_SECONDS, 3 * self._pause) else 0.0

    def _look_at_topics(self) -> None:
        """Describe what has changed since the last look; of all else, a few in turn. So ten thousand topics stay cheap."""
        names = self._log.topics(internal=True)
        is_dense = len(names) <= DENSE_TOPICS_MAX
        found = {}
        for place, name in enumerate(names):
            if self._stop.is_set():
                return
            with contextlib.suppress(HeadwaterError, OSError):
                is_due = is_dense or place % TURNS == self._turn
                known = self.topics.get(name)
                if known is None or is_due or known.rate or self._has_changed(name):
                    found[name] = self._topic(name, is_dense=is_dense)
                else:
                    found[name] = known
        gone = self.topics.keys() - found.keys()
        for name in gone:
            self._before.pop(name, None)
            self._states.pop(name, None)
        self._forget("topic", gone)
        self._note_total(found)
        self._turn = (self._turn + 1) % TURNS
        self.topics = found

    def _has_changed(self, name: str) -> bool:
        """Whether the file in which a topic keeps its ends was written since, by whichever process."""
        path, signature = self._states[name]
        now = _signature(path)
        # Clocks of file systems tick slowly: what was written a moment ago may be written again in the same tick.
        return now != signature or time.time_ns() - now[1] < TICK_NS

    def _topic(self, name: str, *, is_dense: bool) -> TopicStatus:
        path = local_log(self._log).handle(name).state.path
        self._states[name] = path, _signature(path)  # first: what is written while we look is seen by the next look
        described, now = self._log.describe(name), time.time()
        end = sum(one.offset_next for one in described.partitions)
        before, end_before = self._before.get(name, (now, end))
        rate = max(0.0, (end - end_before) / (now - before)) if now > before else 0.0
        self._before[name] = (now, end)
        appended = [one.appended_at_us for one in described.partitions if one.appended_at_us is not None]
        if is_dense or rate or ("topic", name, "rate") in self._series:
            self._note("topic", name, now, {"rate": rate, "bytes": described.bytes, "rows": described.rows})
        return TopicStatus(
            name=name,
            partitions=len(described.partitions),
            rows=described.rows,
            bytes=described.bytes,
            offset_next=end,
            appended_at_us=max(appended) if appended else None,
            rate=rate,
        )

    def _look_at_groups(self) -> None:
        self.lags, now = self._log.groups.lag(), time.time()
        totals: dict[str, tuple[int, float]] = {}
        for lag in self.lags:
            for name in (lag.group, f"{lag.group}/{lag.topic}"):
                rows, seconds = totals.get(name, (0, 0.0))
                totals[name] = (rows + lag.rows, max(seconds, lag.seconds))
        self._forget("group", {name for kind, name, _ in tuple(self._series) if kind == "group"} - totals.keys())
        for name, (rows, seconds) in totals.items():
            self._note("group", name, now, {"lag": rows, "lag_seconds": seconds})

    def _look_at_queries(self) -> None:
        found, now = self._queries.statuses(), time.time()
        self.statuses, self.silent = found.queries, found.silent
        names = series_names(self.statuses)
        for one, name in zip(self.statuses, names, strict=True):
            values = {
                "busy": one.busy,
                "rate": one.rows_per_second,
                "lag": float(one.lag_rows or 0),
                "state_rows": one.state_rows,
                "state_bytes": one.state_bytes,
                "late": one.late,
                "batch_ms": one.batch_ms or 0.0,
            }
            if one.watermark_us is not None:
                values["watermark_delay"] = max(0.0, now - one.watermark_us / 1e6)
            values |= {f"phase.{phase}": value for phase, value in one.phases_ms.items()}
            self._note("query", name, now, values)
        # An app that comes back goes on with its lines; one that stays away is forgotten with the last of their points.
        last = now - POINTS_MAX * LOOK_SECONDS
        queries = {
            name for (kind, name, _), line in tuple(self._series.items()) if kind == "query" and line[-1][0] < last
        }
        self._forget("query", queries - set(names))

    def _note_total(self, topics: dict[str, TopicStatus]) -> None:
        """Rows a second of all topics together, so that no page has to add up the lines of ten thousand."""
        total = sum(one.rate for one in topics.values() if not one.name.startswith("__"))
        self.rates.append((time.time(), total))

    def _forget(self, kind: Kind, names: Set[str]) -> None:
        """Drop the lines of what is gone: there is room for so many, and others want theirs."""
        if names:
            for key in [one for one in tuple(self._series) if one[0] == kind and one[1] in names]:
                self._series.pop(key, None)

    def _note(self, kind: Kind, name: str, now: float, values: dict[str, float]) -> None:
        for measure, value in values.items():
            key = (kind, name, measure)
            if key not in self._series:
                if len(self._series) >= SERIES_MAX:
                    continue
                self._series[key] = deque(maxlen=POINTS_MAX)
            self._series[key].append((now, float(value)))


def series_names(statuses: Iterable[QueryStatus]) -> list[str]:
    """Under which name the series of each query stand: its own, and a longer one where another has that already.

    A version on trial comes after the one in use; another app may have a query of the same name.
    """
    owners: dict[str, str] = {}
    names: dict[str, None] = {}
    for one in statuses:
        name = one.name if owners.setdefault(one.name, one.app) == one.app else f"{one.app}/{one.name}"
        names[name if name not in names else f"{name} v{one.version}"] = None
    return list(names)


def _signature(path: Path) -> tuple[int, int]:
    """Which file this is, and when it was written last."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns


def lag_by(lags: Iterable[Lag], field: Literal["group", "topic"]) -> dict[str, int]:
    """Rows behind, summed by group or by topic."""
    found: dict[str, int] = {}
    for lag in lags:
        name = getattr(lag, field)
        found[name] = found.get(name, 0) + lag.rows
    return found
