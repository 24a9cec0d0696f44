"""The crash points of the log: every durable step of it passes one. See `headwater.faults`.

The names listed here are the contract: a test proves that each one is reached.
"""

from __future__ import annotations

from headwater.faults import install, reach, watched

__all__ = ["CRASH_POINTS", "SINK_CRASH_POINTS", "install", "reach", "watched"]

CRASH_POINTS = (
    "append.locked",
    "append.half",
    "append.written",
    "append.published",
    "sync.before",
    "sync.synced",
    "sync.published",
    "roll.synced",
    "roll.created",
    "roll.published",
    "retention.recorded",
    "retention.marked",
    "retention.unlinked",
    "compaction.written",
    "compaction.published",
    "compaction.unlinked",
    "prepare.written",
    "prepare.published",
    "commit.written",
    "commit.synced",
    "commit.recording",
    "commit.durable",
    "commit.copied",
    "commit.recorded",
    "commit.flipped",
    "commit.finished",
    "offsets.appended",
    "topic.made",
    "topic.published",
    "topic.marked",
    "topic.buried",
)

#: Those of a sink's batch: reached by its tasks and its driver, which the crash tests of the log alone do not have.
SINK_CRASH_POINTS = ("stage.written", "stage.finished", "sink.before_commit", "sink.committed")
