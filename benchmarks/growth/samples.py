"""Samples of a run: what lies on the disk, and how long its batches take."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Bar, Result

Sample = dict[str, float]
"""`batches` so far, `files`, `bytes`, and `ms`: the median time of a batch since the sample before."""

#: What may stand there more in the last tenth of a run than in the second.
RISE_MAX = 1.3
UNITS = {"files": "files", "bytes": "bytes", "ms": "ms/batch"}


def usage(folder: Path) -> tuple[int, int]:
    """How many files are below a folder, and how many bytes they have."""
    files = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
            files += 1
    return files, size


def compared(name: str, samples: Sequence[Sample]) -> list[Result]:
    """A line for each measure: the median of the last tenth of the samples beside that of the second tenth."""
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    about = {"batches": int(samples[-1]["batches"])}
    return [
        Result(
            name=f"{name}.{measure}",
            value=statistics.median(one[measure] for one in late),
            unit=unit,
            peer="second tenth",
            peer_value=statistics.median(one[measure] for one in early),
            more=about | {"highest": max(one[measure] for one in samples)},
            bars=[Bar(figure="ratio", most=RISE_MAX)],
        )
        for measure, unit in UNITS.items()
    ]
