"""Home: what needs attention, in a few numbers; each links to the page that explains it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from html import escape

from nicegui import ui

from headwater.alerts import Summary
from headwater.apps.status import QueryStatus
from headwater.console.alerts.badge import shared_alerts
from headwater.console.context import Visit, context
from headwater.console.history import TopicStatus, lag_by, unbroken
from headwater.console.kit.chart import LineChart, sparkline
from headwater.console.kit.layout import Stat, block, card, empty, heading, html
from headwater.console.kit.live import LivePage
from headwater.console.kit.table import Column, Row, Table, drawn, link, mark
from headwater.console.kit.words import ago, count, counted, short, span
from headwater.console.pages import path_to, screen
from headwater.console.queries.status import TONES, badness, delay_of, query_path
from headwater.errors import HeadwaterError

TOPIC_COLUMNS = (
    Column(name="Topic"),
    Column(name="Kind"),
    Column(name="Last minutes", width="120px"),
    Column(name="rows/s", align="right"),
    Column(name="Rows", align="right"),
    Column(name="Lag", align="right"),
    Column(name="Last row", align="right"),
)
QUERY_COLUMNS = (
    Column(name="Query"),
    Column(name="State"),
    Column(name="rows/s", align="right"),
    Column(name="Lag", align="right"),
)
BUSIEST = 8
ALERTS_SHOWN = 3


@screen("/", title="Home", icon="home", key="h", order=0)
def home(visit: Visit) -> None:
    HomePage(visit).start()


@dataclass(frozen=True, slots=True)
class HealthContent:
    """What the page shows, as far as the caller may see it."""

    topics: list[TopicStatus]
    statuses: list[QueryStatus]
    lags: dict[str, int]
    """Rows that groups and queries have not read, by their names."""
    lag_of_topics: dict[str, int]
    dead_letters: int
    """Open dead letters of all topics."""
    firing: list[Summary]
    rates: list[tuple[float, float]]
    """Rows a second of all inputs together, with the time."""


class HomePage(LivePage[HealthContent]):
    """The first page."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._history = context().history
        heading("Home", under="Everything that can be wrong, on one page.", why="health")
        self._firing = block("note bad").props('role="status" aria-label="Alerts that fire"')
        self._firing.set_visibility(False)
        with block("grid tiles"):
            self._queries = Stat("Queries", href=path_to("queries"))
            self._rate = Stat("Rows in", unit="rows/s", href=path_to("topics"))
            self._lag = Stat("Worst lag", unit="rows", href=path_to("groups"), why="lag")
            self._watermark = Stat("Watermark delay", href=path_to("queries"), why="watermark")
            self._late = Stat("Late rows", href=path_to("late"), why="late")
            self._dead_letters = Stat("Dead letters", href=path_to("dead-letters"), why="dead_letters")
        with block("split start"):
            with block("stack").style("gap: 16px"):
                with card("Rows in a second"):
                    self._chart = LineChart(label="Rows a second, of all inputs", dark=visit.dark, height=240)
                with card("Busiest topics", flush=True):
                    none = "No topic yet. `headwater topic create` makes one."
                    self._topics = Table(TOPIC_COLUMNS, label="Busiest topics", none=none)
            with card("Queries", flush=True):
                self._table = Table(QUERY_COLUMNS, label="Queries", none="No app has run on this log.")
        self._nothing = empty(
            "Nothing here yet", "Append the first rows, and watch them arrive.", command="headwater produce greetings"
        )
        self._nothing.set_visibility(False)

    # -- loading ------------------------------------------------------------------------------------------------------

    def load(self) -> HealthContent:
        self._history.wait()
        visit, lags, statuses = self._visit, self._visit.lags(), self._visit.queries()
        dead_letters, service = 0, visit.services.dead_letters
        for name in service.topics():
            with contextlib.suppress(HeadwaterError):  # deleted meanwhile
                dead_letters += sum(reason.open for reason in service.reasons(name))
        topics = [topic for topic in visit.topics() if not topic.name.startswith("__")]
        return HealthContent(
            topics=topics,
            statuses=sorted(statuses, key=badness),
            lags={
                **{f"group {name}": rows for name, rows in lag_by(lags, "group").items()},
                **{f"query {one.name}": one.lag_rows for one in statuses if one.lag_rows is not None},
            },
            lag_of_topics=lag_by(lags, "topic"),
            dead_letters=dead_letters,
            firing=shared_alerts().status().firing if visit.caller.may("read", "*") else [],
            rates=self._rates(topics),
        )

    def _rates(self, topics: list[TopicStatus]) -> list[tuple[float, float]]:
        """Rows a second of all inputs together, in steps of two seconds."""
        if self._visit.caller.may("read", "*"):
            return list(self._history.rates)[-300:]
        totals: dict[int, float] = {}
        for topic in (topic for topic in topics if self._history.kind(topic.name) == "input"):
            for at, value in self._history.series("topic", topic.name, "rate", points=300):
                totals[int(at) // 2] = totals.get(int(at) // 2, 0.0) + value
        return [(step * 2.0, value) for step, value in sorted(totals.items())]

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, content: HealthContent) -> None:
        self._show_alerts(content.firing)
        self._show_queries(content.statuses)
        inputs = [topic for topic in content.topics if self._history.kind(topic.name) == "input"]
        rate, line = sum(topic.rate for topic in inputs), [value for _, value in unbroken(content.rates)][-40:]
        of_topics = f"{counted(len(inputs), 'input')} of {counted(len(content.topics), 'topic')}"
        self._rate.set(short(rate), foot=of_topics, line=line)
        lags = content.lags
        worst = max(lags, key=lambda name: lags[name], default=None)
        self._lag.set(
            short(lags[worst]) if worst else "0",
            foot="nothing reads" if worst is None else worst if lags[worst] else "all caught up",
            tone="warn" if worst and lags[worst] > 10_000 else "",
            href=path_to("queries" if worst and worst.startswith("query ") else "groups"),
        )
        waiting = content.dead_letters
        foot = "waiting for a decision" if waiting else "none"
        self._dead_letters.set(count(waiting), foot=foot, tone="warn" if waiting else "good")
        self._chart.set({"rows/s": content.rates})
        busiest = sorted(content.topics, key=lambda topic: (-topic.rate, -topic.rows, topic.name))[:BUSIEST]
        self._topics.set_rows([self._topic_row(topic, content.lag_of_topics) for topic in busiest])
        self._nothing.set_visibility(not content.topics)

    def _topic_row(self, topic: TopicStatus, lags: dict[str, int]) -> Row:
        cells = [
            link(topic.name, path_to("topics", topic.name)),
            self._history.kind(topic.name),
            drawn(sparkline(self._history.values("topic", topic.name, "rate"))),
            short(topic.rate),
            count(topic.rows),
            short(lags[topic.name]) if topic.name in lags else "–",
            ago(topic.appended_at_us),
        ]
        return Row(cells, key=topic.name)

    def _show_alerts(self, firing: list[Summary]) -> None:
        self._firing.set_visibility(bool(firing))
        self._firing.clear()
        with self._firing:
            ui.icon("notifications_active").props('aria-hidden="true"').classes("tone-text-bad alert-icon")
            with block("stack tight grow"):
                text = "1 alert is firing" if len(firing) == 1 else f"{len(firing)} alerts are firing"
                ui.label(text).classes("strong")
                for rule in firing[:ALERTS_SHOWN]:
                    message = next((state.message for state in rule.subjects if state.state == "firing"), "")
                    name = f'<a href="{path_to("alerts", rule.name)}">{escape(rule.name)}</a>'
                    html(f'{name} <span class="quiet">{escape(message)}</span>').classes("small wrap-anywhere")
                if len(firing) > ALERTS_SHOWN:
                    html(f'<a href="{path_to("alerts")}">and {len(firing) - ALERTS_SHOWN} more</a>')

    def _show_queries(self, statuses: list[QueryStatus]) -> None:
        running = [status for status in statuses if status.state in ("running", "caught up")]
        foot, tone = _summary(statuses, is_starting=context().is_starting)
        self._queries.set(f"{len(running)}/{len(statuses)}" if statuses else "0", foot=foot, tone=tone)
        delays = {status.name: delay for status in statuses if (delay := delay_of(status)) is not None}
        slowest = max(delays, key=lambda name: delays[name], default=None)
        self._watermark.set(span(delays[slowest]) if slowest else "–", foot=slowest or "no watermark yet")
        late = sum(status.late for status in statuses)
        self._late.set(count(late), foot="behind the watermark", tone="warn" if late else "")
        self._table.set_rows(
            [
                Row(
                    [
                        link(status.name, query_path(status)),
                        mark(status.state, TONES.get(status.state, "")),
                        short(status.rows_per_second),
                        "–" if status.lag_rows is None else short(status.lag_rows),
                    ],
                    key=f"{status.app}/{status.name}/{status.version}",
                )
                for status in statuses
            ]
        )


def _summary(statuses: list[QueryStatus], *, is_starting: bool) -> tuple[str, str]:
    """The states of all queries in a few words, and their tone; `statuses` has the worst first."""
    if not statuses:
        return "no app has run", ""
    if is_starting:
        return "Spark is starting", ""
    worst = statuses[0]
    if worst.state in ("failed", "restarting"):
        return worst.error or f"{worst.name} is {worst.state}", "bad"
    stopped = [status.name for status in statuses if status.state == "stopped"]
    if stopped:
        return "all stopped" if len(stopped) == len(statuses) else f"stopped: {', '.join(stopped)}", "warn"
    coming = sum(status.state in ("waiting", "starting") for status in statuses)
    return (f"{coming} start", "") if coming else ("all run", "good")
