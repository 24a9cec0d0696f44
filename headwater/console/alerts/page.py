"""One alert rule: the states of its subjects, when it fired, who was notified; and what may be done to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from nicegui import ui

from headwater.alerts import AlertState, Delivery, Summary
from headwater.console.alerts.badge import alerts as shared
from headwater.console.alerts.form import RuleDialog
from headwater.console.alerts.list_page import CHANGES, CHANGES_MAX, change_row
from headwater.console.alerts.state_line import state_line, stretches
from headwater.console.alerts.words import STATES, about, limit, states, tells, value, worst
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, button, card, heading, note
from headwater.console.kit.live import attempt, every, read, tell
from headwater.console.kit.segments import Segments
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Pages, Row, Table, mark, toned
from headwater.console.kit.words import ago, count, moment, span
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.services.alerts import Alerts, HistoryEntry
from headwater.units import DAY, HOUR

T = TypeVar("T")
SUBJECTS = (
    Column(name="state", label="State", width="96px"),
    Column(name="subject", label="What"),
    Column(name="value", label="Now", align="right"),
    Column(name="since", label="Since", align="right"),
    Column(name="message", label="In words"),
)
SPANS = {"1 hour": HOUR, "24 hours": DAY, "7 days": 7 * DAY}
SNOOZES = {"15 minutes": 900.0, "1 hour": HOUR, "8 hours": 8 * HOUR, "3 days": 3 * DAY}


@screen("/alerts/{name}", under="/alerts")
async def alert(visit: Visit, name: str) -> None:
    page = AlertPage(visit, name)
    page.build(await read(page.look))  # a rule that is not there is an error instead of a page
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class RuleContent:
    """A rule, its state and its history."""

    summary: Summary
    changes: list[HistoryEntry]
    fired: int


class AlertPage:
    """The page of a rule."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit, self._name = visit, name
        self._content: RuleContent | None = None

    def look(self) -> RuleContent:
        service = self._visit.services.alerts
        changes = service.history(self._name, limit=CHANGES_MAX)
        day_us = round((time.time() - DAY) * 1e6)
        return RuleContent(
            summary=service.rule(self._name),
            changes=changes,
            fired=sum(one.state == "firing" and one.at_us >= day_us for one in changes),
        )

    # -- making -------------------------------------------------------------------------------------------------------

    def build(self, content: RuleContent) -> None:
        rule = content.summary.rule
        self._form = RuleDialog(self._visit, self._refresh)
        with heading(self._name, under=_sentence(about(rule)) if rule else "", why="alerts"):
            if self._visit.caller.may("admin", "*"):
                self._build_actions(has_rule=rule is not None)
        self._trouble = block("")
        with block("grid tiles"):
            self._state, self._now = Stat("State"), Stat("Worst now")
            self._limit, self._fired = Stat("Fires at"), Stat("Fired in 24 hours")
            self._tells = Stat("Notifies")
        with card("Over time") as made:
            self._span = Segments(list(SPANS), value="24 hours", label="How far back", on_change=self._show_line)
            with made:
                self._line = ui.html("", sanitize=False)
        with card("What it watches", flush=True):
            self._subjects = Table(SUBJECTS, label="What the rule watches", none="Nothing fits it now.")
            self._pages = Pages(self._show_subjects, size=25)
        with card("History", flush=True):
            columns = [
                Column(name="subject", label="What it was about") if one.name == "rule" else one for one in CHANGES
            ]
            self._changes = Table(columns, label="History of the rule", none="Nothing has happened yet.")
            self._more = Pages(self._show_changes, size=25)

    def _build_actions(self, *, has_rule: bool) -> None:
        if has_rule:
            self._build_snooze()
            self._pause = button("Pause", self._pause_or_resume, icon="pause")
            button("Send a test", self._test, icon="send")
        button("Remove", self._remove, icon="delete", kind="danger")
        if has_rule:
            button("Edit", self._edit, icon="edit", kind="primary")

    def _build_snooze(self) -> None:
        self._wake = button("Wake up", lambda: self._snooze(None), icon="notifications_active")
        self._wake.set_visibility(False)
        self._sleep = button("Snooze", icon="snooze")
        with self._sleep, ui.menu().props('auto-close aria-label="Snooze for"'):
            for words, seconds in SNOOZES.items():
                ui.menu_item(f"for {words}", on_click=lambda seconds=seconds: self._snooze(seconds))

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, content: RuleContent) -> None:
        self._content = content
        summary, rule = content.summary, content.summary.rule
        name, tone = STATES[summary.state]
        since = f"for {span(time.time() - summary.since_us / 1e6)}" if summary.since_us else "since the last look"
        self._state.set(name, foot=since, tone=tone)
        self._show_trouble(summary)
        if rule is None:
            return
        found_worst = worst(summary)
        self._now.set(value(rule, found_worst) if found_worst else "–", foot=found_worst.subject if found_worst else "")
        first, rest = _in_two(limit(rule))
        self._limit.set(first, foot=rest)
        self._fired.set(count(content.fired), foot="times it began", tone="warn" if content.fired else "")
        self._show_receivers(summary)
        if self._visit.caller.may("admin", "*"):
            self._wake.set_visibility(summary.is_snoozed)
            self._sleep.set_visibility(not summary.is_snoozed)
            self._pause.set_text("Pause" if rule.enabled else "Resume")
            self._pause.set_icon("pause" if rule.enabled else "play_arrow")
        self._show_line()
        self._show_subjects()
        self._show_changes()

    def _show_receivers(self, summary: Summary) -> None:
        if (rule := summary.rule) is None:
            return
        if summary.is_snoozed:
            self._tells.set("none", foot=f"snoozed until {moment(rule.snoozed_until_us)[:16]} UTC", tone="warn")
        else:
            self._tells.set(count(len(rule.webhooks) + len(rule.emails) + rule.browser), foot=tells(rule))

    def _show_trouble(self, summary: Summary) -> None:
        self._trouble.clear()
        with self._trouble:
            if summary.error:
                note(f"How the rule stands is unknown. {summary.error}", "warn").props('role="alert"')
            if summary.rule is not None and summary.rule.note:
                note(summary.rule.note)

    def _show_line(self) -> None:
        if self._content is None:
            return
        seconds = SPANS[self._span.value]
        end_us = round(time.time() * 1e6)
        end_us -= end_us % 2_000_000
        start_us = end_us - round(seconds * 1e6)
        changes = [one for one in self._content.changes if one.at_us >= start_us]
        summary = self._content.summary
        paused = summary.state == "paused"
        found = stretches(changes, states(summary), start_us=start_us, end_us=end_us, paused=paused)
        ends = f'<div class="line-ends"><span>{moment(start_us)[:16]}</span><span>now, UTC {moment(end_us)[11:16]}</span></div>'
        legend = "".join(
            f'<span class="state-legend {tone}">{words}</span>'
            for words, tone in (
                ("ok", "good"),
                ("pending", "warn"),
                ("firing", "bad"),
                ("unknown", "info"),
                ("paused", "off"),
            )
        )
        line = state_line(found, label=f"Last {self._span.value}", tall=True)
        self._line.set_content(f'{line}{ends}<div class="row-flex small quiet">{legend}</div>')

    def _show_subjects(self) -> None:
        if self._content is None or (rule := self._content.summary.rule) is None:
            return
        order = list(STATES)
        rank = {"firing": -3, "pending": -2}

        def key(one: AlertState) -> tuple[int, float]:
            return rank.get(one.state, order.index(one.state)), -one.value

        rows = [
            Row(
                [
                    mark(*STATES[one.state]),
                    one.subject,
                    toned(value(rule, one), "bad" if one.state == "firing" else ""),
                    ago(one.since_us) if one.since_us else "–",
                    one.message,
                ],
                key=one.subject,
            )
            for one in self._pages.part(sorted(self._content.summary.subjects, key=key))
        ]
        self._subjects.set_rows(rows)

    def _show_changes(self) -> None:
        if self._content is not None:
            self._changes.set_rows([change_row(one, with_rule=False) for one in self._more.part(self._content.changes)])

    async def _refresh(self) -> None:
        content = await attempt(self.look)
        if content is not None:
            self.show(content)

    # -- doing --------------------------------------------------------------------------------------------------------

    async def _do(self, act: Callable[[Alerts], T]) -> T | None:
        """Change the rule and show it; None if that was refused."""

        def work() -> T:
            answer = act(self._visit.services.alerts)
            shared().forget()
            return answer

        answer = await attempt(work)
        if answer is not None:
            await self._refresh()
        return answer

    async def _edit(self) -> None:
        if self._content is not None and self._content.summary.rule is not None:
            await self._form.open(self._content.summary.rule)

    async def _pause_or_resume(self) -> None:
        is_watched = (
            self._content is not None and self._content.summary.rule is not None and self._content.summary.rule.enabled
        )
        if is_watched:
            question = Question(f"Pause {self._name}?", yes="Pause")
            with question:
                ui.label("It is not evaluated until it is resumed. Alerts that fire now end without a notification.")
            if not await question.answered():
                return
        change = Alerts.pause if is_watched else Alerts.resume
        if await self._do(lambda service: change(service, self._name)):
            tell("The rule is paused." if is_watched else "The rule is watched again.")

    async def _snooze(self, seconds: float | None) -> None:
        until_us = None if seconds is None else round((time.time() + seconds) * 1e6)
        if await self._do(lambda service: service.snooze(self._name, until_us)):
            tell(
                "Notifications are sent again."
                if seconds is None
                else f"No notifications for {span(seconds)}; the rule is still evaluated."
            )

    async def _test(self) -> None:
        rule = None if self._content is None else self._content.summary.rule
        if rule is None:
            return
        question = Question("Send a test?", yes="Send")
        with question:
            ui.label(f"{tells(rule).capitalize()} would be notified now that this is a test.")
            for target in (*rule.webhooks, *rule.emails):
                ui.label(target).classes("mono small wrap-anywhere")
        if not await question.answered():
            return
        deliveries = await self._do(lambda service: service.test(self._name))
        if deliveries is not None:
            self._tell_test(deliveries)

    def _tell_test(self, deliveries: list[Delivery]) -> None:
        failed = [one for one in deliveries if one.state != "sent"]
        for one in failed:
            tell(f"{one.target} was not notified: {one.error}", good=False)
        if not failed:
            tell(
                f"The test is sent to {len(deliveries)} receivers."
                if deliveries
                else "The test is sent to open browsers."
            )

    async def _remove(self) -> None:
        question = Question(f"Remove {self._name}?", yes="Remove", danger=True)
        with question:
            ui.label("The rule is gone, and so is what it says now. Its history stays.")
        if not await question.answered():
            return

        def remove() -> bool:
            self._visit.services.alerts.remove(self._name)
            shared().forget()
            return True

        if await attempt(remove):
            ui.navigate.to("/console/alerts")


def _sentence(text: str) -> str:
    return text if text.upper().startswith(("SELECT", "WITH")) else text[:1].upper() + text[1:]


def _in_two(text: str) -> tuple[str, str]:
    """The limit, short enough for a tile; the rest under it."""
    first, _, rest = text.partition(" for ")
    shorter = first.replace("more than ", "> ")
    return shorter, f"for {rest}" if rest else "at once"
