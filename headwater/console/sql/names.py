"""The names that SQL can use: topics and views with their columns. A click writes a name where the cursor is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.kit.controls import plain_button, search_box
from headwater.console.kit.layout import block, card
from headwater.console.kit.live import read
from headwater.console.sql.suggestions import TableName
from headwater.errors import HeadwaterError
from headwater.schema import parse_schema
from headwater.schema.notation import format_type
from headwater.views.duckdb_types import quoted

SHOWN_MAX = 40
#: The columns that every topic has besides its own.
TOPIC_COLUMNS = {"_partition": "int32", "_offset": "int64", "_appended_at": "timestamp"}


def as_name(name: str) -> str:
    """A name as SQL takes it.

    >>> as_name("spend"), as_name("orders.late"), as_name("order")
    ('spend', '"orders.late"', '"order"')
    """
    is_plain = name.isidentifier() and name.isascii() and name == name.lower() and name not in _reserved_words()
    return name if is_plain else quoted(name)


@functools.cache
def _reserved_words() -> set[str]:
    import duckdb

    statement = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    with duckdb.connect(":memory:") as connection:
        return {str(word) for (word,) in connection.execute(statement).fetchall()}


class Names:
    """The list of names, with a filter; only the schemas of names that are shown are read."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, visit: Visit, on_pick: Callable[[str], Any], on_loaded: Callable[[], Any]) -> None:
        self._visit, self._on_pick, self._on_loaded = visit, on_pick, on_loaded
        self.tables: list[TableName] = []
        self._view_schemas: dict[str, str] = {}
        with card("Names"):
            self._filter = search_box("Filter names", self._show).style("width: 100%")
            self._place = block("names")
            self._more = ui.label("").classes("quiet small")
        ui.timer(0.05, self._load_views, once=True)

    async def _load_views(self) -> None:
        try:
            views = await read(lambda: self._visit.services.views.all().views)
        except HeadwaterError:  # the views cannot be read now; the topics can
            views = []
        self._view_schemas = {view.name: view.schema for view in views}
        self.tables = (await read(lambda: self._fitting("")))[0]
        self._on_loaded()
        await self._show()

    async def _show(self) -> None:
        text = (self._filter.value or "").lower()
        shown, left = await read(lambda: self._fitting(text))
        self._place.clear()
        with self._place:
            for table in shown:
                with ui.element("details"):
                    with ui.element("summary").props(f'aria-label="Columns of {table.name}"'):
                        self._button(table.name).classes("grow")
                        ui.label(table.kind).classes("kind")
                    with block(""):
                        for column, type_name in table.columns.items():
                            with self._button(column).classes("column"):
                                ui.label(type_name).classes("kind")
        self._more.set_text(
            f"{left:,} more; write a part of a name." if left else "" if shown else "No topic or view fits."
        )

    def _button(self, name: str) -> ui.element:
        return plain_button(name, lambda: self._on_pick(as_name(name)))

    def _fitting(self, text: str) -> tuple[list[TableName], int]:
        """Topics and views whose names have this text, and how many more there are."""
        log, views = context().log, self._view_schemas
        names = [*views, *(name for name in log.topics() if name not in views)]
        fitting = [name for name in names if text in name.lower() and self._visit.caller.may("read", name)]
        shown = []
        for name in fitting[:SHOWN_MAX]:
            try:
                schema = parse_schema(views[name]) if name in views else log.topic(name).schema
            except HeadwaterError:  # deleted meanwhile
                continue
            columns = {column.name: format_type(column.type) for column in schema}
            kind = "view" if name in views else "topic"
            columns = columns if name in views else columns | TOPIC_COLUMNS
            shown.append(TableName(name=name, sql_name=as_name(name), kind=kind, columns=columns))
        return shown, max(0, len(fitting) - SHOWN_MAX)
