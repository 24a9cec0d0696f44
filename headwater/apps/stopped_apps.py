"""The queries of an app that no process runs, as their last run has left them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater.apps.home import Home
from headwater.apps.status import Kind, QueryStatus
from headwater.errors import NotFound
from headwater.log import Log


def stopped_queries(home: Home, log: Log) -> list[QueryStatus]:
    """Return the status of each query that has ever started, with its lag by now. All of them are stopped."""
    folder = home.path / "queries"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [_status(home, log, name) for name in names]


def _status(home: Home, log: Log, name: str) -> QueryStatus:
    kind, output = _output(log, name)
    version = home.versions(name, topic=output).active
    batch, sources = _last_batch(home.checkpoint(name, version.number))
    return QueryStatus(
        name=name,
        kind=kind,
        state="stopped",
        version=version.number,
        inputs=tuple(sources),
        outputs=() if output is None else (output,),
        batch=batch,
        lag_rows=_lag(log, sources),
    )


def _output(log: Log, name: str) -> tuple[Kind, str | None]:
    try:
        return ("view", name) if log.topic(name).compact else ("topic", name)
    except NotFound:
        return "sink", None


def _last_batch(checkpoint: Path) -> tuple[int | None, dict[str, dict[str, int]]]:
    """Return the number of the last committed batch, and the offsets at which it ended."""
    commits = checkpoint / "commits"
    numbers = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.is_dir() else []
    if not numbers:
        return None, {}
    sources: dict[str, dict[str, int]] = {}
    for line in (checkpoint / "offsets" / str(max(numbers))).read_text().splitlines()[2:]:
        sources |= _topics(line)
    return max(numbers), sources


def _topics(line: str) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except ValueError:
        return {}
    return dict(body.get("topics", {})) if isinstance(body, dict) else {}


def _lag(log: Log, sources: dict[str, dict[str, int]]) -> int | None:
    behind = 0
    for topic, read in sources.items():
        try:
            ends = log.end_offsets(topic)
        except NotFound:
            return None
        behind += sum(max(0, end - read.get(str(partition), 0)) for partition, end in ends.items())
    return behind if sources else None
