"""Lines of the report: rows a second and CPU, ours beside a peer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import Bar, Result, Sample, median_rate
from benchmarks.spark.workbench import cpu_per_million


def beside(
    name: str,
    samples: Mapping[str, Sequence[Sample]],
    *,
    ours: str,
    peer: str,
    about: Mapping[str, Any],  # Any: facts to be told
    least: float | None = None,
    note: str = "",
) -> list[Result]:
    """The line that compares rows a second; without samples of the peer it says why in `note`."""
    theirs = samples.get(peer)
    more = {**about, "cpu_seconds_per_million": round(cpu_per_million(samples[ours]), 3)}
    if theirs is not None:
        more["peer_cpu_seconds_per_million"] = round(cpu_per_million(theirs), 3)
    return [
        Result(
            name=name,
            value=median_rate(samples[ours]),
            unit="rows/s",
            peer=peer,
            peer_value=None if theirs is None else median_rate(theirs),
            more=more,
            bars=[] if least is None else [Bar(figure="ratio", least=least)],
            note=note,
        )
    ]
