"""Captures as pages show them: states in colours, snapshots as bars, and what is not captured yet."""

from __future__ import annotations

from typing import Any

from headwater.console.kit.layout import meter
from headwater.console.kit.table import drawn, toned
from headwater.console.kit.words import count, size, span
from headwater.services.captures import CapturedTable, CaptureStatus

#: A delay that is longer than this is shown in colour; see the explanation of delay.
SLOW_SECONDS = 60.0
TONES = {
    "new": "info",
    "snapshot": "accent",
    "streaming": "good",
    "paused": "",
    "restarting": "warn",
    "at risk": "bad",
    "unreachable": "bad",
}
#: States from the worst to the best.
_WORST_FIRST = ("at risk", "unreachable", "restarting", "paused", "snapshot", "new", "streaming")


def badness(status: CaptureStatus) -> tuple[int, float, str]:
    """The order of captures, those that need attention first."""
    return _WORST_FIRST.index(status.state), -(status.delay_seconds or 0.0), status.name


def delay_tone(status: CaptureStatus) -> str:
    """The colour of a delay."""
    return "" if status.delay_seconds is None or status.delay_seconds <= SLOW_SECONDS else "warn"


def pending_of(status: CaptureStatus) -> str:
    """How much is not captured yet.

    >>> pending_of(CaptureStatus(name="shop", url="", state="streaming", envelope="flat", pending=2048, pending_unit="byte"))
    '2.0 KiB'
    """
    if status.pending is None:
        return "–"
    return size(status.pending) if status.pending_unit == "byte" else count(status.pending)


def runs(status: CaptureStatus) -> str:
    """Which program runs a capture."""
    if not status.running:
        return "no process"
    return f"app {status.app}" if status.app else "headwater capture run"


def snapshot_share(status: CaptureStatus) -> float | None:
    """How much of all snapshots together is read; None if nothing is known yet, and 1 if all are complete."""
    if not status.tables:
        return None
    expected = sum(table.snapshot_rows_expected or 0 for table in status.tables)
    if all(table.snapshot_complete for table in status.tables):
        return 1.0
    done = sum(min(table.snapshot_rows, table.snapshot_rows_expected or 0) for table in status.tables)
    return done / expected if expected else None


# Any: a cell.
def snapshot_cell(table: CapturedTable) -> Any:
    """The snapshot of a table: complete, or a bar with the time left."""
    if table.snapshot_complete:
        return toned("complete", "good", under=f"{count(table.snapshot_rows)} rows")
    share = table.snapshot_share
    if share is None:
        return toned("begun", "quiet", under=f"{count(table.snapshot_rows)} rows")
    left = "" if table.snapshot_seconds_left is None else f", {span(table.snapshot_seconds_left)} left"
    return drawn(
        f'{meter(share)}<span class="small">{share:.0%} of {count(table.snapshot_rows_expected or 0)}{left}</span>'
    )
