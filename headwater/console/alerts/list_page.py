"""Alerts: the rules with their states, and the history of what fired and who was notified."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.alerts import Change, Summary
from headwater.console.alerts import display
from headwater.console.alerts.badge import shared_alerts
from headwater.console.alerts.rule_dialog import RuleDialog
from headwater.console.context import Visit
from headwater.console.kit.controls import Segments, button
from headwater.console.kit.layout import Stat, block, card, empty, heading, html, note
from headwater.console.kit.live import LivePage, read
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import ago, clipped, count
from headwater.console.pages import path_to, screen
from headwater.services.alerts import HistoryEntry, Rules
from headwater.units import DAY

COLUMNS = (
    Column(name="state", label="State", width="96px"),
    Column(name="rule", label="Rule"),
    Column(name="now", label="Now"),
    Column(name="limit", label="Fires at"),
    Column(name="line", label="Last 24 hours", width="180px"),
    Column(name="since", label="Since", align="right"),
    Column(name="notifies", label="Notifies"),
)
#: Longer texts are cut in the table.
TEXT_MAX = 90
#: Records of the history that are read for one page.
CHANGES_MAX = 1_000
#: The states that each choice of the history shows.
FILTERS: dict[str, tuple[str, ...]] = {
    "All": (),
    "Fired": ("firing", "reminder", "resolved"),
    "Unknown": ("unknown",),
    "Tests": ("test",),
}
#: The order of the rules: these states first, then the others.
STATE_ORDER = ("firing", "unknown", "pending", *display.STATES)


@screen("/alerts", title="Alerts", group="Attention", icon="notifications", key="a", order=10)
async def alerts(visit: Visit) -> None:
    await read(visit.services.alerts.rules)  # a caller who may not see the rules gets an error instead of a page
    AlertList(visit).start()


@dataclass(frozen=True, kw_only=True)
class AlertsContent:
    """What the page shows."""

    rules: Rules
    day: dict[str, list[Change]]
    """The changes of the last 24 hours, by rule."""
    changes: list[HistoryEntry]


class AlertList(LivePage[AlertsContent]):
    """The list of rules, and the history of all of them."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        dialog = RuleDialog(visit, self.refresh)
        self._content: AlertsContent | None = None
        with heading("Alerts", under="Rules that are evaluated every few seconds, and who is notified.", why="alerts"):
            notify_button()
            if visit.caller.may("admin", "*"):
                button("New rule", dialog.open, icon="add", kind="primary")
        self._unwatched = note("No process evaluates the rules now: `headwater serve` and `headwater run` do.", "warn")
        self._unwatched.set_visibility(False)
        with block("grid tiles"):
            self._firing = Stat("Firing")
            self._pending = Stat("Pending", why="alert_pending")
            self._unknown = Stat("Unknown", why="alert_unknown")
            self._rules = Stat("Rules")
            self._waiting = Stat("Notifications waiting", why="alert_deliveries")
        with card("Rules", flush=True) as self._rules_card:
            self._table = Table(COLUMNS, label="Alert rules", none="No rule yet.")
            self._pages = Pages(self._show_rules, size=50)
        self._nothing = empty(
            "No rule yet",
            "A rule says what must not happen for long: a group that falls behind, a query that is down, a row in a view.",
            icon="notifications_none",
            command="headwater alert set slow --kind lag --group billing --threshold 10000 --for '1 min'",
        )
        self._nothing.set_visibility(False)
        with card("History", flush=True):
            with block("card-body row-flex"):
                self._filter = Segments(list(FILTERS), value="All", label="Which changes", on_change=self.refresh)
            self._history = Table(display.HISTORY_COLUMNS, label="History of alerts", none="Nothing has happened yet.")
            self._history_pages = Pages(self._show_history, size=25)

    def load(self) -> AlertsContent:
        service = self._visit.services.alerts
        day: dict[str, list[Change]] = {}
        for change in service.history(since_us=round((time.time() - DAY) * 1e6), limit=CHANGES_MAX):
            day.setdefault(change.rule, []).append(change)
        changes = service.history(limit=CHANGES_MAX, state=list(FILTERS[self._filter.value]))
        return AlertsContent(rules=shared_alerts().status().rules, day=day, changes=changes)

    def show(self, content: AlertsContent) -> None:
        self._content = content
        rules, waiting = content.rules.rules, content.rules.deliveries_waiting
        self._unwatched.set_visibility(not content.rules.watched)
        names = {state: [rule.name for rule in rules if rule.state == state] for state in display.STATES}
        _show_names(self._firing, names["firing"], none="nothing is wrong", tones=("bad", "good"))
        _show_names(self._pending, names["pending"], none="none is on its way")
        _show_names(self._unknown, names["unknown"], none="every rule can be evaluated")
        paused = len(names["paused"])
        self._rules.set(count(len(rules)), foot=f"{paused} paused" if paused else "all are watched")
        foot = "receivers are away" if waiting else "all are sent"
        self._waiting.set(count(waiting), foot=foot, tone="warn" if waiting else "")
        self._rules_card.set_visibility(bool(rules))
        self._nothing.set_visibility(not rules)
        self._show_rules()
        self._show_history()

    def _show_rules(self) -> None:
        if self._content is not None:
            rules = sorted(self._content.rules.rules, key=lambda rule: (STATE_ORDER.index(rule.state), rule.name))
            day = self._content.day
            is_measured = self._content.rules.looked_at_us is not None
            rows = [_row(rule, day.get(rule.name, []), is_measured=is_measured) for rule in self._pages.part(rules)]
            self._table.set_rows(rows)

    def _show_history(self) -> None:
        if self._content is not None:
            self._history.set_rows(
                [display.history_row(entry) for entry in self._history_pages.part(self._content.changes)]
            )


def _show_names(tile: Stat, names: list[str], *, none: str, tones: tuple[str, str] = ("warn", "")) -> None:
    tile.set(count(len(names)), foot=", ".join(names) or none, tone=tones[0] if names else tones[1])


def _row(summary: Summary, changes: Sequence[Change], *, is_measured: bool) -> Row:
    """A rule. Values of subjects that are ok are known if this process evaluates the rules (`is_measured`)."""
    rule, path = summary.rule, path_to("alerts", summary.name)
    if rule is None:
        cells: list[Any] = [link(summary.name, path), toned(summary.error or "", "warn"), "", "", "", ""]
    else:
        line = display.state_line(display.line_of(summary, changes, seconds=DAY, step=10.0), label="Last 24 hours")
        cells = [
            link(summary.name, path, under=clipped(display.subject_of(rule), TEXT_MAX)),
            _now_cell(summary, is_measured=is_measured),
            display.limit_of(rule),
            drawn(line),
            ago(summary.since_us).removesuffix(" ago") if summary.since_us else "–",
            toned("none, snoozed", "quiet")
            if summary.is_snoozed
            else display.receivers_of(rule).replace("-", "\u2011"),
        ]
    return Row([mark(*display.STATES[summary.state]), *cells], key=summary.name)


# Any: a cell.
def _now_cell(summary: Summary, *, is_measured: bool) -> Any:
    if summary.error:
        return toned(clipped(summary.error, TEXT_MAX), "warn")
    worst = display.worst_subject(summary)
    if worst is None or summary.rule is None:
        nothing = "nothing fits it" if is_measured else "below the limit"
        return toned(nothing if summary.state != "paused" else "not watched", "quiet")
    tone = "bad" if worst.state == "firing" else ""
    under = "" if worst.subject == "rows" else clipped(worst.subject, TEXT_MAX)
    return toned(display.value_of(summary.rule, worst), tone, under=under)


def notify_button() -> None:
    """The button that asks the browser for permission to show notifications; the page never asks by itself."""
    made = button("Notify me in this browser", icon="notifications_active").classes("ask-notify")
    made.on("click", js_handler="() => headwater.askToNotify()")
    html('<span class="pill good notify-on">This browser is notified</span>')
    refused = html('<span class="pill notify-off">This browser shows no notifications</span>')
    refused.tooltip("They are blocked in its settings, or this page came over HTTP from another machine.")
