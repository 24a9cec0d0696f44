"""A table: columns that are declared once, rows that are set again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from nicegui import ui
from nicegui.element import Element


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. `clip` cuts long texts with an ellipsis; `mono` is for values that are read letter by letter."""

    name: str
    label: str = ""
    align: Literal["left", "right"] = "left"
    sortable: bool = False
    width: str = ""
    mono: bool = False
    clip: bool = False


def link(text: str, href: str, *, under: str = "") -> dict[str, str]:
    """A cell that leads somewhere."""
    return {"text": text, "href": href, **({"under": under} if under else {})}


def mark(text: str, tone: str = "") -> dict[str, str]:
    """A cell with a pill."""
    return {"text": text, "pill": tone}


def toned(text: str, tone: str, *, under: str = "") -> dict[str, str]:
    """A cell in the colour of good, warn, bad or quiet."""
    return {"text": text, "tone": tone, **({"under": under} if under else {})}


def drawn(svg: str) -> dict[str, str]:
    """A cell with a small drawing, made by us: it goes into the page as it is."""
    return {"html": svg}


def act(text: str, action: str, *, tone: str = "") -> dict[str, str]:
    """A cell with a button, in the colour of `tone`; the table's `on_act` gets the action and the row's key."""
    return {"text": text, "action": action, **({"tone": tone} if tone else {})}


@dataclass(frozen=True)
class Row:
    """Cells in the order of the columns, each a text, a number or one of the above; and who the row is."""

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
        self._props["columns"] = [{**asdict(one), "label": one.label or one.name} for one in columns]
        self._props["rows"] = []
        self._props.update(label=label, none=none, sort=sort, down=down, clickable=on_row is not None)
        if on_sort is not None:
            self.on("sort", lambda event: on_sort(str(event.args)))
        if on_row is not None:
            self.on("row", lambda event: on_row(event.args))
        if on_act is not None:
            self.on("act", lambda event: on_act(event.args["action"], event.args["key"]))

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows. What has not changed stays as it is, and is not sent again if nothing has."""
        given = [{"key": row.key, "cells": list(row.cells), "picked": row.picked} for row in rows]
        if given != self._props["rows"]:
            self._props["rows"] = given
            self.update()

    def set_sort(self, column: str, *, down: bool) -> None:
        self._props.update(sort=column, down=down)
        self.update()


class Pages:
    """Which part of a long list is shown, with buttons to go on; a list is never sent as a whole."""

    def __init__(self, on_change: Callable[[], Any], *, size: int = 50) -> None:
        self._on_change = on_change
        self.size = size
        self.first = 0
        self._count = 0
        with ui.element("div").classes("pager") as self._bar:
            self._told = ui.label("")
            ui.element("div").classes("grow")
            with ui.element("div").classes("row-flex") as self._ways:
                self._back = self._button("chevron_left", "Back", -1)
                self._on = self._button("chevron_right", "Further", 1)

    def _button(self, icon: str, label: str, step: int) -> ui.button:
        made = ui.button(icon=icon, on_click=lambda: self._go(step), color=None).classes("btn ghost icon")
        return made.props(f'flat aria-label="{label}"')

    # Any: what changes with the page may have to be read first, and is then waited for.
    def _go(self, step: int) -> Any:
        self.first = max(0, min(self.first + step * self.size, max(0, self._count - 1)))
        return self._on_change()

    def part(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The rows of this page."""
        self._count = len(rows)
        if self.first >= self._count:
            self.first = 0
        last = min(self.first + self.size, self._count)
        self._told.set_text(f"{self.first + 1:,} to {last:,} of {self._count:,}")
        self._bar.set_visibility(self._count > 0)
        self._ways.set_visibility(self._count > self.size)
        self._back.set_enabled(self.first > 0)
        self._on.set_enabled(last < self._count)
        return rows[self.first : last]
