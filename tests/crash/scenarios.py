"""Scenarios of workloads: their topics, their writers, and the frequency of each act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.testing import SINK_CRASH_POINTS

TINY = 1_500
"""Bytes of a segment that a few appends fill."""
KEEP_SECONDS = 100.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The settings of a workload; `acts` has the frequency of each act."""

    name: str
    topics: Mapping[str, Mapping[str, Any]]
    acts: Mapping[str, int]
    writers: int = 1
    count: int = 30
    points: tuple[str, ...] = field(default=())


_APPEND = ("append.locked", "append.half", "append.written", "append.published")
_SYNC = ("sync.before", "sync.synced", "sync.published")
_ROLL = ("roll.synced", "roll.created", "roll.published")
_REWRITE = ("compaction.written", "compaction.published", "compaction.unlinked")
_RETENTION = ("retention.recorded", "retention.marked", "retention.unlinked")
_PREPARE = ("prepare.written", "prepare.published")
_COMMIT = (
    "commit.written",
    "commit.synced",
    "commit.recording",
    "commit.durable",
    "commit.copied",
    "commit.recorded",
    "commit.flipped",
    "commit.finished",
)

SCENARIOS = (
    Scenario(
        name="append",
        topics={"one": {}, "three": {"partitions": 3}, "keyed": {"partitions": 3, "key": "key"}},
        acts={"append": 8, "idempotent": 8, "flush": 2, "punctuate": 1, "wide": 1},
        points=_APPEND + _SYNC,
    ),
    Scenario(
        name="group commit",
        topics={"one": {}, "two": {"partitions": 2, "segment_bytes_max": 6 * TINY}},
        acts={"append": 4, "idempotent": 6, "flush": 1},
        writers=4,
        count=12,
        points=_APPEND + _SYNC + _ROLL,
    ),
    Scenario(
        name="os",
        topics={"one": {"durability": "os"}, "two": {"durability": "os", "partitions": 2, "segment_bytes_max": TINY}},
        acts={"append": 4, "idempotent": 6, "wide": 1, "maintain": 1},
        writers=2,
        count=20,
        points=_APPEND + _ROLL + _REWRITE,
    ),
    Scenario(
        name="roll",
        topics={"one": {"segment_bytes_max": TINY}, "two": {"partitions": 2, "segment_bytes_max": 3 * TINY}},
        acts={"append": 6, "idempotent": 10, "wide": 4, "maintain": 1, "punctuate": 1},
        writers=2,
        count=25,
        points=_ROLL + _REWRITE + _APPEND,
    ),
    Scenario(
        name="retention",
        topics={
            "ring": {"segment_bytes_max": TINY, "retention": f"{KEEP_SECONDS:.0f} seconds"},
            "small": {"segment_bytes_max": TINY, "retention": f"{4 * TINY} B", "partitions": 2},
        },
        acts={"append": 4, "idempotent": 10, "advance": 4, "maintain": 2},
        count=40,
        points=_RETENTION + _ROLL,
    ),
    Scenario(
        name="archive",
        topics={
            "kept": {"segment_bytes_max": TINY, "retention": f"{KEEP_SECONDS:.0f} seconds", "archive": True},
            "kept2": {"segment_bytes_max": TINY, "retention": f"{4 * TINY} B", "partitions": 2, "archive": True},
        },
        acts={"append": 4, "idempotent": 10, "advance": 4, "maintain": 2},
        count=40,
        points=_RETENTION + _ROLL,
    ),
    Scenario(
        name="compaction",
        topics={
            "table": {"key": "key", "compact": True, "segment_bytes_max": TINY},
            "table2": {"key": "key", "compact": True, "segment_bytes_max": 2 * TINY, "partitions": 2},
            "old": {"key": "key", "compact": True, "segment_bytes_max": TINY, "tombstone_seconds_max": 50},
        },
        acts={"append": 4, "idempotent": 10, "advance": 2, "maintain": 3},
        count=40,
        points=_REWRITE + _ROLL,
    ),
    Scenario(
        name="transactions",
        topics={
            "a": {},
            "b": {"partitions": 2, "segment_bytes_max": 2 * TINY},
            "c": {"segment_bytes_max": TINY, "durability": "os"},
            "table": {"key": "key", "compact": True, "segment_bytes_max": 2 * TINY},
        },
        acts={"transaction": 10, "numbered": 10, "append": 3, "idempotent": 3, "offsets": 1, "maintain": 1},
        writers=2,
        count=15,
        points=_COMMIT + _APPEND + ("offsets.appended",),
    ),
    Scenario(
        name="prepare",
        topics={"a": {}, "b": {"partitions": 2, "segment_bytes_max": 2 * TINY}, "c": {"segment_bytes_max": TINY}},
        acts={"prepare": 12, "numbered": 3, "append": 2, "transaction": 2},
        count=25,
        points=_PREPARE + _COMMIT,
    ),
    Scenario(
        name="staged",
        topics={
            "a": {},
            "b": {"partitions": 2, "segment_bytes_max": 2 * TINY},
            "keyed": {"partitions": 2, "key": "key"},
        },
        acts={"staged": 12, "numbered": 3, "append": 2, "maintain": 1},
        writers=2,
        count=12,
        points=(*SINK_CRASH_POINTS, *_COMMIT),
    ),
    Scenario(
        name="offsets",
        topics={"a": {"partitions": 2}, "b": {}},
        acts={"offsets": 12, "append": 3, "numbered": 4, "maintain offsets": 2},
        writers=2,
        count=20,
        points=("offsets.appended", *_COMMIT, *_REWRITE),
    ),
    Scenario(
        name="topics",
        topics={"a": {}},
        acts={"create": 8, "delete": 4, "append": 4, "new append": 6, "maintain": 1},
        count=25,
        points=("topic.made", "topic.published", "topic.marked", "topic.buried", *_APPEND),
    ),
    Scenario(
        name="everything",
        topics={
            "a": {"segment_bytes_max": TINY},
            "b": {"partitions": 2, "segment_bytes_max": 2 * TINY},
            "c": {"durability": "os", "segment_bytes_max": TINY},
            "table": {"key": "key", "compact": True, "segment_bytes_max": TINY},
            "ring": {"segment_bytes_max": TINY, "retention": f"{KEEP_SECONDS:.0f} seconds"},
        },
        acts={
            "append": 4,
            "idempotent": 8,
            "wide": 1,
            "flush": 1,
            "transaction": 4,
            "numbered": 4,
            "prepare": 3,
            "offsets": 3,
            "advance": 2,
            "maintain": 2,
            "create": 1,
            "delete": 1,
            "punctuate": 1,
        },
        writers=3,
        count=16,
        points=_APPEND + _SYNC + _ROLL + _REWRITE + _RETENTION + _PREPARE + _COMMIT,
    ),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
