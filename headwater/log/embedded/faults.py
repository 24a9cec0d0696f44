"""Named crash points: every durable step passes one, so that a test can end the process exactly there.

In production `reach` is one global look-up. A test installs a hook (see `headwater.testing`) that may kill the
process, raise, or count. The names listed here are the contract: a test proves that each one is reached.
"""

from __future__ import annotations

from collections.abc import Callable

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

_hook: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Say that this process has come to `point`."""
    if _hook is not None:
        _hook(point)


def install(hook: Callable[[str], None] | None) -> None:
    """Let `hook` see every point from now on; None takes it away."""
    global _hook
    _hook = hook


def watched() -> bool:
    """Whether a hook is installed: writers then go in two halves, so that a torn frame can be provoked."""
    return _hook is not None
