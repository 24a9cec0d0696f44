"""One view: its rows as they change, a chart of them, one row by its key, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal, overload
from urllib.parse import quote

import orjson
import pyarrow as pa
from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.context import context
from headwater.console.kit.cells import columns_of, is_number, named, rows_of, shown
from headwater.console.kit.layout import block, button, card, heading, note, pill, tabs
from headwater.console.kit.live import every, read
from headwater.console.kit.plot import POINTS_MAX, Choice, Plot, is_time
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Pages, Row, Table
from headwater.console.kit.words import ago, count, short, span
from headwater.console.pages import screen
from headwater.console.views.list_page import freshness
from headwater.console.visit import Visit
from headwater.errors import EncodingInvalid, HeadwaterError, RowInvalid
from headwater.schema import encodings, parse_schema, to_batches
from headwater.schema.notation import format_type
from headwater.services.json_form import from_json, to_json
from headwater.services.views import ViewDescription
from headwater.views.duckdb_types import quoted
from headwater.views.errors import ViewKeyInvalid

Tab = Literal["rows", "chart", "definition"]
#: The first row of the page, the column and the direction of its order; or what is drawn.
Chosen = tuple[int, str, bool] | Choice | None
TABS = {"Rows": "rows", "Chart": "chart", "Definition": "definition"}


@dataclass(frozen=True, kw_only=True)
class ViewContent:
    """A view as it was last looked at."""

    about: ViewDescription
    rows: int
    status: QueryStatus | None
    page: pa.Table | None = None
    points: pa.Table | None = None
    #: Which rows, in which order, or which chart: what the visitor had chosen when the look began.
    chosen: Chosen
    #: The state of the view: as long as it stays, so do its rows.
    state: tuple[object, ...]


@screen("/views/{name}", under="/views")
async def view(visit: Visit, name: str, tab: str = "rows") -> None:
    about = await read(lambda: visit.services.views.describe(name))
    reads = await read(lambda: _reads(name)) or sorted(about.sources)
    page = ViewPage(visit, about, reads, tab if tab in TABS.values() else "rows")
    every(1.0, page.look, page.show)


class ViewPage:
    """The page."""

    def __init__(self, visit: Visit, about: ViewDescription, reads: Sequence[str], tab: str) -> None:
        name = about.name
        self.name, self._tab, self._visit, self._about = name, tab, visit, about
        key = list(self._about.key)
        given = parse_schema(self._about.schema)
        # The key stands in front: it is what a row is found by.
        self._schema = pa.schema([given.field(one) for one in (*key, *(n for n in given.names if n not in key))])
        self._key = key
        self._found: ViewContent | None = None
        self._head()
        if tab == "rows":
            self._rows_tab()
        elif tab == "chart":
            with card("Chart"):
                self._plot = Plot(label=f"Chart of {name}", dark=visit.dark, on_change=self._again)
                self._plot.over(self._schema, key)
        else:
            definition(self._about, self._schema, reads=reads)

    def _head(self) -> None:
        with heading(
            self.name,
            under=f"A table of one row for each {' and '.join(f'`{name}`' for name in self._key)}, kept by its query.",
        ):
            topic, query = quote(self._about.topic, safe=""), quote(self.name, safe="")
            statement = quote(
                f"SELECT * FROM {quoted(self.name) if not self.name.isidentifier() else self.name}", safe=""
            )
            button("Topic", lambda: ui.navigate.to(f"/console/topics/{topic}"), kind="ghost", icon="view_stream")
            button("Query", lambda: ui.navigate.to(f"/console/queries/{query}"), kind="ghost", icon="bolt")
            button("Ask in SQL", lambda: ui.navigate.to(f"/console/sql?text={statement}"), icon="terminal")
        self._trouble = note("", "bad")
        self._trouble.set_visibility(False)
        with block("grid tiles"):
            self._rows = Stat("Rows")
            self._fresh = Stat("Freshness", why="freshness")
            self._behind = Stat("Behind its sources", why="behind")
            self._changed = Stat("Last change")
        here = f"/console/views/{quote(self.name, safe='')}"
        tabs({label: f"{here}?tab={one}" for label, one in TABS.items()}, current=self._tab.capitalize())

    def _rows_tab(self) -> None:
        key, self._sort, self._down = self._key, "0", False
        self._before: dict[str, list[str | None]] = {}
        self._window: tuple[object, ...] = ()
        Lookup(self._visit, self._about, self._schema)
        with card(flush=True, classes="whole-cells"):
            self._table = Table(
                columns_of(self._schema, sortable=True, left=key),
                label=f"Rows of {self.name}",
                none="No row yet.",
                sort=self._sort,
                on_sort=self._order,
            )
            self._pages = Pages(self._again)

    async def _again(self) -> None:
        self.show(await read(self.look))

    async def _order(self, column: str) -> None:
        self._down = not self._down if column == self._sort else False
        self._sort = column
        self._table.set_sort(column, down=self._down)
        self._pages.first = 0
        await self._again()

    # -- looking ------------------------------------------------------------------------------------------------------

    def _chosen(self) -> Chosen:
        if self._tab == "rows":
            return self._pages.first, self._sort, self._down
        return self._plot.choice if self._tab == "chart" else None

    def look(self) -> ViewContent:
        chosen = self._chosen()
        status = next((one for one in context().history.statuses if one.name == self.name), None)
        known, runs = self._found, any(one.app == self._about.app for one in context().history.statuses)
        # Nothing changes in what its app has left, so its store is not opened again and again: an app may want to start.
        if known is not None and known.chosen == chosen and not runs and not known.about.running:
            return known
        with self._visit.services.views.open(self.name, app=self._about.app) as asked:
            about = replace(from_json(ViewDescription, {**to_json(self._about), **asked.describe()}), running=runs)
            state = (about.version, about.offsets, about.applied_at_us)
            if known is not None and (known.chosen, known.state) == (chosen, state):
                return replace(known, about=about, status=status)
            rows = int(asked.sql(f"SELECT count(*) AS n FROM {quoted(self.name)}").column("n")[0].as_py())
            page = asked.sql(self._statement(*chosen)) if isinstance(chosen, tuple) else None
            points = asked.sql(_points(self.name, self._schema, chosen)) if isinstance(chosen, Choice) else None
        return ViewContent(about=about, rows=rows, status=status, page=page, points=points, chosen=chosen, state=state)

    def _statement(self, first: int, sort: str, down: bool) -> str:
        names = self._schema.names
        order = [
            f"{quoted(names[int(sort)])} {'DESC' if down else 'ASC'} NULLS LAST",
            *map(quoted, self._key),
        ]
        return (
            f"SELECT {', '.join(map(quoted, names))} FROM {quoted(self.name)} ORDER BY {', '.join(order)} "
            f"LIMIT {self._pages.size} OFFSET {first}"
        )

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, found: ViewContent) -> None:
        if found.chosen != self._chosen():  # the visitor has chosen something else meanwhile, and another look is at it
            return
        self._found, about, status = found, found.about, found.status
        text, tone = freshness(about)
        self._rows.set(count(found.rows))
        self._fresh.set(text if text != "up to date" else "Up to date", tone=tone, foot=f"version {about.version}")
        self._changed.set(ago(about.applied_at_us or None))
        if status is None or status.lag_rows is None:
            self._behind.set("–", foot="its app does not run" if not about.running else "not known yet")
        else:
            waits = f"the first waits {span(status.lag_seconds)}" if status.lag_rows else "has read all there is"
            self._behind.set(
                short(status.lag_rows), unit="rows", foot=waits, tone="warn" if status.lag_rows > 10_000 else ""
            )
        self._trouble.set_visibility(bool(about.problem))
        if about.problem:
            self._trouble.clear()
            with self._trouble:
                ui.label(str(about.problem))
        if found.page is not None:
            self._show_rows(found)
        if found.points is not None:
            self._plot.set(found.points)

    def _show_rows(self, found: ViewContent) -> None:
        assert found.page is not None
        texts = rows_of(found.page)
        assert isinstance(found.chosen, tuple)
        same, self._window = found.chosen == self._window, found.chosen
        now: dict[str, list[str | None]] = {}
        made = []
        for one in self._pages.part(Window(found.rows, found.chosen[0], texts)):
            key = orjson.dumps(one[: len(self._key)]).decode()
            # A row that was not here before is fresh as a whole, unless the visitor has just turned the page.
            made.append(Row(shown(one, self._before.get(key, []) if same else None), key=key))
            now[key] = one
        self._before = now
        self._table.set_rows(made)


class Window(Sequence[Any]):
    """A long list of which only one page has been read."""

    def __init__(self, total: int, first: int, rows: list[Any]) -> None:
        self.total, self.first, self.rows = total, first, rows

    def __len__(self) -> int:
        return self.total

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, int):
            return self.rows[place - self.first]
        return self.rows if (place.start or 0) == self.first else []


class Lookup:
    """One row by its key."""

    def __init__(self, visit: Visit, about: ViewDescription, schema: pa.Schema) -> None:
        self._visit, self._about, self._schema = visit, about, schema
        with block("stack"):
            with block("row-flex"):
                self._boxes = {one: self._box(one) for one in about.key}
                button("Look up", self._look, icon="key", label="Look a row up by its key")
            self._place = block("card")
            self._place.set_visibility(False)

    def _box(self, column: str) -> ui.input:
        made = ui.input(placeholder=column).classes("field").props(f'outlined dense aria-label="Key: {escape(column)}"')
        return made.on("keydown.enter", self._look)

    async def _look(self) -> None:
        given = {one: box.value or "" for one, box in self._boxes.items()}
        try:
            found = await read(lambda: self._row(given))
        except HeadwaterError as error:
            self._show(str(error), None)
            return
        self._show(f"No row has the key {', '.join(given.values())}.", found)

    def _row(self, given: dict[str, str]) -> dict[str, str] | None:
        typed = typed_key(self._schema, given, view=self._about.name)
        with self._visit.services.views.open(self._about.name, app=self._about.app) as asked:
            table = asked.table(typed, limit=1)
        texts = rows_of(table)
        return named(table.schema, texts[0]) if texts else None

    def _show(self, trouble: str, found: dict[str, str] | None) -> None:
        self._place.set_visibility(True)
        self._place.clear()
        with self._place:
            if found is None:
                ui.label(trouble).classes("quiet").props('role="status"')
            else:
                facts(found)


# Any: values of any type.
def typed_key(schema: pa.Schema, given: dict[str, str], *, view: str = "") -> dict[str, Any]:
    """Written values as those of the columns: a whole number to its last digit, a time as ISO 8601.

    >>> typed_key(pa.schema([("id", pa.int64()), ("name", pa.string())]), {"id": "73314510714175488", "name": "7"})
    {'id': 73314510714175488, 'name': '7'}
    """
    found: dict[str, Any] = {}
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
        found |= row
    return found


def facts(values: dict[str, str]) -> None:
    """Names and values, one under another."""
    inner = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values.items())
    ui.html(f'<dl class="facts">{inner}</dl>', sanitize=False)


def definition(about: ViewDescription, schema: pa.Schema, *, reads: Sequence[str]) -> None:
    """What the view is made of, and of which columns."""
    with block("split"):
        with card("Columns", flush=True):
            table = Table(
                [Column(name="Column"), Column(name="Type", mono=True), Column(name="Part of the key")],
                label="Columns",
            )
            table.set_rows(
                [
                    Row([one.name, format_type(one.type), "yes" if one.name in about.key else ""], key=one.name)
                    for one in schema
                ]
            )
        with card("Where it comes from"):
            _upstream(about, reads)


def _upstream(about: ViewDescription, reads: Sequence[str]) -> None:
    name, topic = about.name, about.topic
    links = (
        ", ".join(f'<a href="/console/topics/{quote(one, safe="")}">{escape(one)}</a>' for one in reads)
        or "nothing known"
    )
    rows = {
        "App": escape(about.app),
        "Query": f'<a href="/console/queries/{quote(name, safe="")}">{escape(name)}</a>',
        "Reads": links,
        "Changelog": f'<a href="/console/topics/{quote(topic, safe="")}">{escape(topic)}</a>',
        "Key": escape(", ".join(about.key)),
        "Version": escape(f"{about.version} (of {', '.join(map(str, about.versions))})"),
    }
    inner = "".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in rows.items() if value)
    ui.html(f'<dl class="facts">{inner}</dl>', sanitize=False)
    ui.html('<a href="/console/topology">See it in the topology</a>', sanitize=False)
    if len(about.versions) > 1:
        pill("another version is being tried", "info")


def _reads(name: str) -> list[str]:
    """The topics that the query of a view reads."""
    edges = [edge for graph in context().services.queries.graphs() for edge in graph.edges]
    return sorted({first for first, second in edges if second == f"{name}()"})


def _points(name: str, schema: pa.Schema, choice: Choice) -> str:
    """The rows that a chart needs: the newest where it is drawn over time, the largest otherwise."""
    chosen = dict.fromkeys([choice.x, choice.y, *([choice.split] if choice.split else [])])
    columns = ", ".join(map(quoted, chosen))
    order = choice.x if is_time(schema.field(choice.x).type) else choice.y
    return f"SELECT {columns} FROM {quoted(name)} ORDER BY {quoted(order)} DESC NULLS LAST LIMIT {POINTS_MAX}"
