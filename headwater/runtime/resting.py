"""What is known of an app that nobody runs: its queries, as their last run has left them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headwater.errors import TopicNotFound
from headwater.log import EmbeddedLog
from headwater.runtime.home import Home
from headwater.runtime.status import Kind, QueryStatus


def resting(home: Home, log: EmbeddedLog) -> list[QueryStatus]:
    """The queries that have ever begun, all of them stopped, with how far behind they are by now."""
    folder = home.path / "queries"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [_status(home, log, name) for name in names]


def _status(home: Home, log: EmbeddedLog, name: str) -> QueryStatus:
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


def _output(log: EmbeddedLog, name: str) -> tuple[Kind, str | None]:
    try:
        return ("view", name) if log.topic(name).compact else ("topic", name)
    except TopicNotFound:
        return "sink", None


def _last_batch(checkpoint: Path) -> tuple[int | None, dict[str, dict[str, int]]]:
    """The number of the last batch that was committed, and the offsets at which it ended."""
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


def _lag(log: EmbeddedLog, sources: dict[str, dict[str, int]]) -> int | None:
    behind = 0
    for topic, read in sources.items():
        try:
            ends = log.end_offsets(topic)
        except TopicNotFound:
            return None
        behind += sum(max(0, end - read.get(str(partition), 0)) for partition, end in ends.items())
    return behind if sources else None
