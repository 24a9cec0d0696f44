"""The picture of a run of many batches, for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.growth.samples import Sample
from benchmarks.picture import Panel, drawn

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "growth.svg"


def draw(windows: Sequence[Sample], totals: Sequence[Sample], *, path: Path = PICTURE, times: bool = True) -> Path:
    """Draw both runs, measure by measure; without `times` after a run on a machine that did other things, too."""
    samples = [
        {"batches": one["batches"]}
        | {f"windows_{measure}": value for measure, value in one.items()}
        | {f"totals_{measure}": value for measure, value in other.items()}
        | {"windows_kib": one["bytes"] / 1024, "totals_kib": other["bytes"] / 1024}
        for one, other in zip(windows, totals, strict=True)
    ]
    titles = {"files": "files of the state", "kib": "size of the state, KiB"}
    titles |= {"ms": "time of a batch, ms (median)"} if times else {}
    panels = [
        Panel(
            title=title, lines={f"windows_{measure}": "windows of ten seconds", f"totals_{measure}": "totals for ever"}
        )
        for measure, title in titles.items()
    ]
    title = f"State over {samples[-1]['batches']:,.0f} batches"
    path.write_text(
        drawn(samples, panels, title=title, axis="batches", tick=lambda batches: f"{batches:,.0f}"), encoding="utf-8"
    )
    return path
