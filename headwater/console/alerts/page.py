"""One alert rule: the states of its subjects, when it fired, who was notified; it can be snoozed, paused, tested, edited."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from nicegui import ui

from headwater.alerts import AlertState, Delivery, Summary
from headwater.console.alerts import display
from headwater.console.alerts.badge import shared_alerts
from headwater.console.alerts.list_page import CHANGES_MAX
from headwater.console.alerts.rule_dialog import RuleDialog
from headwater.console.context import Visit
from headwater.console.kit.controls import Segments, button
from headwater.console.kit.dialog import Question, confirm
from headwater.console.kit.layout import Stat, block, card, heading, html, note
from headwater.console.kit.live import LivePage, attempt, notify, read
from headwater.console.kit.table import Column, Pages, Row, Table, mark, toned
from headwater.console.kit.words import ago, count, moment, span
from headwater.console.pages import path_to, screen
from headwater.services.alerts import Alerts, HistoryEntry
from headwater.units import DAY, HOUR

T = TypeVar("T")
SUBJECT_COLUMNS = (
    Column(name="state", label="State", width="96px"),
    Column(name="subject", label="What"),
    Column(name="value", label="Now", align="right"),
    Column(name="since", label="Since", align="right"),
    Column(name="message", label="In words"),
)
#: The order of the subjects: these states first, then the others.
SUBJECT_ORDER = ("firing", "pending", *display.STATES)
SPANS = {"1 hour": HOUR, "24 hours": DAY, "7 days": 7 * DAY}
SNOOZES = {"15 minutes": 900.0, "1 hour": HOUR, "8 hours": 8 * HOUR, "3 days": 3 * DAY}
LEGEND = {"ok": "good", "pending": "warn", "firing": "bad", "unknown": "info", "paused or not evaluated": "off"}


@screen("/alerts/{name}", under="/alerts")
async def alert(visit: Visit, name: str) -> None:
    page = AlertPage(visit, name)
    page.build(await read(page.load))  # a rule that does not exist is an error instead of a page
    page.start()


@dataclass(frozen=True, kw_only=True)
class RuleContent:
    """A rule, its state and its history."""

    summary: Summary
    changes: list[HistoryEntry]
    fired: int
    """How often it began to fire in the last 24 hours."""


class AlertPage(LivePage[RuleContent]):
    """The page of a rule."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit, self._name = visit, name
        self._is_admin = visit.caller.may("admin", "*")

    def load(self) -> RuleContent:
        service = self._visit.services.alerts
        changes = service.history(self._name, limit=CHANGES_MAX)
        day_us = round((time.time() - DAY) * 1e6)
        fired = sum(entry.state == "firing" and entry.at_us >= day_us for entry in changes)
        return RuleContent(summary=service.rule(self._name), changes=changes, fired=fired)

    # -- the page -----------------------------------------------------------------------------------------------------

    def build(self, content: RuleContent) -> None:
        self._content, rule = content, content.summary.rule
        self._dialog = RuleDialog(self._visit, self.refresh)
        under = display.subject_of(rule) if rule else ""
        if not under.upper().startswith(("SELECT", "WITH")):
            under = under[:1].upper() + under[1:]
        with heading(self._name, under=under, why="alerts"):
            if self._is_admin:
                self._build_actions(has_rule=rule is not None)
        self._problem = block("")
        with block("grid tiles"):
            self._state, self._now = Stat("State"), Stat("Worst now")
            self._limit, self._fired = Stat("Fires at"), Stat("Fired in 24 hours")
            self._receivers = Stat("Notifies")
        with card("Over time"):
            self._span = Segments(list(SPANS), value="24 hours", label="How far back", on_change=self._show_line)
            self._line = html("")
        with card("What it watches", flush=True):
            self._subjects = Table(SUBJECT_COLUMNS, label="What the rule watches", none="Nothing fits it now.")
            self._pages = Pages(self._show_subjects, size=25)
        with card("History", flush=True):
            subject = Column(name="subject", label="What it was about")
            columns = [subject if column.name == "rule" else column for column in display.HISTORY_COLUMNS]
            self._history = Table(columns, label="History of the rule", none="Nothing has happened yet.")
            self._history_pages = Pages(self._show_history, size=25)

    def _build_actions(self, *, has_rule: bool) -> None:
        if has_rule:
            self._wake_button = button("Wake up", lambda: self._snooze(None), icon="notifications_active")
            self._wake_button.set_visibility(False)
            self._snooze_button = button("Snooze", icon="snooze")
            with self._snooze_button, ui.menu().props('auto-close aria-label="Snooze for"'):
                for words, seconds in SNOOZES.items():
                    ui.menu_item(f"for {words}", on_click=lambda seconds=seconds: self._snooze(seconds))
            self._pause_button = button("Pause", self._pause_or_resume, icon="pause")
            button("Send a test", self._test, icon="send")
        button("Remove", self._remove, icon="delete", kind="danger")
        if has_rule:
            button("Edit", self._edit, icon="edit", kind="primary")

    # -- showing ------------------------------------------------------------------------------------------------------

    def show(self, content: RuleContent) -> None:
        self._content = content
        summary, rule = content.summary, content.summary.rule
        name, tone = display.STATES[summary.state]
        since = f"for {span(time.time() - summary.since_us / 1e6)}" if summary.since_us else "since the last look"
        self._state.set(name, foot=since, tone=tone)
        self._problem.clear()
        with self._problem:
            if summary.error:
                note(f"How the rule stands is unknown. {summary.error}", "warn").props('role="alert"')
            if rule is not None and rule.note:
                note(rule.note)
        if rule is None:
            return
        worst = display.worst_subject(summary)
        self._now.set(display.value_of(rule, worst) if worst else "–", foot=worst.subject if worst else "")
        limit, _, held = display.limit_of(rule).partition(" for ")
        self._limit.set(limit.replace("more than ", "> "), foot=f"for {held}" if held else "at once")
        self._fired.set(count(content.fired), foot="times it began", tone="warn" if content.fired else "")
        if summary.is_snoozed:
            self._receivers.set("none", foot=f"snoozed until {moment(rule.snoozed_until_us)[:16]} UTC", tone="warn")
        else:
            receivers = len(rule.webhooks) + len(rule.emails) + rule.browser
            self._receivers.set(count(receivers), foot=display.receivers_of(rule))
        if self._is_admin:
            self._wake_button.set_visibility(summary.is_snoozed)
            self._snooze_button.set_visibility(not summary.is_snoozed)
            self._pause_button.set_text("Pause" if rule.enabled else "Resume")
            self._pause_button.set_icon("pause" if rule.enabled else "play_arrow")
        self._show_line()
        self._show_subjects()
        self._show_history()

    def _show_line(self) -> None:
        line = display.line_of(self._content.summary, self._content.changes, seconds=SPANS[self._span.value], step=2.0)
        start, end = moment(line[0][0])[:16], moment(line[-1][1])[11:16]
        legend = "".join(f'<span class="state-legend {tone}">{state}</span>' for state, tone in LEGEND.items())
        self._line.set_content(
            display.state_line(line, label=f"Last {self._span.value}", tall=True)
            + f'<div class="line-ends"><span>{start}</span><span>now, UTC {end}</span></div>'
            + f'<div class="row-flex small quiet">{legend}</div>'
        )

    def _show_subjects(self) -> None:
        rule = self._content.summary.rule
        if rule is None:
            return

        def order(state: AlertState) -> tuple[int, float]:
            return SUBJECT_ORDER.index(state.state), -state.value

        rows = [
            Row(
                [
                    mark(*display.STATES[state.state]),
                    state.subject,
                    toned(display.value_of(rule, state), "bad" if state.state == "firing" else ""),
                    ago(state.since_us) if state.since_us else "–",
                    state.message,
                ],
                key=state.subject,
            )
            for state in self._pages.part(sorted(self._content.summary.subjects, key=order))
        ]
        self._subjects.set_rows(rows)

    def _show_history(self) -> None:
        entries = self._history_pages.part(self._content.changes)
        self._history.set_rows([display.history_row(entry, with_rule=False) for entry in entries])

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _change(self, act: Callable[[Alerts], T]) -> T | None:
        """Change the rule; None if that failed."""

        def work() -> T:
            answer = act(self._visit.services.alerts)
            shared_alerts().forget()
            return answer

        return await attempt(work)

    async def _edit(self) -> None:
        if self._content.summary.rule is not None:
            await self._dialog.open(self._content.summary.rule)

    async def _pause_or_resume(self) -> None:
        rule = self._content.summary.rule
        is_enabled = rule is not None and rule.enabled
        text = "It is not evaluated until it is resumed. Alerts that fire now end without a notification."
        if is_enabled and not await confirm(f"Pause {self._name}?", text, yes="Pause"):
            return
        change = Alerts.pause if is_enabled else Alerts.resume
        if await self._change(lambda service: change(service, self._name)):
            await self.refresh()
            notify("The rule is paused." if is_enabled else "The rule is watched again.")

    async def _snooze(self, seconds: float | None) -> None:
        until_us = None if seconds is None else round((time.time() + seconds) * 1e6)
        if await self._change(lambda service: service.snooze(self._name, until_us)):
            await self.refresh()
            text = "Notifications are sent again."
            if seconds is not None:
                text = f"No notifications for {span(seconds)}; the rule is still evaluated."
            notify(text)

    async def _test(self) -> None:
        rule = self._content.summary.rule
        if rule is None:
            return
        with Question("Send a test?", yes="Send") as question:
            ui.label(f"{display.receivers_of(rule).capitalize()} would be notified now that this is a test.")
            for target in (*rule.webhooks, *rule.emails):
                ui.label(target).classes("mono small wrap-anywhere")
        if not await question.answered():
            return
        deliveries = await self._change(lambda service: service.test(self._name))
        if deliveries is None:
            return
        await self.refresh()
        failed: list[Delivery] = [delivery for delivery in deliveries if delivery.state != "sent"]
        for delivery in failed:
            notify(f"{delivery.target} was not notified: {delivery.error}", good=False)
        if not failed:
            receivers = f"{len(deliveries)} receivers" if deliveries else "open browsers"
            notify(f"The test is sent to {receivers}.")

    async def _remove(self) -> None:
        text = "The rule is gone, and so is what it says now. Its history stays."
        if not await confirm(f"Remove {self._name}?", text, yes="Remove", danger=True):
            return
        if await self._change(lambda service: (service.remove(self._name),)):
            ui.navigate.to(path_to("alerts"))
