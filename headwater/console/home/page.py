"""Home: is it healthy? Each number leads to the screen that explains it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from nicegui import ui

from headwater.alerts import Summary
from headwater.apps.status import QueryStatus
from headwater.console.alerts.badge import alerts
from headwater.console.context import context
from headwater.console.history import TopicStatus, lag_by
from headwater.console.kit.chart import LineChart
from headwater.console.kit.layout import block, card, empty, heading
from headwater.console.kit.live import every
from headwater.console.kit.sparkline import sparkline
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import ago, count, short, span
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.services.queries import is_visible

#: Colours of the states of a query.
TONES = {
    "running": "good",
    "caught up": "good",
    "starting": "info",
    "waiting": "",
    "restarting": "warn",
    "failed": "bad",
}
BUSIEST = 8
ALERTS_SHOWN = 3


@screen("/", title="Home", icon="home", key="h", order=0)
def home(visit: Visit) -> None:
    with heading("Home", under="Everything that can be wrong, on one page.", why="health"):
        pass
    page = HomePage(visit)
    every(2.0, page.look, page.show)


@dataclass(frozen=True, slots=True)
class HealthContent:
    """What one look found."""

    topics: list[TopicStatus]
    statuses: list[QueryStatus]
    lag_of_groups: dict[str, int]
    lag_of_topics: dict[str, int]
    letters: int
    firing: list[Summary]
    rates: list[tuple[float, float]]
    """Rows a second of all topics together, with the second."""


class HomePage:
    """The page, and how it is kept up to date."""

    def __init__(self, visit: Visit) -> None:
        self._history = context().history
        self._visit = visit
        self._firing = block("note bad").props('role="status" aria-label="Alerts that fire"')
        self._firing.set_visibility(False)
        with block("grid tiles"):
            self._queries = Stat("Queries", href="/console/queries")
            self._rate = Stat("Rows in", unit="rows/s", href="/console/topics")
            self._lag = Stat("Worst lag", unit="rows", href="/console/groups", why="lag")
            self._watermark = Stat("Watermark delay", href="/console/queries", why="watermark")
            self._late = Stat("Late rows", href="/console/late", why="late")
            self._letters = Stat("Dead letters", href="/console/dead-letters", why="dead_letters")
        with block("split start"):
            with block("stack").style("gap: 16px"):
                with card("Rows a second"):
                    self._chart = LineChart(
                        label="Rows a second, of all topics", dark=visit.dark, unit="rows/s", height=240
                    )
                with card("Busiest topics", flush=True):
                    self._topics = self._busiest()
            with card("Queries", flush=True):
                self._table = Table(
                    [Column(name="Query"), Column(name="State"), Column(name="rows/s", align="right")],
                    label="Queries",
                    none="No app runs on this log.",
                )
        self._nothing = block("")

    @staticmethod
    def _busiest() -> Table:
        return Table(
            [
                Column(name="Topic"),
                Column(name="Last minutes", width="120px"),
                Column(name="rows/s", align="right"),
                Column(name="Rows", align="right"),
                Column(name="Lag", align="right"),
                Column(name="Last row", align="right"),
            ],
            label="Busiest topics",
            none="No topic yet. `headwater topic create` makes one.",
        )

    def look(self) -> HealthContent:
        """All that the page shows, as far as this caller may know of it."""
        self._history.wait()
        caller, history = self._visit.caller, self._history
        lags = [one for one in history.lags if caller.sees(one.topic)]
        return HealthContent(
            topics=[one for one in history.topics.values() if not one.name.startswith("__") and caller.sees(one.name)],
            statuses=[one for one in history.statuses if is_visible(one, self._visit.caller)],
            lag_of_groups=lag_by(lags, "group"),
            lag_of_topics=lag_by(lags, "topic"),
            letters=self._open_letters(),
            firing=alerts().now().firing if caller.may("read", "*") else [],
            rates=self._rates(),
        )

    def show(self, found: HealthContent) -> None:
        self._show_alerts(found.firing)
        self._show_queries(found.statuses)
        rates = [value for _, value in found.rates]
        self._rate.set(
            short(sum(one.rate for one in found.topics)), foot=f"{len(found.topics):,} topics", line=rates[-40:]
        )
        groups = found.lag_of_groups
        worst = max(groups, key=lambda name: groups[name], default=None)
        self._lag.set(
            short(groups[worst]) if worst else "0",
            foot=worst or "no group reads",
            tone="warn" if worst and groups[worst] > 10_000 else "",
        )
        letters = found.letters
        self._letters.set(
            count(letters), foot="waiting for a decision" if letters else "none", tone="warn" if letters else "good"
        )
        self._chart.set({"rows/s": found.rates})
        self._show_topics(found.topics, found.lag_of_topics)

    def _show_topics(self, topics: list[TopicStatus], lags: dict[str, int]) -> None:
        busiest = sorted(topics, key=lambda one: (-one.rate, -one.rows, one.name))[:BUSIEST]
        self._topics.set_rows(
            [
                Row(
                    [
                        link(one.name, f"/console/topics/{quote(one.name, safe='')}"),
                        drawn(sparkline(self._history.values("topic", one.name, "rate"))),
                        short(one.rate),
                        count(one.rows),
                        short(lags[one.name]) if one.name in lags else "–",
                        ago(one.appended_at_us),
                    ],
                    key=one.name,
                )
                for one in busiest
            ]
        )
        self._nothing.clear()
        if not topics:
            with self._nothing:
                empty(
                    "Nothing here yet",
                    "Append the first rows, and watch them arrive.",
                    command="headwater produce greetings",
                )

    def _show_alerts(self, firing: list[Summary]) -> None:
        self._firing.set_visibility(bool(firing))
        self._firing.clear()
        with self._firing:
            ui.icon("notifications_active").props('aria-hidden="true"').classes("tone-text-bad alert-icon")
            with block("stack tight grow"):
                told = "1 alert is firing" if len(firing) == 1 else f"{len(firing)} alerts are firing"
                ui.label(told).classes("strong")
                for one in firing[:ALERTS_SHOWN]:
                    message = next((each.message for each in one.subjects if each.state == "firing"), "")
                    address = f"/console/alerts/{quote(one.name, safe='')}"
                    line = f'<a href="{address}">{escape(one.name)}</a> <span class="quiet">{escape(message)}</span>'
                    ui.html(line, sanitize=False).classes("small wrap-anywhere")
                if len(firing) > ALERTS_SHOWN:
                    ui.html(f'<a href="/console/alerts">and {len(firing) - ALERTS_SHOWN} more</a>', sanitize=False)

    def _show_queries(self, statuses: list[QueryStatus]) -> None:
        failed = [one for one in statuses if one.state in ("failed", "restarting")]
        running = [one for one in statuses if one.state in ("running", "caught up")]
        starting = "Spark is starting" if context().is_starting else ""
        self._queries.set(
            f"{len(running)}/{len(statuses)}" if statuses else "0",
            foot=failed[0].error or failed[0].name
            if failed
            else starting or ("all run" if statuses else "no app runs"),
            tone="bad" if failed else "good" if statuses and len(running) == len(statuses) else "",
        )
        delays = {one.name: time.time() - one.watermark_us / 1e6 for one in statuses if one.watermark_us is not None}
        slowest = max(delays, key=lambda name: delays[name], default=None)
        self._watermark.set(span(delays[slowest]) if slowest else "–", foot=slowest or "no watermark yet")
        late = sum(one.late for one in statuses)
        self._late.set(count(late), foot="behind the watermark", tone="warn" if late else "")
        self._table.set_rows(
            [
                Row(
                    [
                        link(one.name, f"/console/queries/{quote(one.name, safe='')}"),
                        mark(one.state, TONES.get(one.state, "")),
                        toned(short(one.rows_per_second), ""),
                    ],
                    key=one.name,
                )
                for one in statuses
            ]
        )

    def _open_letters(self) -> int:
        """The number of open dead letters in all topics that the caller sees."""
        waiting = 0
        service = self._visit.services.dead_letters
        for name in service.topics():
            with contextlib.suppress(HeadwaterError):  # deleted while we look
                waiting += sum(one.open for one in service.reasons(name))
        return waiting

    def _rates(self) -> list[tuple[float, float]]:
        """All topics together, in steps of two seconds."""
        if self._visit.caller.may("read", "*"):
            return list(self._history.rates)[1:][-300:]
        totals: dict[int, float] = {}
        for name in self._history.topics:
            if not name.startswith("__") and self._visit.caller.sees(name):
                for at, value in self._history.series("topic", name, "rate", points=300):
                    totals[int(at) // 2] = totals.get(int(at) // 2, 0.0) + value
        return [(step * 2.0, value) for step, value in sorted(totals.items())][1:]
