"""The events of a match as a timeline: each a stem as high as its value."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Point = tuple[int, float | None, str]
"""Microseconds since 1970, a value, and a description of the event."""


def small(points: Sequence[Point], *, width: int = 168, height: int = 28) -> str:
    """A timeline that fits into a row of a table.

    >>> small([(0, 1.0, ""), (10, 9.0, "")]).count("<circle")
    2
    """
    head = f'<svg class="timeline" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{len(points)} events">'
    if not points:
        return f"{head}</svg>"
    return head + _stems(points, width=width, left=6, right=6, top=5, base=height - 4, radius=2.6) + "</svg>"


def large(points: Sequence[Point], *, label: str, measure: str, width: int = 1080, height: int = 220) -> str:
    """A timeline as wide as the page, with the values at their stems and the times below."""
    base = height - 34
    parts = [
        f'<svg class="timeline large" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">',
        f'<line class="base" x1="12" x2="{width - 12}" y1="{base}" y2="{base}"/>',
        _stems(points, width=width, left=60, right=60, top=48, base=base, radius=5),
        _labels(points, width=width, base=base, top=48),
        f'<text x="12" y="14">{escape(measure)}</text></svg>',
    ]
    return "".join(parts)


def _places(
    points: Sequence[Point], *, width: int, left: int, right: int, top: int, base: int
) -> list[tuple[float, float]]:
    first, last = points[0][0], points[-1][0]
    most = max((abs(value) for _, value, _ in points if value is not None), default=0.0) or 1.0
    room = width - left - right
    places = []
    for at, value, _ in points:
        x = left + (room / 2 if last == first else room * (at - first) / (last - first))
        height = 0.5 if value is None else max(0.06, abs(value) / most)
        places.append((x, base - height * (base - top)))
    return places


def _stems(points: Sequence[Point], *, width: int, left: int, right: int, top: int, base: int, radius: float) -> str:
    places = _places(points, width=width, left=left, right=right, top=top, base=base)
    lines = [f'<line class="base" x1="{left - 4}" x2="{width - right + 4}" y1="{base}" y2="{base}"/>']
    for number, ((x, y), (_, _, text)) in enumerate(zip(places, points, strict=True)):
        name = ' class="last"' if number == len(points) - 1 else ""
        lines.append(
            f"<g{name}><line x1='{x:.1f}' x2='{x:.1f}' y1='{base}' y2='{y:.1f}'/>"
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius}'><title>{escape(text)}</title></circle></g>"
        )
    return "".join(lines)


def _labels(points: Sequence[Point], *, width: int, base: int, top: int) -> str:
    """Values above their stems, and times below, as far as there is room."""
    places = _places(points, width=width, left=60, right=60, top=top, base=base)
    labels, free_above, free_below = [], -1e9, -1e9
    for number, ((x, y), (at, value, _)) in enumerate(zip(places, points, strict=True)):
        is_last = number == len(points) - 1
        if value is not None and (x - free_above > 44 or is_last):
            labels.append(f'<text class="value" x="{x:.1f}" y="{y - 10:.1f}">{escape(f"{value:g}")}</text>')
            free_above = x
        if x - free_below > 76 and (is_last or width - 60 - x > 76 or number == 0):
            labels.append(f'<text class="time" x="{x:.1f}" y="{base + 20}">{clock(at)}</text>')
            free_below = x
    return "".join(labels)


def clock(us: int) -> str:
    """The time of day in UTC.

    >>> clock(3_723_500_000)
    '01:02:03.5'
    """
    seconds, rest = divmod(us, 1_000_000)
    day = seconds % 86_400
    text = f"{day // 3_600:02}:{day // 60 % 60:02}:{day % 60:02}"
    return text if rest < 1_000 else f"{text}.{rest // 1_000:03}".rstrip("0")
