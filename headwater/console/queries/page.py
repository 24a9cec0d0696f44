"""One query: how fast it is, what it waits for, where its time goes, what went wrong, and what it may be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from nicegui import ui

from headwater.apps.failure import Trouble
from headwater.apps.status import QueryStatus
from headwater.console.context import context
from headwater.console.history import series_names
from headwater.console.kit.chart import LineChart, Points
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, button, card, heading, pill
from headwater.console.kit.live import every, read, tell
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Row, Table, drawn, link
from headwater.console.kit.words import count, short, size, span
from headwater.console.pages import screen
from headwater.console.queries.list_page import TONES, busy_tone, delay_of
from headwater.console.queries.reasons import PHASES, phase_words, watermark_reason
from headwater.console.topology.flow import Flow, flow_of
from headwater.console.topology.page import Graphs
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError, NotFound
from headwater.services.queries import is_open, is_visible

POINTS = 450


@screen("/queries/{name}", under="/queries")
async def query(visit: Visit, name: str, app: str = "") -> None:
    page = QueryPage(visit, name, app)
    page.build(await read(page.look))
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class QueryContent:
    """What a look has found."""

    status: QueryStatus
    series: str
    trial: QueryStatus | None
    flow: Flow
    is_open: bool
    """Whether the visitor may see inside of it: its plan, and what went wrong."""
    trouble: Trouble | None


class QueryPage:
    """The page of one query."""

    def __init__(self, visit: Visit, name: str, app: str) -> None:
        self._visit, self._name, self._app = visit, name, app
        self._history = context().history
        self._graphs = context().share("topology.graphs", Graphs)
        self._told: object = None
        self._series = name

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> QueryContent:
        self._history.wait()
        statuses = self._history.statuses
        own = [one for one in statuses if one.name == self._name and self._app in ("", one.app)]
        if not own or not is_visible(own[0], self._visit.caller):
            raise NotFound(kind="query", name=self._name, near="")
        flow = flow_of(self._graphs.now(), statuses, topics=self._history.topics, sees=self._visit.caller.sees)
        may_see, has_failed = is_open(own[0], self._visit.caller), bool(own[0].restarts or own[0].error)
        queries = self._visit.services.queries
        trouble = queries.failure(self._name, app=own[0].app) if may_see and has_failed else None
        trial = next((one for one in own[1:] if one.app == own[0].app), None)
        series = series_names(statuses)[statuses.index(own[0])]
        return QueryContent(status=own[0], series=series, trial=trial, flow=flow, is_open=may_see, trouble=trouble)

    # -- the page -----------------------------------------------------------------------------------------------------

    def build(self, found: QueryContent) -> None:
        status, dark = found.status, self._visit.dark
        self._app = status.app  # from now on this one, whichever other app has a query of the same name
        under = f"A query of {f'`{status.app}`' if status.app else 'an app'} that feeds a {status.kind}, version {status.version}."
        with heading(self._name, under=under):
            self._pill = block("row-flex")
            button("Restart", self._restart, icon="restart_alt")
            button("Stop", self._stop, icon="stop", kind="danger")
        self._trouble = block("stack")
        self._trial = block("stack")
        with block("grid tiles"):
            self._rate = Stat("Processed", unit="rows/s")
            self._lag = Stat("Lag", unit="rows", why="lag")
            self._busy = Stat("Busy", why="busy")
            self._watermark = Stat("Watermark delay", why="watermark")
            self._state = Stat("State", unit="rows", why="state")
            self._restarts = Stat("Restarts", why="restarts")
        with block("grid tiles"):
            self._late = Stat("Late rows", href="/console/late", why="late")
            self._rejected = Stat("Rejected rows", href="/console/dead-letters", why="rejected")
            self._letters = Stat("Dead letters", href="/console/dead-letters", why="dead_letters")
        with block("grid"):
            with card("Rows a second"):
                self._rates = LineChart(label="Rows that arrive, and rows that are processed, a second", dark=dark)
            with card("Lag in rows", why="lag"):
                self._lags = LineChart(label="Lag in rows", dark=dark)
        self._build_phases(dark=dark)
        with block("grid"):
            with card("Watermark delay in seconds", why="watermark"):
                self._reason = ui.label("").classes("quiet small")
                self._delays = LineChart(label="Watermark delay in seconds", dark=dark)
            with card("State in rows", why="state"):
                self._size = ui.label("").classes("quiet small")
                self._states = LineChart(label="State in rows", dark=dark)
        with block("grid"):
            with card("Reads from", flush=True):
                self._inputs = _connections("Reads from")
            with card("Writes", flush=True):
                self._outputs = _connections("Writes")
        with card("Plan"):
            ui.label("How Spark carries out the last batch; read it from the bottom up.").classes("quiet")
            self._plan = block("stack")
            with self._plan, block("row-flex"):
                button("Show the plan", self._explain, icon="schema").set_enabled(found.is_open)
                if not found.is_open:
                    ui.label("Shown only to users who may read all of its inputs.").classes("quiet")

    def _build_phases(self, *, dark: bool) -> None:
        with block("split"):
            with card("Time of a batch in milliseconds", why="phases"):
                self._phases = LineChart(
                    label="Time of a batch by its steps", dark=dark, stacked=True, height=340, cuts_peaks=True
                )
            with card("Last batch", flush=True):
                self._steps = Table(
                    [Column(name="Step"), Column(name="", width="72px"), Column(name="ms", align="right")],
                    label="Steps of the last batch",
                    none="No batch yet.",
                )

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, found: QueryContent) -> None:
        status, self._series = found.status, found.series
        self._show_tiles(status)
        self._show_charts(found)
        self._show_phases(status)
        self._show_connections(found)
        told = (found.trouble, status.error, status.state, found.trial and (found.trial.version, found.trial.state))
        if told != self._told:
            self._told = told
            self._pill.clear()
            with self._pill:
                pill(status.state, TONES.get(status.state, ""))
            self._show_trouble(found)
            self._show_trial(found)

    def _line(self, measure: str) -> Points:
        return self._history.series("query", self._series, measure, points=POINTS)

    def _show_tiles(self, status: QueryStatus) -> None:
        self._rate.set(
            short(status.rows_per_second),
            foot=f"{count(status.rows_total)} since the start",
            line=self._history.values("query", self._series, "rate"),
        )
        lag = status.lag_rows
        self._lag.set(
            "–" if lag is None else short(lag),
            foot="no batch yet" if lag is None else "caught up" if lag == 0 else "waiting in the log",
            tone="warn" if lag and lag > 10_000 else "",
        )
        self._busy.set(
            f"{status.busy:.0%}",
            foot="no batch yet" if status.batch_ms is None else f"last batch took {count(status.batch_ms)} ms",
            tone=busy_tone(status),
        )
        delay = delay_of(status)
        self._watermark.set("none" if delay is None else span(delay), foot="behind the clock" if delay else "")
        self._state.set(short(status.state_rows), foot=size(status.state_bytes))
        self._restarts.set(
            count(status.restarts),
            foot="since the app came up",
            tone="bad" if status.error else "warn" if status.restarts else "",
        )
        self._late.set(count(status.late), foot="sound, but behind the watermark", tone="warn" if status.late else "")
        self._rejected.set(
            count(status.rejected), foot="without a key or a time", tone="warn" if status.rejected else ""
        )
        letters = self._dead_letters_of(status)
        self._letters.set(count(letters), foot="kept, to be redriven", tone="warn" if letters else "")

    def _dead_letters_of(self, status: QueryStatus) -> int:
        """The rows in the dead-letter topics of its inputs, and in its own."""
        names = {f"{name}.dlq" for name in (*status.inputs, status.name)}
        topics = self._history.topics
        return sum(topics[name].rows for name in names if name in topics and self._visit.caller.sees(name))

    def _show_charts(self, found: QueryContent) -> None:
        arriving: dict[int, float] = {}
        for name in found.status.inputs:
            for at, value in self._history.series("topic", name, "rate", points=POINTS):
                arriving[int(at) // 2] = arriving.get(int(at) // 2, 0.0) + value
        arrive = [(step * 2.0, value) for step, value in sorted(arriving.items())]
        self._rates.set({"arrive": arrive, "processed": self._line("rate")})
        self._lags.set({"lag": self._line("lag")})
        self._delays.set({"seconds": self._line("watermark_delay")})
        self._states.set({"rows": self._line("state_rows")})
        self._reason.set_text(watermark_reason(found.status))
        self._size.set_text(f"{count(found.status.state_rows)} rows in {size(found.status.state_bytes)}")

    def _show_phases(self, status: QueryStatus) -> None:
        known = [name for name in PHASES if name in status.phases_ms]
        self._phases.set({phase_words(name): self._line(f"phase.{name}") for name in known})
        total = max(1.0, sum(status.phases_ms[name] for name in known))
        self._steps.set_rows(
            [
                Row(
                    [
                        {"text": phase_words(name).capitalize(), "under": name},
                        drawn(f'<div class="meter"><i style="width: {status.phases_ms[name] / total:.0%}"></i></div>'),
                        count(status.phases_ms[name]),
                    ],
                    key=name,
                )
                for name in known
            ]
        )

    def _show_connections(self, found: QueryContent) -> None:
        id = f"query:{found.status.app}/{self._name}"
        for table, ids in ((self._inputs, found.flow.before(id)), (self._outputs, found.flow.after(id))):
            stations = [found.flow.stations[one] for one in ids]
            table.set_rows(
                [
                    Row(
                        [
                            one.title if one.kind == "sink" else link(one.title, one.href),
                            "side output" if (id, one.id) in found.flow.asides else one.kind,
                            one.under or "–",
                        ],
                        key=one.id,
                    )
                    for one in stations
                ]
            )

    def _show_trouble(self, found: QueryContent) -> None:
        self._trouble.clear()
        if found.status.error and not found.is_open:
            with self._trouble, block("note bad").props('role="alert"'):
                ui.label(
                    "It fails, and is started again. The error is shown only to users who may read all of its inputs."
                )
        if found.trouble is None:
            return
        goes_on = found.status.state in ("running", "caught up") and found.status.error is None
        first = "It has failed, and goes on again. The last error:" if goes_on else "It fails, and is started again."
        with self._trouble, block(f"note {'warn' if goes_on else 'bad'}").props('role="alert"'), block("stack grow"):
            ui.label(first)
            lines = "\n".join(found.trouble.details) or found.trouble.line
            ui.html(f'<pre class="code">{escape(lines)}</pre>', sanitize=False)
            trace = escape(found.trouble.trace)
            ui.html(
                f'<details><summary>Everything that is known</summary><pre class="code">{trace}</pre></details>',
                sanitize=False,
            )

    def _show_trial(self, found: QueryContent) -> None:
        self._trial.clear()
        if found.trial is None:
            return
        with self._trial, block("note info"), block("row-flex grow"):
            behind = "" if not found.trial.lag_rows else f", {count(found.trial.lag_rows)} rows behind"
            ui.label(
                f"Version {found.trial.version} is tried beside version {found.status.version}: "
                f"{found.trial.state}{behind}."
            ).classes("grow")
            self._compared = ui.label("").classes("quiet")
            button("Compare", self._compare, icon="difference")

    # -- what people do -----------------------------------------------------------------------------------------------

    async def _compare(self) -> None:
        try:
            found = await read(lambda: self._visit.services.queries.compare(self._name, app=self._app))
        except HeadwaterError as error:
            tell(str(error), good=False)
            return
        self._compared.set_text(
            f"{count(found.same)} rows are the same, {count(found.changed)} differ, "
            f"{count(found.only_active)} only in use, {count(found.only_trial)} only on trial."
        )

    async def _explain(self) -> None:
        try:
            text = (await read(lambda: self._visit.services.queries.explain(self._name, app=self._app))).plan
        except HeadwaterError as error:
            text = str(error)
        self._plan.clear()
        with self._plan:
            ui.html(f'<pre class="code">{escape(text)}</pre>', sanitize=False)
            with block("row-flex"):
                button("Show it again", self._explain, icon="refresh")

    async def _stop(self) -> None:
        await self._change(
            "stop",
            f"Stop {self._name}?",
            "The batch at work comes to its end first, and nothing is lost: rows wait in the log. "
            "It stays stopped until it is restarted, or until the app starts again.",
            lambda: self._visit.services.queries.stop(self._name, app=self._app),
            "is stopped",
        )

    async def _restart(self) -> None:
        await self._change(
            "restart",
            f"Restart {self._name}?",
            "It stops between two batches, is planned again, and goes on where it was.",
            lambda: self._visit.services.queries.restart(self._name, app=self._app),
            "starts again",
        )

    async def _change(self, action: str, question: str, preview: str, act: Callable[[], None], done: str) -> None:
        dialog = Question(question, yes=action.capitalize(), danger=action == "stop")
        with dialog:
            ui.label(preview)
        if not await dialog.answered():
            return
        try:
            await read(act)
        except HeadwaterError as error:
            tell(str(error), good=False)
            return
        tell(f"{self._name} {done}.")


def _connections(label: str) -> Table:
    columns = [Column(name="Name"), Column(name="Kind"), Column(name="What it holds", clip=True)]
    return Table(columns, label=label, none="Nothing.")
