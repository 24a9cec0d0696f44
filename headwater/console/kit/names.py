"""What can be asked: topics and views with their columns. A click writes a name where the cursor is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.layout import block, card, search_box
from headwater.console.kit.live import read
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.schema import parse_schema
from headwater.schema.notation import format_type
from headwater.views.duckdb_types import quoted

SHOWN_MAX = 40
_OWN = {"_partition": "int32", "_offset": "int64", "_appended_at": "timestamp"}


def as_name(name: str) -> str:
    """A name as SQL takes it.

    >>> as_name("spend"), as_name("orders.late"), as_name("order")
    ('spend', '"orders.late"', '"order"')
    """
    plain = name.isidentifier() and name.isascii() and name == name.lower() and name not in _kept_words()
    return name if plain else quoted(name)


def _kept_words() -> set[str]:
    import duckdb

    global _words
    if not _words:
        with duckdb.connect(":memory:") as connection:
            found = connection.execute(
                "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
            )
            _words = {str(word) for (word,) in found.fetchall()}
    return _words


_words: set[str] = set()


class Names:
    """The list, with a filter; with very many topics only those that fit are read."""

    def __init__(self, visit: Visit, on_pick: Callable[[str], Any]) -> None:
        self._visit, self._on_pick = visit, on_pick
        self._of_views: dict[str, str] = {}
        with card("Names"):
            self._box = search_box("Filter names", self._show).style("width: 100%")
            self._place = block("names")
            self._more = ui.label("").classes("quiet small")
        ui.timer(0.05, self._load, once=True)

    async def _load(self) -> None:
        try:
            found = await read(lambda: self._visit.services.views.all().views)
        except HeadwaterError:  # the views cannot be asked now; the topics can
            found = []
        self._of_views = {one.name: one.schema for one in found}
        await self._show()

    async def _show(self) -> None:
        shown, left = await read(self._found)
        self._place.clear()
        with self._place:
            for name, kind, columns in shown:
                self._entry(name, kind, columns)
        self._more.set_text(
            f"{left:,} more; write a part of a name." if left else "" if shown else "No topic or view fits."
        )

    def _found(self) -> tuple[list[tuple[str, str, dict[str, str]]], int]:
        text = (self._box.value or "").lower()
        log, caller = context().log, self._visit.caller
        names = [("view", name) for name in self._of_views]
        names += [("topic", name) for name in log.topics() if name not in self._of_views]
        fit = [(kind, name) for kind, name in names if text in name.lower() and caller.may("read", name)]
        shown = []
        for kind, name in fit[:SHOWN_MAX]:
            try:
                schema = parse_schema(self._of_views[name]) if kind == "view" else log.topic(name).schema
            except HeadwaterError:  # deleted meanwhile
                continue
            shown.append((name, kind, {**_typed(schema), **({} if kind == "view" else _OWN)}))
        return shown, max(0, len(fit) - SHOWN_MAX)

    def _entry(self, name: str, kind: str, columns: dict[str, str]) -> None:
        with ui.element("details"):
            with ui.element("summary").props(f'aria-label="Columns of {name}"'):
                self._button(name).classes("grow")
                ui.label(kind).classes("kind")
            with block(""):
                for column, type_name in columns.items():
                    with self._button(column, classes="column"):
                        ui.label(type_name).classes("kind")

    def _button(self, name: str, *, classes: str = "") -> ui.element:
        made = ui.element("button").props('type="button"').classes(classes)
        made.on("click.prevent", lambda: self._on_pick(as_name(name)))
        with made:
            ui.label(name)
        return made


def _typed(schema: pa.Schema) -> dict[str, str]:
    return {one.name: format_type(one.type) for one in schema}
