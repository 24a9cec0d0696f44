"""Lines over time, and bars, drawn by ECharts in the console's colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

SERIES_LIGHT = ["#0b7a75", "#c4671c", "#5b53c6", "#b03a78", "#47803a", "#2d6fc4"]
SERIES_DARK = ["#3fbfb5", "#ef9a57", "#9d96f5", "#e77db2", "#86c277", "#74a9ef"]
Points = Sequence[tuple[float, float]]


class LineChart:
    """Series of (seconds since 1970, value). Times are shown in the visitor's own zone."""

    def __init__(
        self, *, label: str, dark: bool, unit: str = "", height: int = 220, stacked: bool = False, filled: bool = True
    ) -> None:
        self._dark, self._unit, self._stacked, self._filled = dark, unit, stacked, filled
        self._element = ui.echart(self._options({}), renderer="svg").style(f"height: {height}px; width: 100%")
        self._element.props(f'role="img" aria-label="{label}"')

    def set(self, series: Mapping[str, Points]) -> None:
        self._element.options.clear()
        self._element.options.update(self._options(series))
        self._element.update()

    def _options(self, series: Mapping[str, Points]) -> dict[str, Any]:
        many = len(series) > 1
        return {
            **base(dark=self._dark),
            "grid": {"left": 8, "right": 12, "top": 34 if many else 14, "bottom": 4, "containLabel": True},
            "legend": {**_legend(dark=self._dark), "show": many},
            "xAxis": {"type": "time", **_axis(dark=self._dark), "splitLine": {"show": False}, "splitNumber": 5},
            "yAxis": {
                "type": "value",
                **_axis(dark=self._dark),
                "axisLine": {"show": False},
                "splitNumber": 3,
            },
            "series": [self._line(name, points) for name, points in series.items()],
        }

    def _line(self, name: str, points: Points) -> dict[str, Any]:
        return {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "data": [[round(at * 1000), value] for at, value in points],
            "lineStyle": {"width": 2},
            **({"stack": "all"} if self._stacked else {}),
            **({"areaStyle": {"opacity": 0.12}} if self._filled else {}),
        }


class BarChart:
    """Values by name, or several series of them; `sideways` for names that are long."""

    def __init__(
        self, *, label: str, dark: bool, height: int = 220, sideways: bool = False, stacked: bool = False
    ) -> None:
        self._dark, self._sideways, self._stacked = dark, sideways, stacked
        self._element = ui.echart(self._options([], {}), renderer="svg").style(f"height: {height}px; width: 100%")
        self._element.props(f'role="img" aria-label="{label}"')

    def set(self, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
        self._element.options.clear()
        self._element.options.update(self._options(names, series))
        self._element.update()

    def _options(self, names: Sequence[str], series: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        names_axis = {"type": "category", "data": list(names), **_axis(dark=self._dark), "splitLine": {"show": False}}
        values_axis = {"type": "value", **_axis(dark=self._dark), "axisLine": {"show": False}, "splitNumber": 3}
        many = len(series) > 1
        return {
            **base(dark=self._dark),
            "grid": {"left": 8, "right": 16, "top": 34 if many else 10, "bottom": 4, "containLabel": True},
            "legend": {**_legend(dark=self._dark), "show": many},
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


# Any, here and below: options of ECharts.
def base(*, dark: bool) -> dict[str, Any]:
    """What all charts have in common."""
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
    }


def _axis(*, dark: bool) -> dict[str, Any]:
    return {
        "axisLine": {"lineStyle": {"color": "#374848" if dark else "#c3cece"}},
        "axisTick": {"show": False},
        "axisLabel": {"color": "#859897" if dark else "#586a6d", "fontSize": 11, "hideOverlap": True},
        "splitLine": {"lineStyle": {"color": "#243232" if dark else "#e8eded"}},
    }


def _legend(*, dark: bool) -> dict[str, Any]:
    return {
        "top": 0,
        "left": 0,
        "icon": "roundRect",
        "itemWidth": 10,
        "itemHeight": 4,
        "textStyle": {"color": "#a9bab9" if dark else "#48595a", "fontSize": 12},
    }
