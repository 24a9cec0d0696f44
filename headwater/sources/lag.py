"""How far a query is behind, from what Spark reports of its batches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


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
