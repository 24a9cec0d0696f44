"""Samples of an app's resources: memory by kind of process, open files, files and bytes on disk."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One line of the picture: its name, its unit, and what it is, in words."""

    name: str
    unit: str
    title: str


MEASURES = (
    Measure(name="driver", unit="MiB", title="the app's own process"),
    Measure(name="jvm", unit="MiB", title="Java, all its memory"),
    Measure(name="committed", unit="MiB", title="Java, heap that it has taken"),
    Measure(name="heap", unit="MiB", title="Java, heap in use, with garbage"),
    Measure(name="alive", unit="MiB", title="Java, heap after the last collection"),
    Measure(name="non_heap", unit="MiB", title="Java, classes and compiled code"),
    Measure(name="workers", unit="MiB", title="Spark's Python processes"),
    Measure(name="open_files", unit="files", title="open files of all processes"),
    Measure(name="threads", unit="threads", title="threads of Java"),
    Measure(name="files", unit="files", title="files of the log and the checkpoints"),
    Measure(name="log", unit="MiB", title="disk of the log"),
    Measure(name="checkpoints", unit="MiB", title="disk of checkpoints, state and views"),
    Measure(name="scratch", unit="MiB", title="disk that Spark uses meanwhile"),
)
BY_NAME = {measure.name: measure for measure in MEASURES}

Sample = dict[str, float]
"""The value of each measure, and `seconds` since the run began."""


def sample(root: psutil.Process, *, log: Path, scratch: Path, jvm: Path, seconds: float) -> Sample:
    """The resources of a process and its descendants now."""
    values: Sample = dict.fromkeys(BY_NAME, 0.0) | {"seconds": seconds}
    for process in [root, *root.children(recursive=True)]:
        try:
            kind = kind_of(process)
            # Workers are forks and share pages with each other: each page counts for its share.
            memory = process.memory_full_info().pss if kind == "workers" else process.memory_info().rss
            files = process.num_fds()
        except psutil.Error:
            continue  # it has ended meanwhile
        values[kind] += memory / MIB
        values["open_files"] += files
    apps = log / "apps"
    log_files, log_bytes = usage(log, without=apps)
    app_files, app_bytes = usage(apps)
    values |= {"files": log_files + app_files, "log": log_bytes / MIB, "checkpoints": app_bytes / MIB}
    values["scratch"] = usage(scratch)[1] / MIB
    return values | of_jvm(jvm)


def kind_of(process: psutil.Process) -> str:
    """Which measure the memory of a process belongs to."""
    if process.name().startswith("java"):
        return "jvm"
    return "workers" if any(word.startswith("pyspark") for word in process.cmdline()) else "driver"


def usage(folder: Path, *, without: Path | None = None) -> tuple[int, int]:
    """How many files a folder has, and how many bytes they take on the disk."""
    files = taken = 0
    for place, folders, names in os.walk(folder):
        if without is not None and Path(place) == without.parent:
            folders[:] = [name for name in folders if name != without.name]
        for name in names:
            try:
                taken += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue
            files += 1
    return files, taken


def of_jvm(path: Path) -> Sample:
    """The newest line that the app has written of its JVM."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    if not lines:
        return {}
    newest = json.loads(lines[-1])
    sizes = {"committed": "heap_committed", "heap": "heap_used", "alive": "heap_alive", "non_heap": "non_heap"}
    return {name: newest[told] / MIB for name, told in sizes.items()} | {"threads": float(newest["threads"])}


@dataclass(frozen=True, kw_only=True)
class Trend:
    """How a measure went: its medians in the second and the last third of the run, and its rise in the last two."""

    middle: float
    last: float
    highest: float
    per_hour: float


def trend(samples: Sequence[Sample], name: str) -> Trend:
    """How a measure went after the first third, which is the warming-up.

    >>> steady = [{"seconds": 60.0 * minute, "jvm": 100.0} for minute in range(30)]
    >>> trend(steady, "jvm")
    Trend(middle=100.0, last=100.0, highest=100.0, per_hour=0.0)
    >>> rising = [{"seconds": 60.0 * minute, "jvm": 100.0 + minute} for minute in range(31)]
    >>> round(trend(rising, "jvm").per_hour)
    60
    """
    third = max(1, len(samples) // 3)
    values = [sample[name] for sample in samples]
    per_hour = 0.0
    if len(samples) > third + 1:
        times = [sample["seconds"] for sample in samples[third:]]
        per_hour = statistics.linear_regression(times, values[third:]).slope * 3_600
    return Trend(
        middle=statistics.median(values[third : 2 * third] or values),
        last=statistics.median(values[-third:]),
        highest=max(values),
        per_hour=per_hour,
    )
