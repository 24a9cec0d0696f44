"""Named crash points: every durable step passes one, so that a test can end a process exactly there.

In production `reach` is one global look-up. A test installs a hook (see `headwater.testing`) that may kill a process,
raise, or count. The log lists its own points; those of a streaming query's batch outside of the log stand here. The
names are the contract: a test proves that each one is reached.
"""

from __future__ import annotations

from collections.abc import Callable

#: In the order in which a batch passes them.
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

#: Those of putting dead letters back; the transaction between the last two passes the log's own.
LETTER_CRASH_POINTS = ("letters.chosen", "letters.before_commit", "letters.committed")

#: Those of a batch on its way into a sink other than a topic; each sink passes the ones that it has.
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

#: Those of a view's transaction in its store.
VIEW_CRASH_POINTS = ("view.deleted", "view.before_commit", "view.committed", "view.before_switch")

#: Those of a batch of an App: before it, with its topic written, and with its sinks written.
APP_CRASH_POINTS = ("app.batch", "app.topic_written", "app.sinks_written")

#: Those of a switch from one version of a query to the next.
REPLAY_CRASH_POINTS = ("replay.stopped", "replay.met", "replay.switching", "replay.corrected", "replay.switched")

#: Those of a look at alert rules, and of telling somebody.
ALERT_CRASH_POINTS = ("alerts.decided", "alerts.written", "alerts.sent")

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
