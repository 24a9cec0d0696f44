"""Samples of a run as an SVG that is readable by day and by night: one panel above the other, with one axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 960, 70, 290, 46
PANEL, GAP = 150, 44
Sample = Mapping[str, float]
STYLE = """
    text{font-family:system-ui,sans-serif;font-size:12px} .ground{fill:#ffffff} .ink{fill:#16202c} .soft{fill:#55606e}
    .title{font-size:15px;font-weight:600} .axis{stroke:#c3cbd5;stroke-width:1} .line{fill:none;stroke-width:1.8}
    .l0{stroke:#1d64ab} .l1{stroke:#a3560b} .l2{stroke:#16774a} .l3{stroke:#6a48b8} .l4{stroke:#c02626} .l5{stroke:#55606e}
    @media (prefers-color-scheme: dark){
      .ground{fill:#10161e} .ink{fill:#eef2f7} .soft{fill:#a5b1c0} .axis{stroke:#3a4656}
      .l0{stroke:#6fb1f0} .l1{stroke:#f0ab5e} .l2{stroke:#5fd09a} .l3{stroke:#b59cf2} .l4{stroke:#ff8080} .l5{stroke:#a5b1c0}
    }
"""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel: its title, and its measures with what stands beside their lines."""

    title: str
    lines: Mapping[str, str]


def drawn(
    samples: Sequence[Sample], panels: Sequence[Panel], *, title: str, axis: str, tick: Callable[[float], str]
) -> str:
    """All panels; `axis` is the measure along the way, and `tick` its value as text."""
    height = TOP + len(panels) * (PANEL + GAP) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"  <title>{escape(title)}</title>",
        f"  <style>{STYLE}  </style>",
        f'  <rect class="ground" width="{WIDTH}" height="{height}"/>',
        f'  <text class="ink title" x="{LEFT}" y="24">{escape(title)}</text>',
    ]
    for place, panel in enumerate(panels):
        lines += _panel(samples, panel, top=TOP + place * (PANEL + GAP), axis=axis, tick=tick)
    return "\n".join([*lines, "</svg>", ""])


def _panel(
    samples: Sequence[Sample], panel: Panel, *, top: float, axis: str, tick: Callable[[float], str]
) -> list[str]:
    end = max(sample[axis] for sample in samples)
    most = nice(max(sample[measure] for sample in samples for measure in panel.lines))
    right, bottom = WIDTH - RIGHT, top + PANEL
    lines = [f'  <text class="ink" x="{LEFT}" y="{top + 2}">{escape(panel.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (PANEL - 14)
        lines.append(f'  <line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        lines.append(
            f'  <text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{most * share:,.6g}</text>'
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = LEFT + share * (right - LEFT)
        lines.append(
            f'  <text class="soft" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick(end * share)}</text>'
        )
    for place, (measure, text) in enumerate(panel.lines.items()):
        points = " ".join(
            f"{LEFT + sample[axis] / end * (right - LEFT):.1f},{bottom - sample[measure] / most * (PANEL - 14):.1f}"
            for sample in samples
        )
        y = top + 18 + place * 20
        lines.append(f'  <polyline class="line l{place}" points="{points}"/>')
        lines.append(f'  <line class="line l{place}" x1="{right + 14}" y1="{y}" x2="{right + 34}" y2="{y}"/>')
        lines.append(f'  <text class="ink" x="{right + 40}" y="{y + 4}">{escape(text)}</text>')
    return lines


def nice(value: float) -> float:
    """The next round number.

    >>> nice(0.7), nice(130), nice(2_100), nice(0)
    (1.0, 200.0, 2500.0, 1.0)
    """
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * size >= value)
