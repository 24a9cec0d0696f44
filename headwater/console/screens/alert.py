"""One alert rule: how its subjects stand, when it fired, who was told; and what may be done to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from headwater.alerts import Change, Delivery, Standing, Summary, Watcher
from headwater.console.alerting import alerts as shared
from headwater.console.context import context
from headwater.console.parts.alert_form import RuleForm
from headwater.console.parts.alert_words import STATES, about, limit, standings, tells, value, worst
from headwater.console.parts.layout import block, button, card, heading, note
from headwater.console.parts.live import attempt, every, read, tell
from headwater.console.parts.question import Question
from headwater.console.parts.segments import Segments
from headwater.console.parts.stat import Stat
from headwater.console.parts.state_line import state_line, stretches
from headwater.console.parts.table import Column, Pages, Row, Table, mark, toned
from headwater.console.parts.words import ago, count, moment, span
from headwater.console.screen import screen
from headwater.console.screens.alerts import CHANGES, CHANGES_MAX, change_row
from headwater.console.visit import Visit
from headwater.errors import AlertNotFound
from headwater.units import DAY, HOUR

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
    visit.caller.require("read", "*")
    page = Alert(visit, name)
    found = await read(page.look)  # one that is not there is told at once
    page.build(found)
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A rule with what has happened to it."""

    summary: Summary
    changes: list[Change]
    deliveries: dict[str, list[Delivery]]
    fired: int


class Alert:
    """The page of a rule."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit, self._name = visit, name
        self._found: Found | None = None

    def look(self) -> Found:
        watcher = context().service.watcher
        summary = next((one for one in watcher.states() if one.name == self._name), None)
        if summary is None:
            raise AlertNotFound(rule=self._name, near="")
        changes = watcher.history(rule=self._name, limit=CHANGES_MAX)
        day_us = round((time.time() - DAY) * 1e6)
        return Found(
            summary=summary,
            changes=changes,
            deliveries=watcher.book.outbox.of(one.id for one in changes),
            fired=sum(one.state == "firing" and one.at_us >= day_us for one in changes),
        )

    # -- making -------------------------------------------------------------------------------------------------------

    def build(self, found: Found) -> None:
        rule = found.summary.rule
        self._form = RuleForm(self._visit, self._refresh)
        with heading(self._name, under=_sentence(about(rule)) if rule else "", why="alerts"):
            if self._visit.caller.may("admin", "*"):
                self._build_actions(has_rule=rule is not None)
        self._trouble = block("")
        with block("grid tiles"):
            self._state, self._now = Stat("State"), Stat("Worst now")
            self._limit, self._fired = Stat("Fires at"), Stat("Fired in 24 hours")
            self._tells = Stat("Tells")
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

    def show(self, found: Found) -> None:
        self._found = found
        summary, rule = found.summary, found.summary.rule
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
        self._fired.set(count(found.fired), foot="times it began", tone="warn" if found.fired else "")
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
            self._tells.set("nobody", foot=f"snoozed until {moment(rule.snoozed_until_us)[:16]} UTC", tone="warn")
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
        if self._found is None:
            return
        seconds = SPANS[self._span.value]
        end_us = round(time.time() * 1e6)
        end_us -= end_us % 2_000_000
        start_us = end_us - round(seconds * 1e6)
        changes = [one for one in self._found.changes if one.at_us >= start_us]
        summary = self._found.summary
        paused = summary.state == "paused"
        found = stretches(changes, standings(summary), start_us=start_us, end_us=end_us, paused=paused)
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
        if self._found is None or (rule := self._found.summary.rule) is None:
            return
        order = list(STATES)
        rank = {"firing": -3, "pending": -2}

        def key(one: Standing) -> tuple[int, float]:
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
            for one in self._pages.part(sorted(self._found.summary.subjects, key=key))
        ]
        self._subjects.set_rows(rows)

    def _show_changes(self) -> None:
        if self._found is not None:
            secret = not self._visit.caller.may("admin", "*")
            deliveries = self._found.deliveries
            self._changes.set_rows(
                [
                    change_row(one, deliveries.get(one.id, []), secret=secret, with_rule=False)
                    for one in self._more.part(self._found.changes)
                ]
            )

    async def _refresh(self) -> None:
        found = await attempt(self.look)
        if found is not None:
            self.show(found)

    # -- doing --------------------------------------------------------------------------------------------------------

    # Any: what is done gives back whatever it likes.
    async def _do(self, action: str, work: Callable[[Watcher], Any]) -> Any:
        """Do something to the rule, if the visitor may, and write down who did."""
        caller = self._visit.caller

        def act() -> Any:
            caller.require("admin", "*")
            result = work(context().service.watcher)
            context().note(caller, f"{action} alert rule", self._name)
            shared().forget()
            return True if result is None else result

        result = await attempt(act)
        if result is not None and action != "remove":
            await self._refresh()
        return result

    async def _edit(self) -> None:
        if self._found is not None and self._found.summary.rule is not None:
            await self._form.open(self._found.summary.rule)

    async def _pause_or_resume(self) -> None:
        is_watched = (
            self._found is not None and self._found.summary.rule is not None and self._found.summary.rule.enabled
        )
        if is_watched:
            question = Question(f"Pause {self._name}?", yes="Pause")
            with question:
                ui.label(
                    "It is not looked at until somebody resumes it. What fires now ends without a word to anybody."
                )
            if not await question.answered():
                return
        if await self._do(
            "pause" if is_watched else "resume", lambda watcher: watcher.pause(self._name, paused=is_watched)
        ):
            tell("The rule is paused." if is_watched else "The rule is watched again.")

    async def _snooze(self, seconds: float | None) -> None:
        until_us = None if seconds is None else context().log.clock.now_us() + round(seconds * 1e6)
        action = "wake" if seconds is None else "snooze"
        if await self._do(action, lambda watcher: watcher.snooze(self._name, until_us=until_us)):
            tell(
                "People are told again."
                if seconds is None
                else f"Nobody is told for {span(seconds)}; it is still watched."
            )

    async def _test(self) -> None:
        rule = None if self._found is None else self._found.summary.rule
        if rule is None:
            return
        question = Question("Send a test?", yes="Send")
        with question:
            ui.label(f"{tells(rule).capitalize()} would be told now that this is a test.")
            for target in (*rule.webhooks, *rule.emails):
                ui.label(target).classes("mono small wrap-anywhere")
        if not await question.answered():
            return
        result = await self._do("test", lambda watcher: watcher.test(self._name))
        if result is not None and result is not True:
            self._tell_test(result)

    def _tell_test(self, deliveries: list[Delivery]) -> None:
        failed = [one for one in deliveries if one.state != "sent"]
        for one in failed:
            tell(f"{one.target} was not told: {one.error}", good=False)
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
        if await question.answered() and await self._do("remove", lambda watcher: watcher.remove(self._name)):
            ui.navigate.to("/console/alerts")


def _sentence(text: str) -> str:
    return text if text.upper().startswith(("SELECT", "WITH")) else text[:1].upper() + text[1:]


def _in_two(text: str) -> tuple[str, str]:
    """The limit, short enough for a tile; the rest under it."""
    first, _, rest = text.partition(" for ")
    shorter = first.replace("more than ", "> ")
    return shorter, f"for {rest}" if rest else "at once"
