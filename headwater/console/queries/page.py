"""One query: its rate, lag, phases, watermark, state and last error; it can be stopped, restarted and explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

from nicegui import ui

from headwater.apps.failure import Trouble
from headwater.apps.status import QueryStatus
from headwater.console.context import Visit, context
from headwater.console.history import series_names
from headwater.console.kit.chart import BarChart, LineChart, Points
from headwater.console.kit.controls import button
from headwater.console.kit.dialog import confirm
from headwater.console.kit.layout import Stat, block, card, code, heading, html, meter, note, pill
from headwater.console.kit.live import LivePage, attempt, notify, perform, read
from headwater.console.kit.table import Column, Row, Table, drawn, link
from headwater.console.kit.words import count, duration, short, size, span
from headwater.console.pages import path_to, screen
from headwater.console.queries.status import PHASES, TONES, busy_tone, delay_of, watermark_reason
from headwater.console.topology.flow import Flow, flow_of
from headwater.console.topology.page import shared_graphs
from headwater.errors import HeadwaterError, NotFound
from headwater.log.dead_letters import SUFFIX
from headwater.services.queries import is_open

POINTS = 450


@screen("/queries/{name}", under="/queries")
async def query(visit: Visit, name: str, app: str = "") -> None:
    page = QueryPage(visit, name, app)
    page.build(await read(page.load))
    page.start()


@dataclass(frozen=True, kw_only=True)
class QueryContent:
    """What the page of a query shows."""

    status: QueryStatus
    series: str
    trial: QueryStatus | None
    flow: Flow
    is_open: bool
    """Whether the caller may see its plan and its errors, which may hold values of its rows."""
    failure: Trouble | None
    app_runs: bool


class QueryPage(LivePage[QueryContent]):
    """The page of one query."""

    def __init__(self, visit: Visit, name: str, app: str) -> None:
        self._visit, self._name, self._app = visit, name, app
        self._history = context().history
        self._shown: object = None
        self._series = name

    def load(self) -> QueryContent:
        self._history.wait()
        statuses = self._history.statuses
        own = [
            status for status in self._visit.queries() if status.name == self._name and self._app in ("", status.app)
        ]
        if not own:
            raise NotFound(kind="query", name=self._name, near="")
        active, queries = own[0], self._visit.services.queries
        may_open = is_open(active, self._visit.caller)
        has_failed = bool(active.restarts or active.error)
        return QueryContent(
            status=active,
            series=series_names(statuses)[statuses.index(active)],
            trial=next((other for other in own[1:] if other.app == active.app), None),
            flow=flow_of(shared_graphs(), statuses, topics=self._history.topics, sees=self._visit.caller.sees),
            is_open=may_open,
            failure=queries.failure(self._name, app=active.app) if may_open and has_failed else None,
            app_runs=active.app in self._history.running,
        )

    # -- the page -----------------------------------------------------------------------------------------------------

    def build(self, content: QueryContent) -> None:
        status, dark = content.status, self._visit.dark
        self._app = status.app  # from now on this one, whichever other app has a query of the same name
        under = f"A query of {f'`{status.app}`' if status.app else 'an app'} that feeds a {status.kind}, version {status.version}."
        with heading(self._name, under=under):
            self._pill = block("row-flex")
            button("Restart", self._restart, icon="restart_alt")
            button("Stop", self._stop, icon="stop", kind="danger")
        self._failure, self._trial = block("stack"), block("stack")
        dead_letters = path_to("dead-letters")
        with block("grid tiles"):
            self._rate = Stat("Processed", unit="rows/s")
            self._lag = Stat("Lag", unit="rows", why="lag")
            self._busy = Stat("Busy", why="busy")
            self._watermark = Stat("Watermark delay", why="watermark")
            self._state = Stat("State", unit="rows", why="state")
            self._restarts = Stat("Restarts", why="restarts")
        with block("grid tiles"):
            self._late = Stat("Late rows", href=path_to("late"), why="late")
            self._rejected = Stat("Rejected rows", href=dead_letters, why="rejected")
            self._dead_letters = Stat("Dead letters", href=dead_letters, why="dead_letters")
        with block("grid"):
            with card("Rows a second"):
                self._rates = LineChart(label="Rows that arrive, and rows that are processed, a second", dark=dark)
            with card("Lag in rows", why="lag"):
                self._lags = LineChart(label="Lag in rows", dark=dark)
        with block("split"):
            with card("Time of a batch in seconds", why="phases"):
                self._phases = BarChart(label="Seconds of a batch by its steps", dark=dark, stacked=True, height=340)
            with card("Last batch", flush=True):
                columns = [Column(name="Step"), Column(name="", width="72px"), Column(name="Time", align="right")]
                self._steps = Table(columns, label="Steps of the last batch", none="No batch yet.")
        with block("grid"):
            with card("Watermark delay in seconds", why="watermark"):
                self._reason = ui.label("").classes("quiet small")
                self._delays = LineChart(label="Watermark delay in seconds", dark=dark)
            with card("State in rows", why="state"):
                self._size = ui.label("").classes("quiet small")
                self._states = LineChart(label="State in rows", dark=dark)
        columns = [Column(name="Name"), Column(name="Kind"), Column(name="What it holds", clip=True)]
        with block("grid"):
            with card("Reads from", flush=True):
                self._inputs = Table(columns, label="Reads from", none="Nothing.")
            with card("Writes", flush=True):
                self._outputs = Table(columns, label="Writes", none="Nothing.")
        with card("Plan"):
            ui.label("How Spark carries out the last batch; read it from the bottom up.").classes("quiet")
            self._plan = block("stack")
            with self._plan, block("row-flex"):
                button("Show the plan", self._explain, icon="schema").set_enabled(content.is_open)
                if not content.is_open:
                    ui.label("Shown only to users who may read all of its inputs.").classes("quiet")

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, content: QueryContent) -> None:
        status, trial, self._series = content.status, content.trial, content.series
        self._show_tiles(status)
        self._show_charts(status)
        self._show_phases(status)
        self._show_connections(content)
        shown = (content.failure, status.error, status.state, content.app_runs, trial and (trial.version, trial.state))
        if shown != self._shown:
            self._shown = shown
            self._pill.clear()
            with self._pill:
                pill(status.state, TONES.get(status.state, ""))
            self._show_failure(content)
            self._show_trial(content)

    def _points(self, measure: str) -> Points:
        return self._history.series("query", self._series, measure, points=POINTS)

    def _show_tiles(self, status: QueryStatus) -> None:
        line = self._history.values("query", self._series, "rate")
        self._rate.set(short(status.rows_per_second), foot=f"{count(status.rows_total)} since it began", line=line)
        lag = status.lag_rows
        self._lag.set(
            "–" if lag is None else short(lag),
            foot="not known yet"
            if lag is None
            else "caught up"
            if lag == 0
            else f"the first waits {span(status.lag_seconds or 0.0)}",
            tone="warn" if lag and lag > 10_000 else "",
        )
        self._busy.set(
            f"{status.busy:.0%}",
            foot="no batch yet" if status.batch_ms is None else f"last batch took {duration(status.batch_ms / 1000)}",
            tone=busy_tone(status),
        )
        delay = delay_of(status)
        self._watermark.set("none" if delay is None else span(delay), foot="behind the clock" if delay else "")
        self._state.set(short(status.state_rows), foot=size(status.state_bytes))
        tone = "bad" if status.error else "warn" if status.restarts else ""
        self._restarts.set(count(status.restarts), foot="since the app came up", tone=tone)
        self._late.set(count(status.late), foot="sound, but behind the watermark", tone="warn" if status.late else "")
        rejected = status.rejected
        self._rejected.set(count(rejected), foot="without a key or a time", tone="warn" if rejected else "")
        own = {f"{name}{SUFFIX}" for name in (*status.inputs, status.name)}
        dead_letters = sum(topic.rows for topic in self._visit.topics() if topic.name in own)
        self._dead_letters.set(count(dead_letters), foot="kept, to be redriven", tone="warn" if dead_letters else "")

    def _show_charts(self, status: QueryStatus) -> None:
        arriving: dict[int, float] = {}
        for name in status.inputs:
            for at, value in self._history.series("topic", name, "rate", points=POINTS):
                arriving[int(at) // 2] = arriving.get(int(at) // 2, 0.0) + value
        arrive = [(step * 2.0, value) for step, value in sorted(arriving.items())]
        self._rates.set({"arrive": arrive, "processed": self._points("rate")})
        self._lags.set({"lag": self._points("lag")})
        self._delays.set({"seconds": self._points("watermark_delay")})
        self._states.set({"rows": self._points("state_rows")})
        self._reason.set_text(watermark_reason(status))
        self._size.set_text(f"{count(status.state_rows)} rows in {size(status.state_bytes)}")

    def _show_phases(self, status: QueryStatus) -> None:
        known = {name: words for name, words in PHASES.items() if name in status.phases_ms}
        times, series = phase_bars({words: self._points(f"phase.{name}") for name, words in known.items()})
        self._phases.set(times, series)
        total = max(1.0, sum(status.phases_ms[name] for name in known))
        rows = []
        for name, words in known.items():
            milliseconds = status.phases_ms[name]
            step = {"text": words.capitalize(), "under": name}
            rows.append(Row([step, drawn(meter(milliseconds / total)), duration(milliseconds / 1000)], key=name))
        self._steps.set_rows(rows)

    def _show_connections(self, content: QueryContent) -> None:
        flow, query = content.flow, f"query:{content.status.app}/{self._name}"
        for table, ids in ((self._inputs, flow.before(query)), (self._outputs, flow.after(query))):
            rows = []
            for station in (flow.stations[id] for id in ids):
                name = station.title if station.kind == "sink" else link(station.title, station.href)
                kind = "side output" if (query, station.id) in flow.side_outputs else station.kind
                rows.append(Row([name, kind, station.under or "–"], key=station.id))
            table.set_rows(rows)

    def _show_failure(self, content: QueryContent) -> None:
        self._failure.clear()
        status, failure = content.status, content.failure
        if not content.app_runs:
            with self._failure:
                note(f"No process runs app {status.app}; rows wait in the log. `headwater run FILE` starts it.", "warn")
        if status.error and not content.is_open:
            with self._failure, block("note bad").props('role="alert"'):
                ui.label(
                    "It fails, and is started again. The error is shown only to users who may read all of its inputs."
                )
        if failure is None:
            return
        runs = status.state in ("running", "caught up") and status.error is None
        first = "It has failed, and goes on again. The last error:" if runs else "It fails, and is started again."
        with self._failure, block(f"note {'warn' if runs else 'bad'}").props('role="alert"'), block("stack grow"):
            ui.label(first)
            code("\n".join(failure.details) or failure.line)
            trace = f'<pre class="code">{escape(failure.trace)}</pre>'
            html(f"<details><summary>Everything that is known</summary>{trace}</details>")

    def _show_trial(self, content: QueryContent) -> None:
        self._trial.clear()
        trial = content.trial
        if trial is None:
            return
        with self._trial, block("note info"), block("row-flex grow"):
            behind = f", {count(trial.lag_rows)} rows behind" if trial.lag_rows else ""
            ui.label(
                f"Version {trial.version} is tried beside version {content.status.version}: {trial.state}{behind}."
            ).classes("grow")
            self._compared = ui.label("").classes("quiet")
            button("Compare", self._compare, icon="difference")

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _compare(self) -> None:
        result = await attempt(lambda: self._visit.services.queries.compare(self._name, app=self._app))
        if result is not None:
            self._compared.set_text(
                f"{count(result.same)} rows are the same, {count(result.changed)} differ, "
                f"{count(result.only_active)} only in use, {count(result.only_trial)} only on trial."
            )

    async def _explain(self) -> None:
        try:
            text = (await read(lambda: self._visit.services.queries.explain(self._name, app=self._app))).plan
        except HeadwaterError as error:
            text = str(error)
        self._plan.clear()
        with self._plan:
            code(text)
            with block("row-flex"):
                button("Show it again", self._explain, icon="refresh")

    async def _stop(self) -> None:
        is_confirmed = await confirm(
            f"Stop {self._name}?",
            "The batch at work comes to its end first, and nothing is lost: rows wait in the log. "
            "It stays stopped until it is restarted, or until the app starts again.",
            yes="Stop",
            danger=True,
        )
        if is_confirmed and await perform(lambda: self._visit.services.queries.stop(self._name, app=self._app)):
            notify(f"{self._name} is stopped.")

    async def _restart(self) -> None:
        is_confirmed = await confirm(
            f"Restart {self._name}?",
            "It stops between two batches, is planned again, and goes on where it was.",
            yes="Restart",
        )
        if is_confirmed and await perform(lambda: self._visit.services.queries.restart(self._name, app=self._app)):
            notify(f"{self._name} starts again.")


#: Bars of batches that a chart shows; more would be too thin to read.
BARS_MAX = 48


def phase_bars(series: Mapping[str, Points]) -> tuple[list[str], dict[str, list[float]]]:
    """A bar for each of the newest batches: their times in UTC, and the seconds of each step. Points are in milliseconds.

    >>> phase_bars({"reads": [(0.0, 1500.0), (2.0, 500.0)], "writes": [(2.0, 250.0)]})
    (['00:00:00', '00:00:02'], {'reads': [1.5, 0.5], 'writes': [0.0, 0.25]})
    """
    times = sorted({at for points in series.values() for at, _ in points})[-BARS_MAX:]
    values = {name: dict(points) for name, points in series.items()}
    shown = {name: [round(values[name].get(at, 0.0) / 1000, 3) for at in times] for name in series}
    return [datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") for at in times], shown
