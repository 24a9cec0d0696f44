"""A line of a few dozen values, as small as a word."""

from __future__ import annotations

from collections.abc import Sequence


def sparkline(values: Sequence[float], *, width: int = 88, height: int = 22) -> str:
    """An SVG in the colour of the text around it; it begins at 0, so that a flat line low down means little.

    >>> sparkline([1.0]).count("<path")
    0
    >>> sparkline([1.0, 2.0, 0.0]).count("<path")
    2
    """
    head = f'<svg class="spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
    if len(values) < 2:
        return f"{head}</svg>"
    top = max(*values, 1e-9)
    step = width / (len(values) - 1)
    points = [(n * step, height - 2 - max(0.0, value) / top * (height - 4)) for n, value in enumerate(values)]
    line = " ".join(f"{'L' if n else 'M'}{x:.1f} {y:.1f}" for n, (x, y) in enumerate(points))
    area = f"{line} L{width} {height} L0 {height} Z"
    return (
        f'{head}<path d="{area}" fill="currentColor" opacity=".14"/>'
        f'<path d="{line}" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round"/></svg>'
    )
