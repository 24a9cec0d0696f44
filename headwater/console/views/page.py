"""One view: its rows as they change, a chart of them, one row by its key, and its definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.context import Visit, context
from headwater.console.kit.controls import button
from headwater.console.kit.layout import Stat, block, card, facts, heading, html, note, pill, tabs
from headwater.console.kit.live import LivePage, read
from headwater.console.kit.plot import POINTS_MAX, Choice, Plot, is_time
from headwater.console.kit.table import Column, Pages, Row, Table
from headwater.console.kit.values import NULL, cells_of, columns_of, is_number, rows_of
from headwater.console.kit.words import ago, count, short, span
from headwater.console.pages import path_to, screen
from headwater.console.views.list_page import freshness
from headwater.errors import EncodingInvalid, HeadwaterError, RowInvalid
from headwater.schema import encodings, parse_schema, to_batches
from headwater.schema.notation import format_type
from headwater.services.json_form import from_json, to_json
from headwater.services.views import ViewDescription
from headwater.views.duckdb_types import quoted
from headwater.views.errors import ViewKeyInvalid

#: The first row of the page, the column and the direction of its order; or what the chart draws.
Chosen = tuple[int, str, bool] | Choice | None
TABS = {"Rows": "rows", "Chart": "chart", "Definition": "definition"}


@dataclass(frozen=True, kw_only=True)
class ViewContent:
    """A view as it was last loaded."""

    view: ViewDescription
    rows: int
    status: QueryStatus | None
    page: pa.Table | None = None
    points: pa.Table | None = None
    chosen: Chosen
    """What the user had chosen when the load began."""
    version: tuple[object, ...]
    """The state of the store: as long as it is the same, so are the rows."""


@screen("/views/{name}", under="/views")
async def view(visit: Visit, name: str, tab: str = "rows") -> None:
    view = await read(lambda: visit.services.views.describe(name))
    graphs = await read(context().services.queries.graphs)
    edges = [edge for graph in graphs for edge in graph.edges]
    reads = sorted({first for first, second in edges if second == f"{name}()"}) or sorted(view.sources)
    ViewPage(visit, view, reads, tab if tab in TABS.values() else "rows").start(seconds=1.0)


class ViewPage(LivePage[ViewContent]):
    """The page of a view, with one of its tabs."""

    def __init__(self, visit: Visit, view: ViewDescription, reads: Sequence[str], tab: str) -> None:
        self._visit, self._view, self._tab, self._name, self._key = visit, view, tab, view.name, list(view.key)
        given = parse_schema(view.schema)
        # The key stands in front: a row is found by it.
        self._schema = pa.schema(
            [given.field(name) for name in (*self._key, *(name for name in given.names if name not in self._key))]
        )
        self._content: ViewContent | None = None
        self._build_head()
        if tab == "rows":
            self._sort, self._down = "0", False
            #: The rows that are shown, by key, and what was chosen then.
            self._before: dict[str, list[str | None]] = {}
            self._before_chosen: Chosen = None
            Lookup(visit, view, self._schema)
            with card(flush=True, classes="whole-cells"):
                self._table = Table(
                    columns_of(self._schema, sortable=True, left=self._key),
                    label=f"Rows of {self._name}",
                    none="No row yet.",
                    sort=self._sort,
                    on_sort=self._sort_by,
                )
                self._pages = Pages(self.refresh)
        elif tab == "chart":
            with card("Chart"):
                self._plot = Plot(label=f"Chart of {self._name}", dark=visit.dark, on_change=self.refresh)
                self._plot.offer(self._schema, self._key)
        else:
            definition(view, self._schema, reads)

    def _build_head(self) -> None:
        name = self._name
        key = " and ".join(f"`{column}`" for column in self._key)
        with heading(name, under=f"A table of one row for each {key}, kept by its query."):
            topic, query = path_to("topics", self._view.topic), path_to("queries", name)
            statement = quote(f"SELECT * FROM {name if name.isidentifier() else quoted(name)}", safe="")
            sql = f"{path_to('sql')}?text={statement}"
            button("Topic", lambda: ui.navigate.to(topic), kind="ghost", icon="view_stream")
            button("Query", lambda: ui.navigate.to(query), kind="ghost", icon="bolt")
            button("Ask in SQL", lambda: ui.navigate.to(sql), icon="terminal")
        self._problem = note("", "bad")
        self._problem.set_visibility(False)
        with block("grid tiles"):
            self._rows = Stat("Rows")
            self._fresh = Stat("Freshness", why="freshness")
            self._behind = Stat("Behind its sources", why="behind")
            self._changed = Stat("Last change")
        addresses = {label: f"{path_to('views', name)}?tab={tab}" for label, tab in TABS.items()}
        tabs(addresses, current=self._tab.capitalize())

    async def _sort_by(self, column: str) -> None:
        self._down = not self._down if column == self._sort else False
        self._sort = column
        self._table.set_sort(column, down=self._down)
        self._pages.first = 0
        await self.refresh()

    # -- loading ------------------------------------------------------------------------------------------------------

    def _chosen(self) -> Chosen:
        if self._tab == "rows":
            return self._pages.first, self._sort, self._down
        return self._plot.choice if self._tab == "chart" else None

    def load(self) -> ViewContent:
        chosen, known, name = self._chosen(), self._content, self._name
        statuses = context().history.statuses
        status = next((one for one in statuses if (one.name, one.app) == (name, self._view.app)), None)
        runs = self._view.app in context().history.running
        # The store of a stopped app does not change, and is not opened again: the app may be about to start.
        if known is not None and known.chosen == chosen and not runs and not known.view.running:
            return known
        with self._visit.services.views.open(name, app=self._view.app) as store:
            view = replace(from_json(ViewDescription, {**to_json(self._view), **store.describe()}), running=runs)
            version = (view.version, view.offsets, view.applied_at_us)
            if known is not None and (known.chosen, known.version) == (chosen, version):
                return replace(known, view=view, status=status)
            rows = int(store.sql(f"SELECT count(*) AS n FROM {quoted(name)}").column("n")[0].as_py())
            page = store.sql(self._page_statement(*chosen)) if isinstance(chosen, tuple) else None
            points = store.sql(self._points_statement(chosen)) if isinstance(chosen, Choice) else None
        return ViewContent(
            view=view, rows=rows, status=status, page=page, points=points, chosen=chosen, version=version
        )

    def _page_statement(self, first: int, sort: str, down: bool) -> str:
        names = self._schema.names
        order = [f"{quoted(names[int(sort)])} {'DESC' if down else 'ASC'} NULLS LAST", *map(quoted, self._key)]
        return (
            f"SELECT {', '.join(map(quoted, names))} FROM {quoted(self._name)} ORDER BY {', '.join(order)} "
            f"LIMIT {self._pages.size} OFFSET {first}"
        )

    def _points_statement(self, choice: Choice) -> str:
        """The rows of a chart: the newest if it is drawn over time, else the largest."""
        columns = dict.fromkeys([choice.x, choice.y, *([choice.split] if choice.split else [])])
        order = choice.x if is_time(self._schema.field(choice.x).type) else choice.y
        return (
            f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(self._name)} "
            f"ORDER BY {quoted(order)} DESC NULLS LAST LIMIT {POINTS_MAX}"
        )

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, content: ViewContent) -> None:
        if content.chosen != self._chosen():  # the user has chosen something else, and another load is under way
            return
        self._content, view, status = content, content.view, content.status
        text, tone = freshness(view)
        self._rows.set(count(content.rows))
        self._fresh.set(text[0].upper() + text[1:], tone=tone, foot=f"version {view.version}")
        self._changed.set(ago(view.applied_at_us or None))
        self._show_lag(view, status)
        self._problem.set_visibility(bool(view.problem))
        if view.problem:
            self._problem.clear()
            with self._problem:
                ui.label(str(view.problem))
        if content.page is not None:
            self._pages.set_count(content.rows)
            self._show_rows(content.page, content.chosen)
        if content.points is not None:
            self._plot.set(content.points)

    def _show_lag(self, view: ViewDescription, status: QueryStatus | None) -> None:
        """How far the view is behind its sources; before its first change, how far its query is."""
        lag, seconds = view.lag_rows, view.lag_seconds
        if lag is None and status is not None:
            lag, seconds = status.lag_rows, status.lag_seconds
        if lag is None:
            self._behind.set("–", foot="not known yet")
            return
        foot = f"the first waits {span(seconds or 0.0)}" if lag else "has read all there is"
        self._behind.set(short(lag), unit="rows", foot=foot, tone="warn" if lag > 10_000 else "")

    def _show_rows(self, page: pa.Table, chosen: Chosen) -> None:
        # A new row is fresh as a whole, unless the user has just turned the page.
        is_same_page, self._before_chosen = chosen == self._before_chosen, chosen
        texts = {orjson.dumps(row[: len(self._key)]).decode(): row for row in rows_of(page)}
        self._table.set_rows(
            [
                Row(cells_of(row, self._before.get(key, []) if is_same_page else None), key=key)
                for key, row in texts.items()
            ]
        )
        self._before = texts


class Lookup:
    """One row by its key."""

    def __init__(self, visit: Visit, view: ViewDescription, schema: pa.Schema) -> None:
        self._visit, self._view, self._schema = visit, view, schema
        with block("stack"):
            with block("row-flex"):
                self._boxes = {column: self._box(column) for column in view.key}
                button("Look up", self._look_up, icon="key", label="Look a row up by its key")
            self._result = block("card")
            self._result.set_visibility(False)

    def _box(self, column: str) -> ui.input:
        made = ui.input(placeholder=column).classes("field").props(f'outlined dense aria-label="Key: {escape(column)}"')
        return made.on("keydown.enter", self._look_up)

    async def _look_up(self) -> None:
        given = {column: box.value or "" for column, box in self._boxes.items()}
        row, problem = None, f"No row has the key {', '.join(given.values())}."
        try:
            row = await read(lambda: self._row(given))
        except HeadwaterError as error:
            problem = str(error)
        self._result.set_visibility(True)
        self._result.clear()
        with self._result:
            if row is None:
                ui.label(problem).classes("quiet").props('role="status"')
            else:
                facts(row)

    def _row(self, given: dict[str, str]) -> list[tuple[str, str]] | None:
        key = typed_key(self._schema, given, view=self._view.name)
        with self._visit.services.views.open(self._view.name, app=self._view.app) as store:
            table = store.table(key, limit=1)
        texts = rows_of(table)
        if not texts:
            return None
        return [(name, NULL if text is None else text) for name, text in zip(table.column_names, texts[0], strict=True)]


# Any: values of any type.
def typed_key(schema: pa.Schema, given: dict[str, str], *, view: str = "") -> dict[str, Any]:
    """Texts as values of the columns: a whole number with all its digits, a time as ISO 8601.

    >>> typed_key(pa.schema([("id", pa.int64()), ("name", pa.string())]), {"id": "73314510714175488", "name": "7"})
    {'id': 73314510714175488, 'name': '7'}
    """
    key: dict[str, Any] = {}
    for name, text in given.items():
        column = schema.field(name)
        is_bare = is_number(column.type) or pa.types.is_boolean(column.type)
        value = text.strip() if is_bare and text.strip() else orjson.dumps(text).decode()
        line = f"{{{orjson.dumps(name).decode()}:{value}}}"
        try:
            [[row]] = encodings.json.decode_lines(line, pa.schema([column]), topic="the key")
            [_] = to_batches([row], pa.schema([column]), topic="the key")
        except (EncodingInvalid, RowInvalid, ValueError) as error:
            why = f"{text!r} is no {format_type(column.type)}, as {name} is"
            raise ViewKeyInvalid(view=view, why=why, key=", ".join(given)) from error
        key |= row
    return key


def definition(view: ViewDescription, schema: pa.Schema, reads: Sequence[str]) -> None:
    """The columns of a view, and where its rows come from."""
    columns = [Column(name="Column"), Column(name="Type", mono=True), Column(name="Part of the key")]
    with block("split"):
        with card("Columns", flush=True):
            Table(columns, label="Columns").set_rows(
                [
                    Row([field.name, format_type(field.type), "yes" if field.name in view.key else ""], key=field.name)
                    for field in schema
                ]
            )
        with card("Where it comes from"):
            links = {
                "App": escape(view.app),
                "Query": _link("queries", view.name),
                "Reads": ", ".join(_link("topics", topic) for topic in reads) or "nothing known",
                "Changelog": _link("topics", view.topic),
                "Key": escape(", ".join(view.key)),
                "Version": escape(f"{view.version} (of {', '.join(map(str, view.versions))})"),
            }
            rows = "".join(f"<dt>{label}</dt><dd>{markup}</dd>" for label, markup in links.items() if markup)
            html(f'<dl class="facts">{rows}</dl>')
            html(f'<a href="{path_to("topology")}">See it in the topology</a>')
            if len(view.versions) > 1:
                pill("another version is being tried", "info")


def _link(kind: str, name: str) -> str:
    return f'<a href="{path_to(kind, name)}">{escape(name)}</a>'
