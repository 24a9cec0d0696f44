"""How far a query has read, as Spark keeps it in the checkpoint, and how far its next batch may go. Pure functions.

An offset is JSON: `topics` has the first offset not yet read of each partition, `ids` says which topics these are (one
deleted and made again under the same name is another), `at_us` is the processing time of the batch, `began` has where
partitions begin that were first seen in this batch, `times` and `promised` what is known of event time up to there. What a batch reads follows from its two offsets alone, so that a
replayed batch reads the same rows, whatever has happened since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from headwater.engine.event_time import NEVER
from headwater.spark.errors import SourceChanged

Offsets = dict[str, dict[int, int]]
"""Topic → partition → offset."""
EventTimes = dict[str, dict[int, tuple[int, int]]]
"""Topic → partition → (latest event time, processing time when it was seen), in microseconds."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One offset of a stream."""

    topics: Offsets = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    at_us: int = 0
    began: Offsets = field(default_factory=dict)
    #: How many punctuations stand at the end of each partition and were told; only where punctuations are read.
    told: Offsets = field(default_factory=dict)
    #: How far questions to the query were read, by partition of their topic; only where it can be asked.
    asked: dict[int, int] = field(default_factory=dict)
    #: The latest event time of each partition, and the processing time when it was seen.
    times: EventTimes = field(default_factory=dict)
    #: The latest time of each partition before which no row follows, as punctuations promise.
    promised: Offsets = field(default_factory=dict)
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """The form in the checkpoint. The same progress is always the same text, for Spark compares text."""
        if self.initial:
            return {"initial": True}
        body: dict[str, Any] = {"topics": _to_json(self.topics), "ids": dict(sorted(self.ids.items()))}
        body["at_us"] = self.at_us
        if self.began:
            body["began"] = _to_json(self.began)
        if self.told:
            body["told"] = _to_json(self.told)
        if self.times:
            body["times"] = _to_json(self.times)
        if self.promised:
            body["promised"] = _to_json(self.promised)
        if self.asked:
            body["asked"] = {str(partition): offset for partition, offset in sorted(self.asked.items())}
        return body

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Progress:
        """Read what `to_json` wrote.

        >>> Progress.from_json(Progress(topics={"orders": {0: 7}}, at_us=1).to_json()).topics
        {'orders': {0: 7}}
        """
        if body.get("initial"):
            return Progress(initial=True)
        if "topics" not in body or "ids" not in body:
            raise SourceChanged(topic="", why="the checkpoint is of another kind of source")
        return Progress(
            topics=_from_json(body["topics"]),
            ids=dict(body["ids"]),
            at_us=int(body.get("at_us", 0)),
            began=_from_json(body.get("began", {})),
            told=_from_json(body.get("told", {})),
            asked={int(partition): int(offset) for partition, offset in body.get("asked", {}).items()},
            times={
                topic: {int(number): (int(latest), int(at)) for number, (latest, at) in found.items()}
                for topic, found in body.get("times", {}).items()
            },
            promised=_from_json(body.get("promised", {})),
        )

    def places(self) -> dict[str, tuple[int, int, int]]:
        """What is known of event time by topic and partition: the latest, when it was seen, and what was promised.

        >>> Progress(topics={"orders": {0: 8}}, times={"orders": {0: (7, 9)}}, promised={"orders": {0: 5}}).places()
        {'orders/0': (7, 9, 5)}
        """
        found = {}
        for topic, offsets in self.topics.items():
            for number in offsets:
                latest_us, at_us = self.times.get(topic, {}).get(number, (NEVER, self.at_us))
                found[f"{topic}/{number}"] = (latest_us, at_us, self.promised.get(topic, {}).get(number, NEVER))
        return found


# Any: offsets, or times.
def _to_json(offsets: Mapping[str, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    return {
        topic: {str(partition): positions[partition] for partition in sorted(positions)}
        for topic, positions in sorted(offsets.items())
    }


def _from_json(body: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(number): int(offset) for number, offset in found.items()} for topic, found in body.items()}


def ranges(start: Progress, end: Progress) -> dict[tuple[str, int], tuple[int, int]]:
    """The rows between two offsets: (topic, partition) → first offset, and the first one behind.

    >>> ranges(Progress(topics={"a": {0: 3}}), Progress(topics={"a": {0: 5, 1: 2}}, began={"a": {1: 0}}))
    {('a', 0): (3, 5), ('a', 1): (0, 2)}
    """
    found = {}
    for topic, stops in end.topics.items():
        for partition, stop in stops.items():
            first = start.topics.get(topic, {}).get(partition, 0)
            found[topic, partition] = (end.began.get(topic, {}).get(partition, first), stop)
    return found


def admit(
    start: Offsets,
    end: Offsets,
    *,
    rows_max: int | None,
    row_bytes: Mapping[str, float],
    bytes_max: int | None,
    steps: Mapping[str, float] | None = None,
) -> Offsets:
    """How far a batch may go: up to `end`, or less where that is more than the limits allow.

    Each partition gets its share by how much waits there, so that all are caught up at the same time. `steps` says how
    many offsets a row of a topic takes; one by default.

    >>> admit({"a": {0: 0, 1: 0}}, {"a": {0: 900, 1: 100}}, rows_max=100, row_bytes={}, bytes_max=None)
    {'a': {0: 90, 1: 10}}
    >>> admit({"a": {0: 0}}, {"a": {0: 9_000}}, rows_max=3, row_bytes={}, bytes_max=None, steps={"a": 1_000})
    {'a': {0: 3000}}
    """
    step = (steps or {}).get
    waiting = {
        (topic, partition): stop - start.get(topic, {}).get(partition, 0)
        for topic, stops in end.items()
        for partition, stop in stops.items()
    }
    share = 1.0
    rows = sum(count / step(topic, 1.0) for (topic, _), count in waiting.items())
    if rows_max is not None and rows > rows_max:
        share = rows_max / rows
    size = sum(count / step(topic, 1.0) * row_bytes.get(topic, 0.0) for (topic, _), count in waiting.items())
    if bytes_max is not None and size * share > bytes_max:
        share = bytes_max / size
    if share >= 1.0:
        return end
    taken = _shares(waiting, share)
    return {
        topic: {
            partition: stop - waiting[topic, partition] + taken[topic, partition] for partition, stop in stops.items()
        }
        for topic, stops in end.items()
    }


def _shares(waiting: Mapping[tuple[str, int], int], share: float) -> dict[tuple[str, int], int]:
    """So many rows of each, and what rounding leaves to those that it cost most."""
    # At least one row of each: a share that rounds to nothing would stand still for as long as others grow.
    taken = {place: min(count, max(1, int(count * share))) for place, count in waiting.items()}
    left = int(sum(waiting.values()) * share) - sum(taken.values())
    for place in sorted(waiting, key=lambda place: taken[place] - waiting[place] * share)[: max(0, left)]:
        taken[place] += taken[place] < waiting[place]
    return taken


def split(start: int, stop: int, count: int) -> list[tuple[int, int]]:
    """A range in so many consecutive parts of about equal size.

    >>> split(10, 20, 3)
    [(10, 13), (13, 16), (16, 20)]
    """
    count = max(1, min(count, stop - start))
    edges = [start + (stop - start) * number // count for number in range(count + 1)]
    return list(pairwise(edges))


def parts(
    wanted: Mapping[tuple[str, int], tuple[int, int]], partitions_min: int, *, empty: bool = False
) -> list[tuple[str, int, int, int, int]]:
    """What each task reads: (topic, partition, start, stop, number of the part), large ranges in several parts.

    With `empty`, partitions without new rows have a part, too: there may be punctuations.

    >>> parts({("a", 0): (0, 90), ("a", 1): (0, 10)}, 3)
    [('a', 0, 0, 30, 0), ('a', 0, 30, 60, 1), ('a', 0, 60, 90, 2), ('a', 1, 0, 10, 0)]
    """
    filled = {place: edges for place, edges in wanted.items() if edges[0] < edges[1] or empty}
    rows = sum(stop - start for start, stop in filled.values())
    found = []
    for (topic, partition), (start, stop) in filled.items():
        count = 1
        if rows and len(filled) < partitions_min:
            count = max(1, round(partitions_min * (stop - start) / rows))
        for number, (first, last) in enumerate(split(start, stop, count)):
            found.append((topic, partition, first, last, number))
    return found


# Any: a progress report is Spark's own object, or the JSON of one.
def lag_of(progress: Any) -> dict[str, int]:
    """The rows that wait in each topic after a batch, by `query.lastProgress` or one that a listener got.

    Sources that are not Headwater's are left out.

    >>> source = {"endOffset": {"topics": {"orders": {"0": 5}}}, "latestOffset": {"topics": {"orders": {"0": 7, "1": 3}}}}
    >>> lag_of({"sources": [source]})
    {'orders': 5}
    """
    if progress is None:
        return {}
    body = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    lag: dict[str, int] = {}
    for source in body.get("sources", []):
        read, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for topic, ends in latest.items():
            behind = sum(max(0, end - read.get(topic, {}).get(number, 0)) for number, end in ends.items())
            lag[topic] = max(lag.get(topic, 0), behind)
    return lag


# Any: as above.
def rows_read(progress: Any) -> int:
    """How many rows lay in what a batch has read, by offsets: also those that were combined before Spark saw any.

    >>> rows_read({"sources": [{"startOffset": {"topics": {"orders": {"0": 5}}}, "endOffset": {"topics": {"orders": {"0": 9}}}}]})
    4
    """
    body = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    rows = 0
    for source in body.get("sources", []):
        end = source.get("endOffset")
        end = json.loads(end) if isinstance(end, str) else end
        began = end.get("began") if isinstance(end, Mapping) else None
        start = _offsets(source.get("startOffset"))
        for topic, offsets in _offsets(end).items():
            for number, stop in offsets.items():
                first = start.get(topic, {}).get(number, (began or {}).get(topic, {}).get(number, 0))
                rows += max(0, stop - first)
    return rows


def _offsets(found: Any) -> dict[str, dict[str, int]]:
    if isinstance(found, str):
        found = json.loads(found)
    topics = found.get("topics") if isinstance(found, Mapping) else None
    return dict(topics) if isinstance(topics, Mapping) else {}
