"""One capture: its delay over time, its tables with their rates and snapshots, and the health of its database."""

from __future__ import annotations

from html import escape

from headwater.console.captures.display import TONES, delay_tone, pending_of, runs, snapshot_cell
from headwater.console.context import Visit, context
from headwater.console.kit.chart import LineChart
from headwater.console.kit.controls import button
from headwater.console.kit.dialog import confirm
from headwater.console.kit.layout import Stat, block, card, facts_markup, heading, html, sentence
from headwater.console.kit.live import LivePage, notify, perform, read
from headwater.console.kit.table import Column, Row, Table, act, link, toned
from headwater.console.kit.words import ago, count, counted, short, size, span
from headwater.console.pages import path_to, screen
from headwater.services.captures import CapturedTable, CaptureStatus

#: Lines of tables in one chart; a database may have hundreds.
TABLES_DRAWN_MAX = 6
COLUMNS = (
    Column(name="table", label="Table"),
    Column(name="topic", label="Topic"),
    Column(name="rate", label="rows/s", align="right"),
    Column(name="snapshot", label="Snapshot", width="200px"),
    Column(name="letters", label="Dead letters", align="right"),
    Column(name="act", label=" ", width="110px"),
)


@screen("/captures/{name}", under="/captures")
async def capture(visit: Visit, name: str) -> None:
    first = await read(
        lambda: visit.services.captures.status(name)
    )  # one that is not there is an error instead of a page
    CapturePage(visit, first).start()


class CapturePage(LivePage[CaptureStatus]):
    """The page of a capture."""

    def __init__(self, visit: Visit, first: CaptureStatus) -> None:
        self._visit, self._name = visit, first.name
        self._may_change = visit.caller.may("admin", "*")
        with heading(first.name, under=first.url):
            self._state = html("")
            if self._may_change:
                self._pause = button("Pause", self._set_paused, icon="pause")
        self._notes = html("")
        with block("grid tiles"):
            self._delay = Stat("Delay", why="capture_delay")
            self._pending = Stat("Pending", why="capture_delay")
            self._rate = Stat("Captures", unit="rows/s")
            self._rows = Stat("Rows captured")
            self._retained = Stat("Kept by the database", why="capture_retention")
        with block("grid"):
            with card("Delay in seconds", why="capture_delay"):
                self._delays = LineChart(label="Delay in seconds over time", dark=visit.dark, height=200)
            with card("Rows per second, by table"):
                self._rates = LineChart(
                    label="Rows per second over time", dark=visit.dark, height=200, stacked=True, cuts_peaks=True
                )
        with card("Tables", flush=True, why="capture_snapshot"):
            none = "No table is read yet: the capture has not run."
            self._tables = Table(COLUMNS, label="Tables", none=none, on_act=self._act)
        with card("The database"):
            self._facts = html("")
        self._paused = False

    def load(self) -> CaptureStatus:
        return self._visit.services.captures.status(self._name)

    def show(self, content: CaptureStatus) -> None:
        self._paused = content.paused
        self._state.set_content(f'<span class="pill {TONES[content.state]}">{escape(content.state)}</span>')
        if self._may_change:
            self._pause.set_text("Resume" if self._paused else "Pause")
            self._pause.props(f"icon={'play_arrow' if self._paused else 'pause'}")
        self._show_notes(content)
        self._show_tiles(content)
        history = context().history
        self._delays.set({"seconds": history.series("capture", self._name, "delay")})
        busiest = sorted(content.tables, key=lambda table: (-table.rows_per_second, table.table))[:TABLES_DRAWN_MAX]
        names = sorted(table.table for table in busiest)
        self._rates.set({name: history.series("capture", self._name, f"table.{name}") for name in names})
        self._tables.set_rows([self._row(table) for table in content.tables])
        self._facts.set_content(facts_markup(_facts(content)))

    def _show_notes(self, status: CaptureStatus) -> None:
        texts = [("bad", text) for text in (status.danger, status.error) if text]
        texts += [("warn", warning) for warning in status.warnings]
        if not status.running and not status.paused:
            texts.append(
                ("info", f"No process runs it now: `headwater capture run {status.name}`, or the app that declares it.")
            )
        markup = "".join(
            f'<div class="note {tone}"><div class="grow wrap-anywhere">{sentence(text)}</div></div>'
            for tone, text in texts
        )
        self._notes.set_content(f'<div class="stack tight">{markup}</div>' if markup else "")

    def _show_tiles(self, status: CaptureStatus) -> None:
        line = context().history.values("capture", self._name, "delay")
        known = status.delay_seconds is not None
        self._delay.set(
            span(status.delay_seconds),
            foot="of the oldest change that is not in the log" if known else "the database does not answer",
            tone=delay_tone(status) if known else "bad",
            line=line,
        )
        unit = "changes" if status.pending_unit == "change" and status.pending is not None else ""
        self._pending.set(pending_of(status), unit=unit, foot="in the database, not in the log")
        self._rate.set(short(status.rows_per_second) if status.running else "–", foot=runs(status))
        self._rows.set(
            count(status.rows), foot="none yet" if status.captured_us is None else f"last {ago(status.captured_us)}"
        )
        self._retained.set(
            "–" if status.retained_bytes is None else size(status.retained_bytes),
            foot="this kind of database does not tell"
            if status.retained_bytes is None
            else "for this capture, on its disk",
        )

    def _row(self, table: CapturedTable) -> Row:
        letters = link(count(table.dead_letters), path_to("dead-letters", table.topic)) if table.dead_letters else "–"
        cells = [
            table.table,
            link(table.topic, path_to("topics", table.topic)),
            short(table.rows_per_second),
            snapshot_cell(table),
            letters,
            act("Read again", "snapshot") if self._may_change and table.snapshot_complete else toned("", "quiet"),
        ]
        return Row(cells, key=table.table)

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _set_paused(self) -> None:
        service, name = self._visit.services.captures, self._name
        if self._paused:
            if await perform(lambda: service.resume(name)):
                notify(f"Capture {name} goes on.")
        elif await confirm(
            f"Pause capture {name}?",
            "Its database keeps the changes until it goes on; a replication slot keeps the log of the database meanwhile.",
            yes="Pause",
        ) and await perform(lambda: service.pause(name)):
            notify(f"Capture {name} is paused.")
        await self.refresh()

    async def _act(self, _: str, table: str) -> None:
        if await confirm(
            f"Read {table} again?",
            "A new snapshot reads every row of the table, beside the changes that go on. Each row is appended once more.",
            yes="Read again",
        ) and await perform(lambda: self._visit.services.captures.snapshot(self._name, table)):
            notify(f"Table {table} is read again.")
        await self.refresh()


def _facts(status: CaptureStatus) -> list[tuple[str, str]]:
    facts = [
        ("Address", status.url),
        ("Envelope", status.envelope),
        ("Run by", runs(status) + (f", process {status.pid}" if status.pid is not None else "")),
        ("Position", status.position or "–"),
        ("Tables", counted(len(status.tables), "table")),
    ]
    facts += [("Restarts", count(status.restarts))] if status.restarts else []
    return [*facts, *((name[:1].upper() + name[1:], value) for name, value in status.details.items())]
