"""The samples of a run as a picture, over its time."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.picture import Panel, drawn
from benchmarks.soak.samples import BY_NAME, Sample

PANELS = (
    ("memory, MiB", ("jvm", "committed", "alive", "non_heap", "driver", "workers")),
    ("open files and threads", ("open_files", "threads")),
    ("files on disk", ("files",)),
    ("disk, MiB", ("log", "checkpoints", "scratch")),
)


def svg(samples: Sequence[Sample], *, title: str) -> str:
    """All panels."""
    panels = [Panel(title=name, lines={one: BY_NAME[one].title for one in measures}) for name, measures in PANELS]
    return drawn(samples, panels, title=title, axis="seconds", tick=lambda seconds: f"{seconds / 60:.1f} min")
