"""A chart of rows whose columns the user chooses; a sensible choice is made at first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from nicegui import ui

from headwater.console.kit.chart import BarChart, LineChart
from headwater.console.kit.controls import select
from headwater.console.kit.layout import block, empty
from headwater.console.kit.values import is_number, rows_of

LINES_MAX = 6
BARS_MAX = 24
POINTS_MAX = 2_000
#: Bars with longer names are horizontal.
NAME_MAX = 10
ONE_LINE = "one line"


@dataclass(frozen=True)
class Choice:
    """What is drawn: `y` over `x`, with a line for each value of `split`."""

    x: str
    y: str
    split: str | None = None


def is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def can_plot(schema: pa.Schema) -> bool:
    """Whether there is a column of numbers, and another to draw it over."""
    return len(schema) > 1 and any(is_number(column.type) for column in schema)


def guessed(schema: pa.Schema, key: Sequence[str] = ()) -> Choice:
    """A sensible chart: over time if there is a time column, else a bar for each key.

    >>> guessed(pa.schema([("card", pa.int64()), ("total", pa.int64())]), ["card"])
    Choice(x='card', y='total', split=None)
    """
    plain = [column.name for column in schema if not pa.types.is_nested(column.type)]
    times = [name for name in plain if is_time(schema.field(name).type) and (name in key or not key)]
    x = times[0] if times else next((name for name in (*key, *plain) if name in plain), plain[0])
    numbers = [name for name in plain if is_number(schema.field(name).type) and name != x]
    y = next((name for name in numbers if name not in key), numbers[0] if numbers else x)
    texts = [name for name in plain if name not in (x, y) and pa.types.is_string(schema.field(name).type)]
    others = [name for name in key if name not in (x, y)] or ([] if key else texts)
    return Choice(x, y, others[0] if times and others else None)


class Plot:
    """The chart, and the boxes to choose its columns."""

    def __init__(self, *, label: str, dark: bool, on_change: Callable[[], Any], height: int = 340) -> None:
        self._label, self._dark, self._height, self._on_change = label, dark, height, on_change
        self._schema: pa.Schema | None = None
        self._chart: LineChart | BarChart | None = None
        self._shape = ""
        self.choice: Choice | None = None
        with block("stack"):
            self._bar = block("row-flex plot-bar")
            self._place = block("")
            self._note = ui.label("").classes("quiet small")

    def offer(self, schema: pa.Schema, key: Sequence[str] = ()) -> None:
        """Offer the columns of a schema; the user's choice stays as long as the schema does."""
        if self._schema is not None and self._schema.equals(schema):
            return
        self._schema, self._shape = schema, ""
        self._bar.clear()
        self._place.clear()
        self.choice = guessed(schema, key) if can_plot(schema) else None
        if self.choice is None:
            with self._place:
                empty(
                    "Nothing to draw", "A chart needs a column of numbers, and one to draw it over.", icon="show_chart"
                )
            return
        plain = [column.name for column in schema if not pa.types.is_nested(column.type)]
        numbers = [name for name in plain if is_number(schema.field(name).type)]
        with self._bar:
            self._y = self._box("Draw", numbers, self.choice.y)
            self._x = self._box("over", plain, self.choice.x)
            self._split = self._box("with a line for each", [ONE_LINE, *plain], self.choice.split or ONE_LINE)

    def _box(self, label: str, names: list[str], value: str) -> ui.select:
        ui.label(label).classes("quiet small")
        return select(names, value=value, label=f"Chart: {label}", on_change=self._choose).style("min-width: 140px")

    # Any: NiceGUI takes plain and asynchronous functions.
    def _choose(self) -> Any:
        split = None if self._split.value == ONE_LINE else str(self._split.value)
        self.choice = Choice(str(self._x.value), str(self._y.value), split)
        return self._on_change()

    def set(self, rows: pa.Table) -> None:
        """Draw these rows."""
        choice = self.choice
        if choice is None or choice.x not in rows.column_names or choice.y not in rows.column_names:
            return
        if is_time(rows.schema.field(choice.x).type):
            self._set_lines(rows, choice)
        else:
            self._set_bars(rows, choice)

    def _set_lines(self, rows: pa.Table, choice: Choice) -> None:
        seconds = pc.divide(pc.cast(pc.cast(rows.column(choice.x), pa.timestamp("us")), pa.int64()), 1e6).to_pylist()
        values = pc.cast(rows.column(choice.y), pa.float64(), safe=False).to_pylist()
        names = [choice.y] * rows.num_rows if choice.split is None else _names(rows, choice.split)
        lines: dict[str, list[tuple[float, float]]] = {}
        for name, at, value in zip(names, seconds, values, strict=True):
            if at is not None and value is not None and value == value:
                lines.setdefault(name, []).append((at, value))
        largest = sorted(lines, key=lambda name: -max(abs(value) for _, value in lines[name]))[:LINES_MAX]
        many = len(largest) > 1
        chart = self._of_shape(
            f"lines {many}",
            lambda: LineChart(label=self._label, dark=self._dark, height=self._height, filled=not many, live=False),
        )
        assert isinstance(chart, LineChart)
        chart.set({name: sorted(lines[name])[-POINTS_MAX:] for name in sorted(largest)})
        left = len(lines) - len(largest)
        self._note.set_text(
            f"The {LINES_MAX} lines that reach highest; {left:,} more are not drawn." if left > 0 else ""
        )

    def _set_bars(self, rows: pa.Table, choice: Choice) -> None:
        values = pc.cast(rows.column(choice.y), pa.float64(), safe=False).to_pylist()
        pairs = [(name, value) for name, value in zip(_names(rows, choice.x), values, strict=True) if value is not None]
        largest = sorted(pairs, key=lambda pair: -pair[1])[:BARS_MAX]
        sideways = any(len(name) > NAME_MAX for name, _ in largest)
        chart = self._of_shape(
            f"bars {sideways}",
            lambda: BarChart(label=self._label, dark=self._dark, height=self._height, sideways=sideways),
        )
        assert isinstance(chart, BarChart)
        chart.set([name for name, _ in largest], {choice.y: [value for _, value in largest]})
        left = len(pairs) - len(largest)
        self._note.set_text(f"The {BARS_MAX} largest of {len(pairs):,}." if left > 0 else "")

    def _of_shape(self, shape: str, make: Callable[[], LineChart | BarChart]) -> LineChart | BarChart:
        """The chart, made again if the choice needs another shape."""
        if self._shape != shape or self._chart is None:
            self._place.clear()
            with self._place:
                self._chart = make()
            self._shape = shape
        return self._chart


def _names(rows: pa.Table, column: str) -> list[str]:
    return ["null" if text is None else text[:60] for [text] in rows_of(rows.select([column]))]
