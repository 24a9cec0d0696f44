"""The list of alert rules with their states, and the history of what fired and who was notified."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nicegui import ui

from headwater.alerts import Change, Summary
from headwater.console.alerts.badge import alerts as shared
from headwater.console.alerts.form import RuleDialog
from headwater.console.alerts.state_line import state_line, stretches
from headwater.console.alerts.words import STATES, about, limit, states, tells, told, value, worst
from headwater.console.kit.layout import block, button, card, empty, heading, note
from headwater.console.kit.live import every, read
from headwater.console.kit.segments import Segments
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import ago, count, moment
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.services.alerts import HistoryEntry, Rules
from headwater.units import DAY

COLUMNS = (
    Column(name="state", label="State", width="96px"),
    Column(name="rule", label="Rule"),
    Column(name="now", label="Now"),
    Column(name="limit", label="Fires at"),
    Column(name="line", label="Last 24 hours", width="180px"),
    Column(name="since", label="Since", align="right"),
    Column(name="tells", label="Notifies"),
)
CHANGES = (
    Column(name="at", label="When", width="160px"),
    Column(name="what", label="What", width="110px"),
    Column(name="rule", label="Rule"),
    Column(name="message", label="Message"),
    Column(name="told", label="Notified"),
)
#: Records of the history that are looked at for one page, and the states of each choice.
CHANGES_MAX = 1_000
FILTERS: dict[str, tuple[str, ...]] = {
    "All": (),
    "Fired": ("firing", "reminder", "resolved"),
    "Unknown": ("unknown",),
    "Tests": ("test",),
}


@screen("/alerts", title="Alerts", group="Attention", icon="notifications", key="a", order=10)
async def alerts(visit: Visit) -> None:
    await read(visit.services.alerts.rules)  # a caller who may not see the rules gets an error instead of a page
    page = AlertList(visit)
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class AlertsContent:
    """What the page shows."""

    rules: Rules
    day: dict[str, list[Change]]
    changes: list[HistoryEntry]


class AlertList:
    """The page, and how it is kept up to date."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._form = RuleDialog(visit, self._refresh)
        self._content: AlertsContent | None = None
        with heading("Alerts", under="Rules that are evaluated every few seconds, and who is notified.", why="alerts"):
            notify_button()
            if visit.caller.may("admin", "*"):
                button("New rule", self._form.open, icon="add", kind="primary")
        self._unwatched = note("No process evaluates the rules now: `headwater serve` and `headwater run` do.", "warn")
        self._unwatched.set_visibility(False)
        with block("grid tiles"):
            self._firing = Stat("Firing")
            self._pending = Stat("Pending", why="alert_pending")
            self._errors = Stat("Unknown", why="alert_unknown")
            self._rules = Stat("Rules")
            self._told = Stat("Notifications waiting", why="alert_deliveries")
        with card("Rules", flush=True) as self._rules_card:
            self._table = Table(COLUMNS, label="Alert rules", none="No rule yet.")
            self._pages = Pages(self._show_rules, size=50)
        self._nothing = block("")
        with card("History", flush=True) as made:
            with made, block("card-body row-flex"):
                self._filter = Segments(list(FILTERS), value="All", label="Which changes", on_change=self._refresh)
            self._changes = Table(CHANGES, label="History of alerts", none="Nothing has happened yet.")
            self._more = Pages(self._show_changes, size=25)

    def look(self) -> AlertsContent:
        service = self._visit.services.alerts
        start_us = round((time.time() - DAY) * 1e6)
        day: dict[str, list[Change]] = {}
        for change in service.history(since_us=start_us, limit=CHANGES_MAX):
            day.setdefault(change.rule, []).append(change)
        changes = service.history(limit=CHANGES_MAX, state=list(FILTERS[self._filter.value]))
        return AlertsContent(rules=shared().now().rules, day=day, changes=changes)

    def show(self, content: AlertsContent) -> None:
        self._content = content
        rules, waiting = content.rules.rules, content.rules.deliveries_waiting
        self._unwatched.set_visibility(not content.rules.watched)
        by_state = {state: [one for one in rules if one.state == state] for state in STATES}
        firing, pending, errors = by_state["firing"], by_state["pending"], by_state["unknown"]
        names = ", ".join(one.name for one in firing)
        self._firing.set(count(len(firing)), foot=names or "nothing is wrong", tone="bad" if firing else "good")
        self._pending.set(
            count(len(pending)),
            foot=", ".join(one.name for one in pending) or "none is on its way",
            tone="warn" if pending else "",
        )
        self._errors.set(
            count(len(errors)),
            foot=", ".join(one.name for one in errors) or "every rule can be evaluated",
            tone="warn" if errors else "",
        )
        paused = len(by_state["paused"])
        self._rules.set(count(len(rules)), foot=f"{paused} paused" if paused else "all are watched")
        self._told.set(
            count(waiting),
            foot="receivers are away" if waiting else "all are sent",
            tone="warn" if waiting else "",
        )
        self._show_rules()
        self._show_changes()
        self._show_nothing(not rules)

    def _show_nothing(self, is_empty: bool) -> None:
        self._rules_card.set_visibility(not is_empty)
        self._nothing.clear()
        if is_empty:
            with self._nothing:
                empty(
                    "No rule yet",
                    "A rule says what must not happen for long: a group that falls behind, a query that is down, a row in a view.",
                    icon="notifications_none",
                    command="headwater alert set slow --kind lag --group billing --threshold 10000 --for '1 min'",
                )

    def _show_rules(self) -> None:
        if self._content is not None:
            order = list(STATES)
            rules = sorted(
                self._content.rules.rules, key=lambda one: (_RANK.get(one.state, order.index(one.state) + 9), one.name)
            )
            self._table.set_rows([self._row(one) for one in self._pages.part(rules)])

    def _row(self, one: Summary) -> Row:
        name, tone = STATES[one.state]
        address = f"/console/alerts/{quote(one.name, safe='')}"
        if one.rule is None:
            cells: list[Any] = [
                mark(name, tone),
                link(one.name, address),
                toned(one.error or "", "warn"),
                "",
                "",
                "",
                "",
            ]
            return Row(cells, key=one.name)
        end_us = round(time.time() * 1e6)
        day = self._content.day.get(one.name, []) if self._content else []
        # Steps of ten seconds: what has not changed is not sent again.
        end_us -= end_us % 10_000_000
        found = stretches(
            day, states(one), start_us=end_us - round(DAY * 1e6), end_us=end_us, paused=one.state == "paused"
        )
        cells = [
            mark(name, tone),
            link(one.name, address, under=_short(about(one.rule))),
            self._now(one),
            limit(one.rule),
            drawn(state_line(found, label="Last 24 hours")),
            ago(one.since_us).removesuffix(" ago") if one.since_us else "–",
            toned("none, snoozed", "quiet") if one.is_snoozed else tells(one.rule),
        ]
        return Row(cells, key=one.name)

    def _now(self, one: Summary) -> Any:
        if one.error:
            return toned(_short(one.error), "warn")
        found = worst(one)
        if found is None or one.rule is None:
            return toned("nothing fits it" if one.state != "paused" else "not watched", "quiet")
        tone = "bad" if found.state == "firing" else ""
        return toned(value(one.rule, found), tone, under="" if found.subject == "rows" else _short(found.subject))

    def _show_changes(self) -> None:
        if self._content is not None:
            self._changes.set_rows([change_row(one) for one in self._more.part(self._content.changes)])

    async def _refresh(self) -> None:
        self.show(await read(self.look))


_RANK = {"firing": 0, "unknown": 1, "pending": 2}


def change_row(one: HistoryEntry, *, with_rule: bool = True) -> Row:
    """A record of the history."""
    name, tone = STATES[one.state]
    rule = [link(one.rule, f"/console/alerts/{quote(one.rule, safe='')}")] if with_rule else [one.subject or "–"]
    who = told(one)
    failed = any(delivery.state == "failed" for delivery in one.deliveries)
    cells = [moment(one.at_us)[:19], mark(name, tone), *rule, one.message, toned(who, "bad" if failed else "quiet")]
    return Row(cells, key=one.id)


def notify_button() -> None:
    """The button that asks the browser for permission to show notifications; the page never asks by itself."""
    made = button("Notify me in this browser", icon="notifications_active").classes("ask-notify")
    made.on("click", js_handler="() => headwater.askToNotify()")
    ui.html('<span class="pill good notify-on">This browser is notified</span>', sanitize=False)
    refused = ui.html('<span class="pill notify-off">This browser shows no notifications</span>', sanitize=False)
    refused.tooltip("They are blocked in its settings, or this page came over HTTP from another machine.")


def _short(text: str) -> str:
    return text if len(text) <= 90 else text[:89] + "…"
