"""Lines over time and bars, drawn by ECharts in the console's colours; and lines as small as a word."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nicegui import ui

from headwater.console.kit.gaps import gaps
from headwater.console.kit.words import short

SERIES_LIGHT = ["#0b7a75", "#c4671c", "#5b53c6", "#b03a78", "#47803a", "#2d6fc4"]
SERIES_DARK = ["#3fbfb5", "#ef9a57", "#9d96f5", "#e77db2", "#86c277", "#74a9ef"]
Points = Sequence[tuple[float, float]]
#: A chart of what is measured now shows at least so much time, so that its first points do not fill it.
WINDOW_SECONDS_MIN = 120.0
#: A peak is cut off when it is so many times as high as nearly all other values.
PEAK_FACTOR = 4.0
PEAK_POINTS_MIN = 12


def limit_of(values: Sequence[float]) -> float | None:
    """Where an axis ends if a few peaks would press all other values flat; None where there are none.

    >>> limit_of([20_000, *[300] * 30]), limit_of([400, *[300] * 30])
    (380.0, None)
    """
    if len(values) < PEAK_POINTS_MIN:
        return None
    most = sorted(values)[min(len(values) - 2, int(len(values) * 0.95))]
    # Two digits: the axis writes its end in full.
    return float(f"{1.25 * most:.2g}") if most > 0 and max(values) > PEAK_FACTOR * most else None


class _Chart:
    """A chart on the page, and the options that ECharts draws it by."""

    def __init__(self, *, label: str, dark: bool, height: int, options: dict[str, Any]) -> None:
        self._dark = dark
        self._element = ui.echart(options, renderer="svg").style(f"height: {height}px; width: 100%")
        self._element.props(f'role="img" aria-label="{label}"')

    def _draw(self, options: dict[str, Any]) -> None:
        self._element.options.clear()
        self._element.options.update(options)
        self._element.update()


class LineChart(_Chart):
    """Series of (seconds since 1970, value). Times are shown in the visitor's own zone.

    A `live` chart ends now. `cuts_peaks` is for values of which a few may be far above all others; a line below the chart
    then says so.
    """

    def __init__(
        self,
        *,
        label: str,
        dark: bool,
        height: int = 220,
        stacked: bool = False,
        filled: bool = True,
        live: bool = True,
        cuts_peaks: bool = False,
    ) -> None:
        self._dark, self._stacked, self._filled = dark, stacked, filled
        self._live, self._cuts_peaks = live, cuts_peaks
        super().__init__(label=label, dark=dark, height=height, options=self._options({}, None))
        self._peak_note = ui.label("").classes("quiet small")
        self._peak_note.set_visibility(False)

    def set(self, series: Mapping[str, Points]) -> None:
        values = heights(series, stacked=self._stacked)
        limit = limit_of(values) if self._cuts_peaks else None
        self._peak_note.set_visibility(limit is not None)
        if limit is not None:
            self._peak_note.set_text(f"Drawn up to {short(limit)}; the highest was {short(max(values))}.")
        self._draw(self._options(series, limit))

    def _options(self, series: Mapping[str, Points], limit: float | None) -> dict[str, Any]:
        is_empty = self._live and all(len(points) < 2 for points in series.values())
        no_data = {"color": "#8ea19f" if self._dark else "#586a6d", "fontSize": 13, "fontWeight": "normal"}
        return {
            **_base(series, dark=self._dark, top=14, right=12),
            "title": {
                "show": is_empty,
                "text": "Nothing measured yet",
                "left": "center",
                "top": "middle",
                "textStyle": no_data,
            },
            "xAxis": {
                "type": "time",
                **_axis(dark=self._dark),
                **(window_of(series.values(), now=time.time()) if self._live else {}),
                "splitLine": {"show": False},
                "splitNumber": 5,
                "show": not is_empty,
            },
            "yAxis": {
                **_values_axis((value for points in series.values() for _, value in points), dark=self._dark),
                "max": limit,
                "show": not is_empty,
            },
            "series": [self._line(name, points) for name, points in series.items()],
        }

    def _line(self, name: str, points: Points) -> dict[str, Any]:
        return {
            "name": name,
            "type": "line",
            "showSymbol": not self._live and len(points) < 2,
            "data": _data(points, live=self._live),
            "lineStyle": {"width": 2},
            **({"stack": "all"} if self._stacked else {}),
            **({"areaStyle": {"opacity": 0.12}} if self._filled else {}),
        }


# Any: values of ECharts.
def _data(points: Points, *, live: bool) -> list[list[Any]]:
    """The points of a line; where nothing was measured, a live line ends and begins again."""
    data: list[list[Any]] = [[round(at * 1000), value] for at, value in points]
    for place in reversed(gaps(points) if live else []):
        data.insert(place, [data[place - 1][0] + 1, None])
    return data


class BarChart(_Chart):
    """Values by name, or several series of them; `sideways` for names that are long."""

    def __init__(
        self, *, label: str, dark: bool, height: int = 220, sideways: bool = False, stacked: bool = False
    ) -> None:
        self._dark, self._sideways, self._stacked = dark, sideways, stacked
        super().__init__(label=label, dark=dark, height=height, options=self._options([], {}))

    def set(self, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
        self._draw(self._options(names, series))

    def _options(self, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        names_axis = {"type": "category", "data": list(names), **_axis(dark=self._dark), "splitLine": {"show": False}}
        values_axis = _values_axis((value for values in series.values() for value in values), dark=self._dark)
        return {
            **_base(series, dark=self._dark, top=10, right=16),
            "xAxis": values_axis if self._sideways else names_axis,
            "yAxis": {**names_axis, "inverse": True} if self._sideways else values_axis,
            "series": [
                {
                    "name": name,
                    "type": "bar",
                    "data": list(values),
                    "barMaxWidth": 28,
                    "itemStyle": {"borderRadius": 3},
                    **({"stack": "all"} if self._stacked else {}),
                }
                for name, values in series.items()
            ],
        }


def heights(series: Mapping[str, Points], *, stacked: bool) -> list[float]:
    """The values of all lines; of lines that stand on each other, their sums.

    >>> heights({"a": [(0, 1), (2, 5)], "b": [(2, 3)]}, stacked=True)
    [1.0, 8.0]
    """
    if not stacked:
        return [value for points in series.values() for _, value in points]
    sums: dict[float, float] = {}
    for points in series.values():
        for at, value in points:
            sums[at] = sums.get(at, 0.0) + value
    return list(sums.values())


def window_of(lines: Collection[Points], *, now: float) -> dict[str, int]:
    """From where to where a live chart goes, in milliseconds: up to now, and back to the first point or a little more.

    >>> window_of([[(990.0, 1), (995.0, 2)]], now=1000.0)
    {'min': 880000, 'max': 1000000}
    """
    first = min((points[0][0] for points in lines if points), default=now)
    last = max((points[-1][0] for points in lines if points), default=now)
    end = max(now, last)
    return {"min": round(min(first, end - WINDOW_SECONDS_MIN) * 1000), "max": round(end * 1000)}


# Any, here and below: options of ECharts.
def _base(series: Collection[str], *, dark: bool, top: int, right: int) -> dict[str, Any]:
    """What all charts have in common; several series have a legend above them."""
    many = len(series) > 1
    return {
        "animation": False,
        "color": SERIES_DARK if dark else SERIES_LIGHT,
        "textStyle": {"fontFamily": "Roboto, system-ui, sans-serif"},
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "backgroundColor": "#1a2525" if dark else "#ffffff",
            "borderColor": "#374848" if dark else "#dde4e4",
            "textStyle": {"color": "#e4edec" if dark else "#14211f", "fontSize": 12},
        },
        "grid": {"left": 8, "right": right, "top": 34 if many else top, "bottom": 4, "containLabel": True},
        "legend": {
            "show": many,
            "top": 0,
            "left": 0,
            "icon": "roundRect",
            "itemWidth": 10,
            "itemHeight": 4,
            "textStyle": {"color": "#a9bab9" if dark else "#48595a", "fontSize": 12},
        },
    }


def _axis(*, dark: bool) -> dict[str, Any]:
    return {
        "axisLine": {"lineStyle": {"color": "#374848" if dark else "#c3cece"}},
        "axisTick": {"show": False},
        "axisLabel": {"color": "#8ea19f" if dark else "#586a6d", "fontSize": 11, "hideOverlap": True},
        "splitLine": {"lineStyle": {"color": "#243232" if dark else "#e8eded"}},
    }


def _values_axis(values: Iterable[float], *, dark: bool) -> dict[str, Any]:
    """The axis of values; whole numbers are counted in whole steps, for there is no third of a row."""
    steps = 1 if all(float(value).is_integer() for value in values) else 0
    return {
        "type": "value",
        **_axis(dark=dark),
        "minInterval": steps,
        "axisLine": {"show": False},
        "splitNumber": 3,
    }


def sparkline(values: Sequence[float], *, width: int = 88, height: int = 22) -> str:
    """A line of a few dozen values, as small as a word: an SVG in the colour of the text around it, which begins at 0.

    >>> sparkline([1.0]).count("<path"), sparkline([1.0, 2.0, 0.0]).count("<path")
    (0, 2)
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
