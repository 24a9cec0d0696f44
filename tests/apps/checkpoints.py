"""Checkpoints as Spark writes them: `offsets/N` before a batch, `commits/N` after it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

#: Batches that Spark keeps.
KEPT = 100
Topics = Mapping[str, Mapping[int, int]]


def plan_batch(
    folder: Path, number: int, *sources: Topics, began: Topics | None = None, at: float | None = None
) -> None:
    """Write the offsets where a batch ends, one line for each source."""
    lines = ["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})]
    for topics in sources:
        body = {"topics": _texts(topics), "ids": dict.fromkeys(topics, ""), "at_us": 0}
        lines.append(json.dumps(body | ({"began": _texts(began)} if began else {})))
    _write(folder / "offsets", number, lines, at)


def commit_batch(folder: Path, number: int, *, watermark_ms: int = 0, at: float | None = None) -> None:
    """Write the commit of a planned batch, and delete what is older than Spark keeps."""
    _write(folder / "commits", number, ["v1", json.dumps({"nextBatchWatermarkMs": watermark_ms})], at)
    for kind in ("offsets", "commits"):
        (folder / kind / str(number - KEPT)).unlink(missing_ok=True)


def _texts(topics: Topics) -> dict[str, dict[str, int]]:
    return {topic: {str(number): offset for number, offset in found.items()} for topic, found in topics.items()}


def _write(folder: Path, number: int, lines: list[str], at: float | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / str(number)
    path.write_text("\n".join(lines))
    if at is not None:
        os.utime(path, (at, at))
