"""SQL over topics and views: written with the names at hand, answered once or again and again, drawn and taken along."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
from nicegui import context as page_context
from nicegui import ui

from headwater.console.kit.cells import columns_of, rows_of, shown
from headwater.console.kit.editor import Editor
from headwater.console.kit.layout import block, button, card, empty, heading
from headwater.console.kit.names import Names
from headwater.console.kit.plot import Plot
from headwater.console.kit.table import Pages, Row, Table
from headwater.console.kit.words import count, span
from headwater.console.pages import screen
from headwater.console.sql.statements import ROWS_MAX, SECONDS_MAX, Answer, StatementRunner, spot, told
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError

WATCH_SECONDS = 2.0
PAST_MAX = 30
PAST = "headwater_sql"
#: Longer statements do not stand in the address.
ADDRESS_MAX = 4_000


@screen("/sql", title="SQL", group="Data", icon="terminal", key="s", order=40)
def sql(visit: Visit, text: str = "") -> None:
    SqlPage(visit, text[:20_000])


class SqlPage:
    """The page: editor, names, what was asked before, and the answer."""

    def __init__(self, visit: Visit, text: str) -> None:
        self._visit = visit
        self._asker = StatementRunner(visit.services.sql, page_context.client)
        self._timer: ui.timer | None = None
        heading(
            "SQL",
            under="One SELECT over topics and views, run by DuckDB beside the log. Nothing is changed by it.",
            why="sql",
        )
        with block("with-aside"):
            with block("stack wide"):
                self._editor_card(text)
                self._result = AnswerCard(visit)
            with block("stack wide"):
                self._names = Names(visit, self._insert)
                self._past = StatementHistory(self._take)
        if text:
            ui.timer(0.2, self._run, once=True)

    def _editor_card(self, text: str) -> None:
        with card():
            self._editor = Editor(
                label="Statement", dark=self._visit.dark, value=text, on_run=self._run, on_change=self._changed
            )
            with block("row-flex"):
                self._run_button = button("Run", self._run, icon="play_arrow", kind="primary")
                self._watch_button = button("Watch", self._watch, icon="visibility", label="Ask again every 2 seconds")
                self._stop_button = button("Stop", self._stop, icon="stop")
                self._stop_button.set_visibility(False)
                ui.html("<kbd>Ctrl</kbd> <kbd>Enter</kbd>", sanitize=False).classes("only-wide")
                block("grow")
                ui.label(f"At most {count(ROWS_MAX)} rows and {SECONDS_MAX:.0f} s").classes("quiet small")
            self._told = ui.label("").classes("tone-text-bad").props('role="alert"')
            self._told.set_visibility(False)

    def _insert(self, name: str) -> None:
        if self._editor.value.strip():
            self._editor.insert(name)
        else:
            self._editor.set(f"SELECT * FROM {name}")

    def _take(self, text: str) -> None:
        self._editor.set(text)

    def _changed(self) -> None:
        self._editor.underline(None)

    # -- asking -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._end_watch()
        await self._ask()

    def _watch(self) -> None:
        self._end_watch()
        self._timer = ui.timer(WATCH_SECONDS, self._ask)
        self._watch_button.classes(add="on")
        self._stop_button.set_visibility(True)

    def _stop(self) -> None:
        self._end_watch()
        self._asker.stop()

    def _end_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watch_button.classes(remove="on")
        self._stop_button.set_visibility(False)

    async def _ask(self) -> None:
        if self._asker.is_busy or not (text := self._editor.value.strip()):
            return  # the one before still runs
        self._stop_button.set_visibility(True)
        self._run_button.props("loading")
        answer, error = None, None
        try:
            answer = await self._asker.ask(self._editor.value)
        except HeadwaterError as refused:
            error = refused
        finally:
            if not self._asker.is_gone:
                self._run_button.props(remove="loading")
                self._stop_button.set_visibility(self._timer is not None)
        if self._asker.is_gone:
            return
        self._fail(error, self._asker.stopped)
        if answer is not None:
            self._show(answer, text)

    def _show(self, answer: Answer, text: str) -> None:
        self._result.show(answer, again=self._timer is not None)
        self._past.add(text)
        if len(text) <= ADDRESS_MAX:
            ui.run_javascript(f"history.replaceState(null, '', '?text=' + encodeURIComponent({json.dumps(text)}))")

    def _fail(self, error: HeadwaterError | None, stopped: str = "") -> None:
        self._told.set_visibility(error is not None)
        if error is None:
            self._editor.underline(None)
            return
        self._end_watch()
        self._told.set_text(stopped or told(error))
        self._editor.underline(None if stopped else spot(self._editor.value, error))


class AnswerCard:
    """The answer: rows or a chart, how many and how long it took, and the way to take it along."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._answer: Answer | None = None
        self._texts: list[list[str | None]] = []
        self._before: list[list[str | None]] = []
        with card(flush=True, classes="whole-cells"):
            with block("card-head"):
                self._told = ui.label("Result").classes("quiet small").props('role="status"')
                block("grow")
                with block("seg"):
                    self._rows_button = self._choice("Rows", lambda: self._turn(chart=False))
                    self._chart_button = self._choice("Chart", lambda: self._turn(chart=True))
                button("CSV", self._download, icon="download", label="Download the rows as CSV")
            with block("") as self._table_place:
                empty("No answer yet", "Pick a name at the side, or write a SELECT.", icon="terminal")
            with block("") as self._pages_place:
                self._pages = Pages(self._show_rows)
            with block("card-body") as self._chart_place:
                self._plot = Plot(label="Chart of the answer", dark=visit.dark, on_change=self._draw)
        self._table: Table | None = None
        self._schema: pa.Schema | None = None
        self._turn(chart=False)
        self._pages_place.set_visibility(False)

    def _choice(self, label: str, on_click: object) -> ui.element:
        made = ui.element("button").props('type="button"').on("click", on_click)  # type: ignore[arg-type]  # any callable
        with made:
            ui.label(label)
        return made

    def _turn(self, *, chart: bool) -> None:
        self._is_chart = chart
        self._chart_button.classes(add="on" if chart else "", remove="" if chart else "on")
        self._rows_button.classes(add="" if chart else "on", remove="on" if chart else "")
        self._chart_button.props(f'aria-pressed="{str(chart).lower()}"')
        self._rows_button.props(f'aria-pressed="{str(not chart).lower()}"')
        self._table_place.set_visibility(not chart)
        self._pages_place.set_visibility(not chart and self._answer is not None)
        self._chart_place.set_visibility(chart)
        self._draw()

    def show(self, answer: Answer, *, again: bool) -> None:
        same = self._schema is not None and self._schema.equals(answer.table.schema)
        self._answer, self._schema = answer, answer.table.schema
        self._before = self._texts if same and again else []
        self._texts = rows_of(answer.table)
        rows = (
            f"The first {count(len(self._texts))} rows; there are more"
            if answer.is_cut
            else f"{count(len(self._texts))} {'row' if len(self._texts) == 1 else 'rows'}"
        )
        self._told.set_text(
            f"{rows} · {span(answer.seconds) if answer.seconds >= 1 else f'{answer.seconds * 1000:.0f} ms'}"
        )
        if self._table is None or not same:
            self._table_place.clear()
            with self._table_place:
                self._table = Table(columns_of(answer.table.schema), label="Answer", none="No row fits.")
            self._pages.first = 0
        self._pages_place.set_visibility(not self._is_chart)
        self._show_rows()
        self._draw()

    def _show_rows(self) -> None:
        if self._table is None:
            return
        part = self._pages.part(self._texts)
        made = []
        for place, one in enumerate(part, start=self._pages.first):
            before = None if not self._before else self._before[place] if place < len(self._before) else []
            made.append(Row(shown(one, before), key=place))
        self._table.set_rows(made)

    def _draw(self) -> None:
        if self._is_chart and self._answer is not None:
            self._plot.over(self._answer.table.schema)
            self._plot.set(self._answer.table)

    def _download(self) -> None:
        if self._answer is None or self._schema is None:
            return
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(self._schema.names)
        writer.writerows(["" if text is None else text for text in row] for row in self._texts)
        ui.download.content(file.getvalue().encode(), "answer.csv", "text/csv")


class StatementHistory:
    """What this browser has asked before; the server keeps none of it."""

    def __init__(self, on_take: object) -> None:
        self._on_take = on_take
        self._texts: list[str] = []
        with card("Asked before"):
            self._place = block("past")
            self._none = ui.label("Kept in this browser alone.").classes("quiet small")
        ui.timer(0.1, self._load, once=True)

    async def _load(self) -> None:
        found = await ui.run_javascript(f"localStorage.getItem('{PAST}') || '[]'", timeout=5.0)
        try:
            texts = json.loads(found)
        except (TypeError, ValueError):
            texts = []
        self._texts = [*self._texts, *(text for text in texts if isinstance(text, str) and text not in self._texts)][
            :PAST_MAX
        ]
        self._show()

    def add(self, text: str) -> None:
        if self._texts[:1] == [text]:
            return
        self._texts = [text, *(one for one in self._texts if one != text)][:PAST_MAX]
        ui.run_javascript(f"localStorage.setItem('{PAST}', {json.dumps(json.dumps(self._texts))})")
        self._show()

    def _show(self) -> None:
        self._none.set_visibility(not self._texts)
        self._place.clear()
        with self._place:
            for text in self._texts:
                made = ui.element("button").props('type="button"')
                made.on("click", lambda text=text: self._on_take(text))  # type: ignore[operator]  # any callable
                with made:
                    ui.label(" ".join(text.split()))
