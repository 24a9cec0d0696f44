"""Tools for crash tests: kill a process at a named durable step, or take away what a disk never promised to keep."""

from headwater.faults import QUERY_CRASH_POINTS
from headwater.log.embedded.faults import CRASH_POINTS, SINK_CRASH_POINTS
from headwater.testing.crash import (
    CrashAt,
    Ended,
    PointCounts,
    ignore_points,
    run_until_killed,
    start_child,
    watch_points,
)
from headwater.testing.power import LOSSES, NAME_LOSSES, Disk, damaged, reboot

__all__ = [
    "CRASH_POINTS",
    "LOSSES",
    "NAME_LOSSES",
    "QUERY_CRASH_POINTS",
    "SINK_CRASH_POINTS",
    "CrashAt",
    "Disk",
    "Ended",
    "PointCounts",
    "damaged",
    "ignore_points",
    "reboot",
    "run_until_killed",
    "start_child",
    "watch_points",
]
