"""Syncs as pages show them: states in colours, and what the last comparison found."""

from __future__ import annotations

from typing import Any

from headwater.console.kit.table import toned
from headwater.console.kit.words import ago, counted
from headwater.services.syncs import SyncStatus

#: A delay that is longer than this is shown in colour; see the explanation of delay.
SLOW_SECONDS = 60.0
TONES = {
    "new": "info",
    "in sync": "good",
    "behind": "accent",
    "paused": "",
    "failed": "bad",
    "unreachable": "bad",
}
#: States from the worst to the best.
_WORST_FIRST = ("failed", "unreachable", "paused", "behind", "new", "in sync")


def badness(status: SyncStatus) -> tuple[int, float, str]:
    """The order of syncs, those that need attention first."""
    return _WORST_FIRST.index(status.state), -(status.delay_seconds or 0.0), status.name


def delay_tone(status: SyncStatus) -> str:
    """The colour of a delay."""
    return "" if status.delay_seconds is None or status.delay_seconds <= SLOW_SECONDS else "warn"


# Any: a cell.
def comparison_cell(status: SyncStatus) -> Any:
    """What the last comparison found, and when."""
    compared = status.compared
    if compared is None:
        return toned("never", "quiet")
    when = ago(compared.at_us)
    if not compared.count:
        return toned("equal", "good", under=when)
    tone = "" if compared.repaired else "bad"
    return toned(f"{counted(compared.count, 'row')} {compared.verb}", tone, under=when)
