"""One sync: its delay over time, its tables, and what the last comparison of its target found."""

from __future__ import annotations

from html import escape

from headwater.console.context import Visit, context
from headwater.console.kit.chart import LineChart
from headwater.console.kit.controls import button
from headwater.console.kit.dialog import confirm
from headwater.console.kit.layout import Stat, block, card, facts_markup, heading, html, sentence
from headwater.console.kit.live import LivePage, notify, perform, read
from headwater.console.kit.table import Column, Row, Table, link, toned
from headwater.console.kit.words import ago, count, counted, short, span
from headwater.console.pages import path_to, screen
from headwater.console.syncs.display import TONES, delay_tone
from headwater.services.syncs import SyncStatus
from headwater.sync import TableComparison
from headwater.sync.report import SyncedTable

COLUMNS = (
    Column(name="topic", label="Topic"),
    Column(name="table", label="Table"),
    Column(name="pending", label="Pending", align="right"),
    Column(name="delay", label="Delay", align="right"),
)
COMPARISON_COLUMNS = (
    Column(name="table", label="Table"),
    Column(name="rows", label="Rows", align="right"),
    Column(name="missing", label="Missing", align="right"),
    Column(name="extra", label="Extra", align="right"),
    Column(name="different", label="Different", align="right"),
    Column(name="pending", label="Not compared", align="right"),
    Column(name="keys", label="First keys"),
)
#: Keys of one table that the page names.
KEYS_SHOWN_MAX = 5


@screen("/syncs/{name}", under="/syncs")
async def sync(visit: Visit, name: str) -> None:
    first = await read(lambda: visit.services.syncs.status(name))  # one that is not there is an error instead of a page
    SyncPage(visit, first).start()


class SyncPage(LivePage[SyncStatus]):
    """The page of a sync."""

    def __init__(self, visit: Visit, first: SyncStatus) -> None:
        self._visit, self._name = visit, first.name
        self._may_change = visit.caller.may("admin", "*")
        with heading(first.name, under=first.url):
            self._state = html("")
            if self._may_change:
                button("Compare", self._compare, icon="difference")
                self._pause = button("Pause", self._set_paused, icon="pause")
        self._notes = html("")
        with block("grid tiles"):
            self._delay = Stat("Delay", why="sync_delay")
            self._pending = Stat("Pending", unit="rows", why="sync_delay")
            self._rate = Stat("Applies", unit="rows/s")
            self._compared = Stat("Last comparison", why="sync_comparison")
        with block("grid"):
            with card("Delay in seconds", why="sync_delay"):
                self._delays = LineChart(label="Delay in seconds over time", dark=visit.dark, height=200)
            with card("Rows per second"):
                self._rates = LineChart(label="Rows per second over time", dark=visit.dark, height=200, cuts_peaks=True)
        with card("Tables", flush=True):
            self._tables = Table(COLUMNS, label="Tables", none="No topic with a key fits the sync.")
        with card("Last comparison", flush=True, why="sync_comparison"):
            none = "The target was not compared yet: `headwater sync compare`."
            self._comparison = Table(COMPARISON_COLUMNS, label="Last comparison", none=none)
        with card("The target"):
            self._facts = html("")
        self._paused = False

    def load(self) -> SyncStatus:
        return self._visit.services.syncs.status(self._name)

    def show(self, content: SyncStatus) -> None:
        self._paused = content.paused
        self._state.set_content(f'<span class="pill {TONES[content.state]}">{escape(content.state)}</span>')
        if self._may_change:
            self._pause.set_text("Resume" if self._paused else "Pause")
            self._pause.props(f"icon={'play_arrow' if self._paused else 'pause'}")
        self._show_notes(content)
        self._show_tiles(content)
        history = context().history
        self._delays.set({"seconds": history.series("sync", self._name, "delay")})
        self._rates.set({"rows": history.series("sync", self._name, "rate")})
        self._tables.set_rows([_table_row(one) for one in content.tables])
        compared = content.compared.tables if content.compared is not None else []
        self._comparison.set_rows([_comparison_row(one) for one in compared])
        self._facts.set_content(facts_markup(_facts(content)))

    def _show_notes(self, status: SyncStatus) -> None:
        texts = [("bad", status.error)] if status.error else []
        if not status.running and not status.paused:
            texts.append(("info", f"No process runs it now: `headwater sync run {status.name}`."))
        markup = "".join(
            f'<div class="note {tone}"><div class="grow wrap-anywhere">{sentence(text)}</div></div>'
            for tone, text in texts
        )
        self._notes.set_content(f'<div class="stack tight">{markup}</div>' if markup else "")

    def _show_tiles(self, status: SyncStatus) -> None:
        line = context().history.values("sync", self._name, "delay")
        known = status.delay_seconds is not None
        self._delay.set(
            span(status.delay_seconds),
            foot="of the oldest row that is not applied" if known else "the target does not answer",
            tone=delay_tone(status) if known else "bad",
            line=line,
        )
        self._pending.set("–" if status.pending is None else count(status.pending), foot="in topics, not in the target")
        self._rate.set(
            short(status.rows_per_second) if status.running else "–",
            foot=f"process {status.pid}, {counted(status.rows, 'row')}" if status.running else "no process",
        )
        compared = status.compared
        if compared is None:
            self._compared.set("–", foot="never")
            return
        tone = "bad" if compared.count and not compared.repaired else ""
        self._compared.set(
            count(compared.count),
            unit=compared.verb,
            foot=f"{ago(compared.at_us)}, with {'the database' if compared.source else 'the topics'}",
            tone=tone,
        )

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _set_paused(self) -> None:
        service, name = self._visit.services.syncs, self._name
        if self._paused:
            if await perform(lambda: service.resume(name)):
                notify(f"Sync {name} goes on.")
        elif await confirm(
            f"Pause sync {name}?", "Its topics keep the changes until it goes on.", yes="Pause"
        ) and await perform(lambda: service.pause(name)):
            notify(f"Sync {name} is paused.")
        await self.refresh()

    async def _compare(self) -> None:
        if await confirm(
            f"Compare sync {self._name}?",
            "The whole target and the whole topics are read, and a checksum of each row is compared. Nothing is changed: "
            f"`headwater sync compare {self._name} --repair` corrects the rows that differ.",
            yes="Compare",
        ) and await perform(lambda: self._visit.services.syncs.compare(self._name)):
            notify(f"Sync {self._name} is compared.")
        await self.refresh()


def _table_row(table: SyncedTable) -> Row:
    cells = [
        link(table.topic, path_to("topics", table.topic)),
        table.table,
        count(table.pending),
        span(table.delay_seconds) if table.pending else "–",
    ]
    return Row(cells, key=table.topic)


def _comparison_row(one: TableComparison) -> Row:
    keys = [f"{each.kind}: {each.key}" for each in one.differences[:KEYS_SHOWN_MAX]]
    cells = [
        one.table,
        count(one.rows),
        *(toned(count(number), "bad") if number else "–" for number in (one.missing, one.extra, one.different)),
        count(one.pending) if one.pending else "–",
        "; ".join(keys) if keys else toned("equal", "good"),
    ]
    return Row(cells, key=one.table)


def _facts(status: SyncStatus) -> list[tuple[str, str]]:
    return [
        ("Address", status.url),
        ("Topics", ", ".join(status.topics)),
        ("Mode", status.mode),
        ("Whole transactions", "yes" if status.transactions else "no"),
        ("Rows that the target refuses", "dead letters" if status.dead_letters else "stop the sync"),
    ]
