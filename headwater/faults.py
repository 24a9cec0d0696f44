"""Named crash points: every durable step passes one, so that a test can kill a process exactly there.

In production `reach` is one global look-up. A test installs a hook (see `headwater.testing`) that kills the process,
raises, or counts. The names are the contract: a test proves that each one is reached.
"""

from __future__ import annotations

from collections.abc import Callable

#: Points of the log.
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

#: Points of a backup and of a restore: the partitions cut, their files copied, and all of it complete under another name.
BACKUP_CRASH_POINTS = ("backup.cut", "backup.copied", "backup.complete", "restore.copied", "restore.moved")

#: Points of a log on Kafka: rows are staged; a transaction's rows are sent, its offsets too, and it is committed; a
#: transaction's rows are written, it is prepared, and its rows are committed but its record is not.
KAFKA_CRASH_POINTS = (
    "kafka.staged",
    "kafka.sent",
    "kafka.committing",
    "kafka.committed",
    "kafka.preparing",
    "kafka.prepared",
    "kafka.resolving",
)

#: Points of a transaction of a mirror: rows and places are in it, and it is committed.
MIRROR_CRASH_POINTS = ("mirror.before_commit", "mirror.committed")

#: Points of a queue: the end of a delivery is in the journal, and the index does not have it yet.
QUEUE_CRASH_POINTS = ("queue.journal_written", "queue.dead_letters_written")

#: Points of commands of entities: their events are appended or committed, and not in the index.
SOURCING_CRASH_POINTS = ("sourcing.appended", "sourcing.committed", "sourcing.indexing")

#: Points of a saga: events are decided, and the commands that they ask for are done.
SAGA_CRASH_POINTS = ("saga.decided", "saga.sent")

#: Points of an erasure: the keys are taken away, and not destroyed before the last but one.
ERASURE_CRASH_POINTS = (
    "erasure.begun",
    "erasure.projections_cleared",
    "erasure.topics_rewritten",
    "erasure.derived",
    "erasure.searched",
    "erasure.destroyed",
)

#: Points of a batch of the topic sink, in its tasks and its driver.
SINK_CRASH_POINTS = ("stage.written", "stage.finished", "sink.before_commit", "sink.committed")

#: Points of a batch of a streaming query, in order.
QUERY_CRASH_POINTS = (
    "source.planned",
    "source.timed",
    "source.read",
    "engine.before_lookup",
    "side.written",
    "engine.before_save",
    "run.written",
    "run.merged",
    "manifest.before",
    "manifest.written",
    "engine.saved",
)

#: Points of a batch that finds its state cut into another number of partitions.
RESCALE_CRASH_POINTS = ("state.recut",)

#: Points of a redrive of dead letters; the transaction between the last two passes those of the log.
LETTER_CRASH_POINTS = ("letters.chosen", "letters.before_commit", "letters.committed")

#: Points of a batch of a sink other than a topic; each sink passes some of them.
DELIVERY_CRASH_POINTS = (
    "delivery.before",
    "delivery.written",
    "delivery.letters",
    "delivery.sent",
    "delivery.committed",
    "delivery.between",
    "lake.staged",
    "lake.committed",
    "lake.compacted",
    "lake.vacuumed",
    "parquet.published",
)

#: Points of a transaction over a log and a database: which side has prepared and committed, and that of its resolution.
TWO_PHASE_CRASH_POINTS = (
    "two_phase.log_prepared",
    "two_phase.prepared",
    "two_phase.log_committed",
    "two_phase.committed",
    "two_phase.log_resolved",
)

#: Points of a piece of a capture: rows and position staged, appended, and acknowledged to the database.
CAPTURE_CRASH_POINTS = ("capture.staged", "capture.appended", "capture.acknowledged")

#: Points of a step of a gateway that tails files: rows and positions about to be committed, and committed.
TAIL_CRASH_POINTS = ("tail.before_commit", "tail.committed")

#: Points of the answers to webhooks: they have come, and attempts and dead letters are appended, but not the position.
WEBHOOK_CRASH_POINTS = ("webhook.answered", "webhook.recorded")

#: Points of a step of a sync: changes written in the target, about to be committed, committed; and those of a rebuild.
TARGET_CRASH_POINTS = ("target.written", "target.before_commit", "target.committed", "target.before_switch")

#: Points of a view's transaction in its store.
VIEW_CRASH_POINTS = ("view.deleted", "view.before_commit", "view.committed", "view.before_switch")

#: Points of a batch of an app: before it, after its topic was written, and after its sinks were written.
APP_CRASH_POINTS = ("app.batch", "app.topic_written", "app.sinks_written")

#: Points of a switch from one version of a query to the next.
REPLAY_CRASH_POINTS = ("replay.stopped", "replay.met", "replay.switching", "replay.corrected", "replay.switched")

#: Points of an evaluation of alert rules, and of sending a notification.
ALERT_CRASH_POINTS = ("alerts.decided", "alerts.written", "alerts.sent")

_hook: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Call the hook, if there is one: this process has reached `point`."""
    if _hook is not None:
        _hook(point)


def install(hook: Callable[[str], None] | None) -> None:
    """Call `hook` at every point from now on; None removes it."""
    global _hook
    _hook = hook


def watched() -> bool:
    """Whether a hook is installed: writers then write in two halves, so that a crash can tear a frame."""
    return _hook is not None
