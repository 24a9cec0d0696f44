"""SQL over topics and views: an editor with the names at hand; the answer as rows, as a chart, as CSV, once or watched."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from nicegui import context as page_context
from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import Segments, button, plain_button
from headwater.console.kit.editor import Editor
from headwater.console.kit.layout import block, card, empty, heading, html
from headwater.console.kit.plot import Plot
from headwater.console.kit.table import Pages, Row, Table
from headwater.console.kit.values import cells_of, columns_of, rows_of
from headwater.console.kit.words import count, counted, duration
from headwater.console.pages import screen
from headwater.console.sql.names import Names
from headwater.console.sql.statements import ROWS_MAX, SECONDS_MAX, Answer, StatementRunner, problem_of, spot
from headwater.console.sql.suggestions import examples, suggestions
from headwater.errors import HeadwaterError

WATCH_SECONDS = 2.0
HISTORY_MAX = 30
#: The key of the statements in the browser's storage.
STORAGE_KEY = "headwater_sql"
#: Longer statements are not put into the address.
ADDRESS_MAX = 4_000


@screen("/sql", title="SQL", group="Data", icon="terminal", key="s", order=40)
def sql(visit: Visit, text: str = "") -> None:
    SqlPage(visit, text[:20_000])


class SqlPage:
    """The page: editor, names, earlier statements, and the answer."""

    def __init__(self, visit: Visit, text: str) -> None:
        self._visit = visit
        self._runner = StatementRunner(visit.services.sql, page_context.client)
        self._timer: ui.timer | None = None
        heading(
            "SQL",
            under="One SELECT over topics and views, run by DuckDB beside the log. Nothing is changed by it.",
            why="sql",
        )
        with block("with-aside"):
            with block("stack wide"):
                self._build_editor(text)
                self._answer = AnswerCard(visit)
            with block("stack wide"):
                self._names = Names(visit, self._insert, self._show_examples)
                self._history = StatementHistory(self._editor.set)
        if text:
            ui.timer(0.2, self._run, once=True)

    def _build_editor(self, text: str) -> None:
        with card():
            self._editor = Editor(
                label="Statement",
                dark=self._visit.dark,
                value=text,
                on_run=self._run,
                on_change=self._changed,
            )
            self._suggestions = block("row-flex suggestions").props('role="group" aria-label="Names that fit"')
            with block("row-flex"):
                self._run_button = button("Run", self._run, icon="play_arrow", kind="primary")
                self._watch_button = button("Watch", self._watch, icon="visibility", label="Ask again every 2 seconds")
                self._stop_button = button("Stop", self._stop, icon="stop")
                self._stop_button.set_visibility(False)
                html("<kbd>Ctrl</kbd> <kbd>Enter</kbd>").classes("only-wide")
                block("grow")
                ui.label(f"At most {count(ROWS_MAX)} rows and {SECONDS_MAX:.0f} s").classes("quiet small")
            self._problem = ui.label("").classes("tone-text-bad").props('role="alert"')
            self._problem.set_visibility(False)

    def _changed(self) -> None:
        self._editor.underline(None)
        word, names = suggestions(self._editor.value, self._names.tables)
        self._suggestions.clear()
        with self._suggestions:
            for name in names:
                plain_button(name, lambda name=name: self._editor.complete(word, name))

    def _show_examples(self) -> None:
        """Offer statements over the topics and views that exist, until there is an answer."""
        self._answer.offer(examples(self._names.tables), self._editor.set)

    def _insert(self, name: str) -> None:
        if self._editor.value.strip():
            self._editor.insert(name)
        else:
            self._editor.set(f"SELECT * FROM {name}")

    # -- running ------------------------------------------------------------------------------------------------------

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
        self._runner.stop()

    def _end_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watch_button.classes(remove="on")
        self._stop_button.set_visibility(False)

    async def _ask(self) -> None:
        if self._runner.is_busy or not (text := self._editor.value.strip()):
            return  # the statement before is still running
        self._stop_button.set_visibility(True)
        self._run_button.props("loading")
        answer, error = None, None
        try:
            answer = await self._runner.ask(self._editor.value)
        except HeadwaterError as raised:
            error = raised
        finally:
            if not self._runner.is_closed:
                self._run_button.props(remove="loading")
                self._stop_button.set_visibility(self._timer is not None)
        if self._runner.is_closed:
            return
        self._show_problem(error, self._runner.stopped)
        if answer is not None:
            self._answer.show(answer, again=self._timer is not None)
            self._history.add(text)
            if len(text) <= ADDRESS_MAX:
                ui.run_javascript(f"history.replaceState(null, '', '?text=' + encodeURIComponent({json.dumps(text)}))")

    def _show_problem(self, error: HeadwaterError | None, stopped: str) -> None:
        self._problem.set_visibility(error is not None)
        if error is not None:
            self._end_watch()
            self._problem.set_text(stopped or problem_of(error))
        self._editor.underline(None if error is None or stopped else spot(self._editor.value, error))


class AnswerCard:
    """The answer: rows or a chart, how many and how long it took, and a download."""

    def __init__(self, visit: Visit) -> None:
        self._answer: Answer | None = None
        self._texts: list[list[str | None]] = []
        self._before: list[list[str | None]] = []
        self._table: Table | None = None
        with card(flush=True, classes="whole-cells"):
            with block("card-head"):
                self._summary = ui.label("Result").classes("quiet small").props('role="status"')
                block("grow")
                self._form = Segments(
                    ["Rows", "Chart"], value="Rows", label="How to show the answer", on_change=self._show_form
                )
                button("CSV", self._download, icon="download", label="Download the rows as CSV")
            hint = "Write a SELECT, pick a name, or begin with an example."
            with block("") as self._table_place, empty("No answer yet", hint, icon="terminal"):
                self._examples = block("past examples")
            with block("") as self._pages_place:
                self._pages = Pages(self._show_rows)
            with block("card-body") as self._chart_place:
                self._plot = Plot(label="Chart of the answer", dark=visit.dark, on_change=self._show_form)
        self._show_form()

    # Any: NiceGUI takes plain and asynchronous functions.
    def offer(self, texts: Sequence[str], on_pick: Callable[[str], Any]) -> None:
        """Offer examples of statements, if there is no answer yet."""
        if self._answer is None:
            with self._examples:
                for text in texts:
                    plain_button(text, lambda text=text: on_pick(text))

    def show(self, answer: Answer, *, again: bool) -> None:
        is_same = self._answer is not None and self._answer.table.schema.equals(answer.table.schema)
        self._answer = answer
        self._before = self._texts if is_same and again else []
        self._texts = rows_of(answer.table)
        rows = counted(len(self._texts), "row")
        if answer.is_cut:
            rows = f"The first {count(len(self._texts))} rows; there are more"
        self._summary.set_text(f"{rows} · {duration(answer.seconds)}")
        if self._table is None or not is_same:
            self._table_place.clear()
            with self._table_place:
                self._table = Table(columns_of(answer.table.schema), label="Answer", none="No row fits.")
            self._pages.first = 0
        self._show_rows()
        self._show_form()

    def _show_form(self) -> None:
        is_chart = self._form.value == "Chart"
        self._table_place.set_visibility(not is_chart)
        self._pages_place.set_visibility(not is_chart and self._answer is not None)
        self._chart_place.set_visibility(is_chart)
        if is_chart and self._answer is not None:
            self._plot.offer(self._answer.table.schema)
            self._plot.set(self._answer.table)

    def _show_rows(self) -> None:
        if self._table is None:
            return
        rows = []
        for place, texts in enumerate(self._pages.part(self._texts), start=self._pages.first):
            before = None if not self._before else self._before[place] if place < len(self._before) else []
            rows.append(Row(cells_of(texts, before), key=place))
        self._table.set_rows(rows)

    def _download(self) -> None:
        if self._answer is None:
            return
        schema: pa.Schema = self._answer.table.schema
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(schema.names)
        writer.writerows(["" if text is None else text for text in row] for row in self._texts)
        ui.download.content(file.getvalue().encode(), "answer.csv", "text/csv")


class StatementHistory:
    """The earlier statements of this browser; the server keeps none of them."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, on_pick: Callable[[str], Any]) -> None:
        self._on_pick = on_pick
        self._texts: list[str] = []
        with card("Asked before"):
            self._place = block("past")
            self._none = ui.label("Kept in this browser alone.").classes("quiet small")
        ui.timer(0.1, self._load, once=True)

    async def _load(self) -> None:
        stored = await ui.run_javascript(f"localStorage.getItem('{STORAGE_KEY}') || '[]'", timeout=5.0)
        try:
            texts = [text for text in json.loads(stored) if isinstance(text, str)]
        except (TypeError, ValueError):
            texts = []
        self._texts = list(dict.fromkeys([*self._texts, *texts]))[:HISTORY_MAX]
        self._show()

    def add(self, text: str) -> None:
        if self._texts[:1] != [text]:
            self._texts = list(dict.fromkeys([text, *self._texts]))[:HISTORY_MAX]
            ui.run_javascript(f"localStorage.setItem('{STORAGE_KEY}', {json.dumps(json.dumps(self._texts))})")
            self._show()

    def _show(self) -> None:
        self._none.set_visibility(not self._texts)
        self._place.clear()
        with self._place:
            for text in self._texts:
                plain_button(" ".join(text.split()), lambda text=text: self._on_pick(text))
