"""What each partition of a topic holds, and who reads the topic."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from headwater.console.parts.table import Column, Row, Table, link, toned
from headwater.console.parts.words import ago, count, size, span
from headwater.log.port import Lag, PartitionInfo

#: From so many rows behind on, a number is marked.
BEHIND_MANY = 10_000


class PartitionTable:
    """One line for each partition."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._table = Table(
            [
                Column(name="Partition"),
                Column(name="First offset", align="right"),
                Column(name="Next offset", align="right"),
                Column(name="Rows", align="right"),
                Column(name="Size", align="right"),
                Column(name="Files", align="right"),
                Column(name="Last row", align="right"),
            ],
            label="Partitions",
        )

    def set(self, partitions: Sequence[PartitionInfo]) -> None:
        self._table.set_rows([self._row(one) for one in partitions])

    def _row(self, one: PartitionInfo) -> Row:
        path = f"/console/topics/{quote(self._topic, safe='')}/browse?partition={one.partition}"
        cells = [
            link(f"Partition {one.partition}", path),
            str(one.offset_start),
            str(one.offset_next),
            count(one.rows),
            size(one.bytes),
            count(one.segments),
            ago(one.appended_at_us),
        ]
        return Row(cells, key=one.partition)


class ReaderTable:
    """One line for each group that reads a topic, the one furthest behind first."""

    def __init__(self) -> None:
        self._table = Table(
            [
                Column(name="Group"),
                Column(name="Behind, rows", align="right"),
                Column(name="Behind, time", align="right"),
                Column(name="Members", align="right"),
            ],
            label="Groups that read this topic",
            none="No group reads this topic.",
        )

    def set(self, lags: Sequence[Lag]) -> None:
        groups: dict[str, list[Lag]] = {}
        for lag in lags:
            groups.setdefault(lag.group, []).append(lag)
        worst = sorted(groups.items(), key=lambda item: (-sum(lag.rows for lag in item[1]), item[0]))
        self._table.set_rows([_reader(group, found) for group, found in worst])


def _reader(group: str, lags: Sequence[Lag]) -> Row:
    rows, members = sum(lag.rows for lag in lags), {lag.member for lag in lags if lag.member}
    silent = [lag for lag in lags if lag.committed is None]
    told = "no commit yet" if len(silent) == len(lags) else ""
    cells = [
        link(group, f"/console/groups/{quote(group, safe='')}"),
        toned(count(rows), "warn" if rows > BEHIND_MANY else "", under=told),
        span(max((lag.seconds for lag in lags), default=0.0)) if rows else "–",
        count(len(members)),
    ]
    return Row(cells, key=group)
