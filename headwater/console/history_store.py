"""Measurements of the last half hour in the internal topic `__console_history`, so that charts survive a restart.

The process with the leader lock writes a round every ten seconds: first a row that says when it was, then the values that
have changed since the round before. A value that was not measured any more is null. Every five minutes a round has all
values, so that a reader can begin there. Between two rounds nothing is known: where there is no round, there is no point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headwater.filelock import LeaderLock
from headwater.home import is_server
from headwater.log import Retention, Topic
from headwater.schema import parse_schema
from headwater.units import HOUR, MIB

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Log

HISTORY_TOPIC = "__console_history"
ROUND_SECONDS = 10.0
#: A round has all values when the last such round is older than this.
WHOLE_SECONDS = 300.0
RETENTION = Retention(seconds_max=HOUR, bytes_max=64 * MIB)
_ROUND = "round"
_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, kind string not null, name string not null, measure string not null, value float64"
)

#: The kind of what was measured, its name, and the measure.
Key = tuple[str, str, str]
#: Times in seconds since 1970, and values.
Points = list[tuple[float, float]]


class HistoryStore:
    """Writes and reads the measurements of a log.

    >>> import tempfile, headwater
    >>> with tempfile.TemporaryDirectory() as folder, headwater.open(folder) as log:
    ...     now = log.clock.now_us() / 1e6
    ...     HistoryStore(log).save({("group", "billing", "lag"): [(now, 7.0)]}, now=now)
    ...     [value for _, value in HistoryStore(log).load(since=now - 60)["group", "billing", "lag"]]
    [7.0]
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = LeaderLock(log.home / "server" / "console-history.lock")
        self._saved: dict[Key, float] = {}
        self._saved_at = 0.0
        self._whole_at = 0.0

    # -- writing ------------------------------------------------------------------------------------------------------

    def save(self, series: Mapping[Key, Sequence[tuple[float, float]]], *, now: float, last: bool = False) -> None:
        """Write a round if one is due, or in any case (`last`). Only one process writes."""
        is_due = last or now - self._saved_at >= ROUND_SECONDS
        if not is_due or self._log.read_only or is_server(self._log.address) or not self._lock.acquire():
            return
        is_whole = now - self._whole_at >= WHOLE_SECONDS
        values = dict(self._values(series))
        changed: dict[Key, float | None] = {
            key: value for key, value in values.items() if is_whole or self._saved.get(key) != value
        }
        if not is_whole:
            changed |= dict.fromkeys(self._saved.keys() - values.keys())
        rows = [(_ROUND, "", "", 1.0 if is_whole else 0.0), *((*key, value) for key, value in changed.items())]
        self._append(rows, now=now)
        self._saved, self._saved_at = values, now
        if is_whole:
            self._whole_at = now

    def _values(self, series: Mapping[Key, Sequence[tuple[float, float]]]) -> Iterator[tuple[Key, float]]:
        """One value of each series for this round: of rates the mean since the round before, of others the last."""
        for key, points in series.items():
            if not points or key[:2] == ("topic", HISTORY_TOPIC):  # it grows by each round, by which it would grow
                continue
            new = [value for at, value in points if at > self._saved_at]
            if new:
                yield key, sum(new) / len(new) if key[2] == "rate" else new[-1]
            elif key[0] == "topic" and key in self._saved:  # of many topics only those that change are measured
                yield key, self._saved[key]

    def _append(self, rows: Sequence[tuple[str, str, str, float | None]], *, now: float) -> None:
        import pyarrow as pa

        kinds, names, measures, values = zip(*rows, strict=True)
        times = pa.array([round(now * 1e6)] * len(rows), pa.timestamp("us", tz="UTC"))
        columns = [times, pa.array(kinds), pa.array(names), pa.array(measures), pa.array(values, pa.float64())]
        self._make()
        self._log.append(HISTORY_TOPIC, pa.table(columns, schema=_SCHEMA))

    def _make(self) -> None:
        topic = Topic(
            name=HISTORY_TOPIC,
            id="a3c50" + "0" * 27,
            schema=_SCHEMA,
            created_us=self._log.clock.now_us(),
            retention=RETENTION,
            durability="os",
            segment_bytes_max=8 * MIB,
        )
        self._log.create_internal(topic)

    def close(self) -> None:
        """Let another process write."""
        self._lock.release()

    # -- reading ------------------------------------------------------------------------------------------------------

    def load(self, *, since: float) -> dict[Key, Points]:
        """The points of all series since a time, as far as they were written."""
        if not self._log.topics(HISTORY_TOPIC, internal=True):
            return {}
        start = datetime.fromtimestamp(since - WHOLE_SECONDS - ROUND_SECONDS, UTC)
        reader = self._log.read(HISTORY_TOPIC, start=start, columns=["at", "kind", "name", "measure", "value"])
        series: dict[Key, Points] = {}
        current: dict[Key, float] = {}
        at = 0.0
        for batch in reader.batches():
            columns = [column.to_pylist() for column in batch.data.select(_SCHEMA.names).columns]
            for time_of_row, kind, name, measure, value in zip(*columns, strict=True):
                if kind == _ROUND:
                    _add_round(series, current, at, since=since)
                    at, current = time_of_row.timestamp(), {} if value else current
                elif value is None:
                    current.pop((kind, name, measure), None)
                else:
                    current[kind, name, measure] = value
        _add_round(series, current, at, since=since)
        return series


def _add_round(series: dict[Key, Points], values: Mapping[Key, float], at: float, *, since: float) -> None:
    if at >= since:
        for key, value in values.items():
            series.setdefault(key, []).append((at, value))
