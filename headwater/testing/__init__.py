"""Tools for tests, also for users' own: run a whole app under a manual clock, kill a process at a crash point, make the
events of Nexmark."""

from typing import TYPE_CHECKING, Any

from headwater.faults import CRASH_POINTS, QUERY_CRASH_POINTS, SINK_CRASH_POINTS
from headwater.testing.crash import (
    CrashAt,
    Ended,
    PointCounts,
    ignore_points,
    run_until_killed,
    start_child,
    watch_points,
)
from headwater.testing.nexmark import Nexmark, NexmarkEvents
from headwater.testing.power import LOSSES, NAME_LOSSES, Disk, damaged, reboot

if TYPE_CHECKING:
    from headwater.testing.apps import AppTest


# Any: type checkers know the type from the import above.
def __getattr__(name: str) -> Any:
    if name == "AppTest":  # imported on demand: crash tools are used without Spark
        from headwater.testing.apps import AppTest

        return AppTest
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CRASH_POINTS",
    "LOSSES",
    "NAME_LOSSES",
    "QUERY_CRASH_POINTS",
    "SINK_CRASH_POINTS",
    "AppTest",
    "CrashAt",
    "Disk",
    "Ended",
    "Nexmark",
    "NexmarkEvents",
    "PointCounts",
    "damaged",
    "ignore_points",
    "reboot",
    "run_until_killed",
    "start_child",
    "watch_points",
]
