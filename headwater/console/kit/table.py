"""A table: its columns are declared once, its rows are set again and again; and the pages of a long one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from nicegui import ui
from nicegui.element import Element

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `clip` cuts long texts with an ellipsis; `mono` is for values that are read character by character."""

    name: str
    label: str = ""
    align: Literal["left", "right"] = "left"
    sortable: bool = False
    width: str = ""
    mono: bool = False
    clip: bool = False


def link(text: str, href: str, *, under: str = "") -> dict[str, str]:
    """A cell with a link."""
    return {"text": text, "href": href, **({"under": under} if under else {})}


def mark(text: str, tone: str = "") -> dict[str, str]:
    """A cell with a pill."""
    return {"text": text, "pill": tone}


def toned(text: str, tone: str, *, under: str = "") -> dict[str, str]:
    """A cell in the colour of good, warn, bad or quiet."""
    return {"text": text, "tone": tone, **({"under": under} if under else {})}


def drawn(svg: str) -> dict[str, str]:
    """A cell with a small drawing: HTML of our own, which is not escaped."""
    return {"html": svg}


def act(text: str, action: str, *, tone: str = "") -> dict[str, str]:
    """A cell with a button, in the colour of `tone`; the table's `on_act` gets the action and the row's key."""
    return {"text": text, "action": action, **({"tone": tone} if tone else {})}


@dataclass(frozen=True)
class Row:
    """Cells in the order of the columns, each a text, a number or one of the above; and the key of the row."""

    cells: Sequence[Any]
    key: str | int | None = None
    picked: bool = False


class Table(Element, component="table.js"):
    """The table on the page."""

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        label: str,
        none: str = "Nothing here yet.",
        sort: str = "",
        down: bool = False,
        on_sort: Callable[[str], Any] | None = None,
        on_row: Callable[[Any], Any] | None = None,
        on_act: Callable[[str, Any], Any] | None = None,
    ) -> None:
        super().__init__()
        self._props["columns"] = [{**asdict(column), "label": column.label or column.name} for column in columns]
        self._props["rows"] = []
        self._props.update(label=label, none=none, sort=sort, down=down, clickable=on_row is not None)
        if on_sort is not None:
            self.on("sort", lambda event: on_sort(str(event.args)))
        if on_row is not None:
            self.on("row", lambda event: on_row(event.args))
        if on_act is not None:
            self.on("act", lambda event: on_act(event.args["action"], event.args["key"]))

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows; nothing is sent if they are the ones that are shown."""
        given = [{"key": row.key, "cells": list(row.cells), "picked": row.picked} for row in rows]
        if given != self._props["rows"]:
            self._props["rows"] = given
            self.update()

    def set_sort(self, column: str, *, down: bool) -> None:
        self._props.update(sort=column, down=down)
        self.update()


class Pages:
    """Buttons that turn the pages of a long list; a list is never sent as a whole."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, on_change: Callable[[], Any], *, size: int = 50) -> None:
        self._on_change = on_change
        self.size = size
        self.first = 0
        self._count = 0
        with ui.element("div").classes("pager") as self._bar:
            self._range = ui.label("")
            ui.element("div").classes("grow")
            with ui.element("div").classes("row-flex") as self._buttons:
                self._back = self._button("chevron_left", "Back", -1)
                self._forward = self._button("chevron_right", "Further", 1)

    def _button(self, icon: str, label: str, step: int) -> ui.button:
        made = ui.button(icon=icon, on_click=lambda: self._turn(step), color=None).classes("btn ghost icon")
        return made.props(f'flat aria-label="{label}"')

    def _turn(self, step: int) -> Any:
        self.first = max(0, min(self.first + step * self.size, max(0, self._count - 1)))
        return self._on_change()

    def part(self, rows: Sequence[T]) -> Sequence[T]:
        """The rows of this page."""
        self.set_count(len(rows))
        return rows[self.first : self.first + self.size]

    def set_count(self, count: int) -> None:
        """Show how long the list is; go to its first page if this one is no longer there."""
        self._count = count
        if self.first >= count:
            self.first = 0
        last = min(self.first + self.size, count)
        self._range.set_text(f"{self.first + 1:,} to {last:,} of {count:,}")
        self._bar.set_visibility(count > 0)
        self._buttons.set_visibility(count > self.size)
        self._back.set_enabled(self.first > 0)
        self._forward.set_enabled(last < count)
