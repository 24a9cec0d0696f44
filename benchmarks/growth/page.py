"""The pictures of runs of many batches and of many events, for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.growth.samples import Sample
from benchmarks.picture import Panel, drawn

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "growth.svg"
COSTS_PICTURE = PICTURE.with_name("growth-events.svg")
BUILD = ROOT / "build"


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


def draw_costs(steps: Sequence[Mapping[str, float]], *, path: Path = COSTS_PICTURE) -> Path:
    """Draw what an event has cost along a run."""
    panel = Panel(title="an event, µs", lines={"cpu_us": "of CPU, all processes", "us": "by the clock"})
    title = f"Cost of an event over {steps[-1]['events']:,.0f} events"
    millions = "{:,.0f} M".format
    picture = drawn(steps, [panel], title=title, axis="events", tick=lambda events: millions(events / 1e6))
    path.write_text(picture, encoding="utf-8")
    return path
