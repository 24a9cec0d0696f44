"""A list of rows of a topic, one line each, and a panel beside it with the row that was picked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from nicegui import ui
from nicegui.element import Element

from headwater.console.context import Visit
from headwater.console.kit.controls import button
from headwater.console.kit.layout import block, html
from headwater.console.kit.live import attempt
from headwater.console.kit.values import is_number
from headwater.console.kit.words import clipped, moment
from headwater.console.topics.frame import row_path
from headwater.console.topics.row_page import RowView
from headwater.log.topic import Topic
from headwater.services.row_text import Row

#: A line shows so much of a value; the row's own page shows all of it.
LINE_CHARACTERS_MAX = 320
KEY_CHARACTERS_MAX = 120
#: Columns that a line shows beside each other; the panel beside the list shows all of them.
COLUMNS_MAX = 8
CELL_CHARACTERS_MAX = 80
#: How much of a value stands before the text that was searched for.
BEFORE_CHARACTERS = 16


class RowList(Element, component="rows.js"):
    """The list; only lines in sight are in the page. With `fit` it is as high as its rows, else it scrolls in `height`."""

    def __init__(
        self,
        topic: Topic,
        *,
        label: str,
        none: str,
        # Any: NiceGUI takes plain and asynchronous functions.
        on_pick: Callable[[int, int], Any],
        on_close: Callable[[], Any],
        fit: bool,
        height: str,
    ) -> None:
        super().__init__()
        self._topic = topic
        self._props.update(
            rows=[],
            turn=0,
            label=label,
            none=none,
            keyed=bool(topic.key) or topic.schemaless,
            timed=topic.time_column is not None,
            numbered=topic.partitions > 1,
            fit=fit,
            height=height,
            mark="",
            columns=[
                {"name": column.name, "right": is_number(column.type), "size": size_of(column.type)}
                for column in ([] if topic.schemaless else topic.schema)
            ][:COLUMNS_MAX],
        )
        self.on("pick", lambda event: on_pick(*place_of(str(event.args))))
        self.on("close", lambda _: on_close())

    def set_rows(self, rows: Iterable[Row], *, mark: str = "") -> None:
        """Show these rows and no others, with a text marked in them."""
        lines = [self._line(row, mark) for row in rows]
        if (lines, mark) != (self._props["rows"], self._props["mark"]):
            self._props.update(rows=lines, mark=mark, turn=self._props["turn"] + 1)
            self.update()

    def set_none(self, text: str) -> None:
        """What the list shows if it has no rows."""
        self._props["none"] = text
        self.update()

    async def push(self, rows: Sequence[Row], *, most: int, gap: str = "") -> int | None:
        """Put rows on top, the newest first, and wait until the browser has them; return how many rows it keeps."""
        lines: list[dict[str, Any]] = [self._line(row) for row in reversed(rows)]
        if gap:
            lines.append({"i": f"gap before {rows[0].partition}/{rows[0].offset}", "gap": gap})
        kept = await self.run_method("push", lines, most, timeout=20)
        return None if kept is None else int(kept)

    def empty(self) -> None:
        self.run_method("empty")

    def unpick(self) -> None:
        self.run_method("unpick")

    def _line(self, row: Row, mark: str = "") -> dict[str, Any]:
        return {
            "i": f"{row.partition}/{row.offset}",
            "p": str(row.partition),
            "o": str(row.offset),
            "href": row_path(self._topic.name, row.partition, row.offset),
            "at": moment(row.appended_us),
            "ev": moment(row.event_us),
            "key": clipped(row.key or "", KEY_CHARACTERS_MAX),
            "value": around(row.value, mark) if row.value is not None else "null",
            "form": row.form,
            "cells": cells_of(row, [column["name"] for column in self._props["columns"]]),
            "t": row.is_tombstone,
            "h": str(len(row.headers)) if row.headers else "",
            "ht": "\n".join(f"{name}: {clipped(value, KEY_CHARACTERS_MAX)}" for name, value in row.headers),
        }


class RowBrowser:
    """A list of rows, and a panel beside it that shows the row that was picked."""

    def __init__(
        self,
        visit: Visit,
        topic: Topic,
        *,
        label: str,
        none: str,
        fit: bool = False,
        height: str = "max(320px, calc(100vh - 330px))",
    ) -> None:
        self._rows, self._topic = visit.services.rows, topic
        self._place = (0, 0)
        with block("with-beside"):
            with block("grow"):
                self.list = RowList(
                    topic, label=label, none=none, on_pick=self._pick, on_close=self.close, fit=fit, height=height
                )
            self._panel = ui.element("aside").classes("card beside").props('aria-label="Row" tabindex="-1"')
        with self._panel:
            with block("row-flex nowrap-row"):
                self._title = html("").classes("grow")
                button("", lambda: self._step(forwards=False), icon="expand_less", kind="ghost", label="The row before")
                button("", lambda: self._step(forwards=True), icon="expand_more", kind="ghost", label="The row after")
                button("", self.close, icon="close", kind="ghost", label="Close")
            self._problem = ui.label("").classes("quiet")
            self._view = RowView()
        self._panel.set_visibility(False)
        self._panel.on("keydown.escape", self.close)

    def close(self) -> None:
        """Close the panel."""
        self._panel.set_visibility(False)
        self.list.unpick()

    async def _pick(self, partition: int, offset: int) -> None:
        self._place = (partition, offset)
        result = await attempt(lambda: self._rows.row(self._topic.name, partition, offset))
        row = None if result is None else result.row
        path = row_path(self._topic.name, partition, offset)
        self._title.set_content(
            f'<h2><a href="{path}" title="The address of this row">Partition {partition}, offset {offset}</a></h2>'
        )
        self._problem.set_text("" if row else "This row is no longer there: it was deleted or compacted away.")
        self._problem.set_visibility(row is None)
        if row is None:
            self._view.hide()
        else:
            self._view.show(row)
        self._panel.set_visibility(True)

    async def _step(self, *, forwards: bool) -> None:
        partition, offset = self._place
        result = await attempt(lambda: self._rows.row(self._topic.name, partition, offset))
        other = None if result is None else result.after if forwards else result.before
        if other is not None:
            await self._pick(partition, other)


def size_of(kind: pa.DataType) -> str:
    """How much of the width a column gets: times need more than others, truth values less.

    >>> size_of(pa.timestamp("us")), size_of(pa.bool_()), size_of(pa.string())
    ('wide', 'narrow', '')
    """
    return "wide" if pa.types.is_timestamp(kind) else "narrow" if pa.types.is_boolean(kind) else ""


def cells_of(row: Row, columns: Sequence[str]) -> list[str | None]:
    """The values of some columns as texts, numbers with all their digits; none for a row that is not a JSON object."""
    if row.form != "json" or not columns:
        return []
    try:
        values = json.loads(row.value or "null", parse_int=str, parse_float=str)
    except ValueError:
        return []
    if not isinstance(values, dict):
        return []
    return [_cell(values.get(name)) for name in columns]


# Any: a JSON value.
def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else clipped(value, CELL_CHARACTERS_MAX)
    return clipped(json.dumps(value, ensure_ascii=False), CELL_CHARACTERS_MAX)


def place_of(text: str) -> tuple[int, int]:
    """The partition and the offset of a line.

    >>> place_of("3/73314510714175488")
    (3, 73314510714175488)
    """
    partition, _, offset = text.partition("/")
    return int(partition), int(offset)


def around(text: str, mark: str) -> str:
    """The part of a value that a line shows: its beginning, or the part around the text that was searched for.

    A line may be narrow, so that only a little stands before it.

    >>> around('{"order": 73314510714175488, "customer": "grace"}', "grace")
    '…8, "customer": "grace"}'
    """
    start = text.lower().find(mark.lower()) - BEFORE_CHARACTERS if mark else 0
    return clipped(text, LINE_CHARACTERS_MAX) if start <= 0 else "…" + clipped(text[start:], LINE_CHARACTERS_MAX)
