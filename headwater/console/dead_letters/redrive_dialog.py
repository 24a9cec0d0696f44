"""The dialog that redrives dead letters, with a dry run first; and the card that shows the progress of a redrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.kit.controls import button, select
from headwater.console.kit.layout import block, html, subtitle
from headwater.console.kit.live import attempt, notify, read
from headwater.console.kit.table import Column, Row, Table, toned
from headwater.console.kit.words import count, whole_number
from headwater.errors import HeadwaterError
from headwater.log.dead_letters import SUFFIX, Selection
from headwater.log.redrive import Outcome
from headwater.services.dead_letters import Redrive

ORIGIN = "where each came from"
REFUSALS_SHOWN = 3
COLUMNS = (
    Column(name="reason", label="Reason"),
    Column(name="redriven", label="Redriven", align="right"),
    Column(name="parked", label="Parked", align="right"),
)


class RedriveDialog:
    """The dialog of one dead-letter topic. `after` is called when the redrive has begun."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, visit: Visit, topic: str, after: Callable[[], Any]) -> None:
        self._visit, self._topic, self._after = visit, topic, after
        self._selection = Selection()
        with ui.dialog().props('aria-label="Redrive"') as self._dialog, block("card stack"):
            subtitle("Redrive dead letters")
            self._description = ui.label("").classes("quiet")
            with block("row-flex low"):
                self._to = select([ORIGIN], value=ORIGIN, label="To", on_change=self._try, named=True)
                self._to.style("width: 230px")
                self._rate = self._number("Rows a second, at most", "")
                self._attempts = self._number("Attempts, then park", "3")
            self._frame = block("frame")
            with self._frame:
                none = "No open dead letter is selected."
                self._table = Table(COLUMNS, label="What the redrive does", none=none)
            self._refused = block("note warn")
            self._summary = ui.label("").classes("strong").props('role="status"')
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                self._start = button("Redrive", self._redrive, kind="primary")

    def _number(self, label: str, value: str) -> ui.input:
        made = ui.input(label, value=value, placeholder="no limit", on_change=self._try).classes("field")
        return made.props("outlined dense debounce=250").style("width: 176px")

    async def open(self, selection: Selection, description: str) -> None:
        self._selection = selection
        self._description.set_text(description)
        caller = self._visit.caller
        topics = [name for name in context().log.topics() if not name.endswith(SUFFIX) and caller.may("write", name)]
        self._to.set_options([ORIGIN, *topics], value=ORIGIN)
        self._wait()
        self._dialog.open()
        await self._try()

    def _wait(self) -> None:
        """Show nothing of an earlier dry run: the one of this selection has not answered yet."""
        self._frame.set_visibility(False)
        self._refused.set_visibility(False)
        self._summary.set_text("A dry run looks at what would be redriven …")
        self._start.set_text("Redrive")
        self._start.set_enabled(False)

    def _described(self) -> partial[Redrive]:
        """The redrive that the form describes."""
        attempts, rate = (self._attempts.value or "").strip(), (self._rate.value or "").strip()
        return partial(
            self._visit.services.dead_letters.redrive,
            self._topic,
            self._selection,
            to=None if self._to.value == ORIGIN else str(self._to.value),
            attempts_max=whole_number(attempts, expected="attempts, at least 1", least=1) if attempts else None,
            rate=whole_number(rate, expected="rows a second, at least 1", least=1) if rate else None,
        )

    async def _try(self) -> None:
        """Show what a dry run does."""
        if not self._dialog.value:
            return
        try:
            redrive = self._described()
            self._show((await read(lambda: redrive(dry_run=True))).outcome)
        except HeadwaterError as error:
            self._show(Outcome(), str(error))

    def _show(self, outcome: Outcome, problem: str = "") -> None:
        redriven, parked, refused = outcome.redriven, outcome.parked, outcome.refused
        reasons = sorted({*redriven, *parked}, key=lambda reason: -redriven[reason])
        self._table.set_rows(
            [
                Row(
                    [
                        reason,
                        count(redriven[reason]),
                        toned(count(parked[reason]), "warn" if parked[reason] else "quiet"),
                    ],
                    key=reason,
                )
                for reason in reasons
            ]
        )
        self._frame.set_visibility(True)
        self._refused.clear()
        self._refused.set_visibility(bool(refused))
        if refused:
            with self._refused, block("stack tight grow"):
                ui.label(f"{count(len(refused))} would be refused, and stay open:").classes("strong")
                for why in list(dict.fromkeys(refusal.why for refusal in refused))[:REFUSALS_SHOWN]:
                    ui.label(why).classes("small wrap-anywhere")
        self._summary.set_text(problem or f"Dry run: {summary(outcome)} Nothing has been changed.")
        self._summary.classes(add="tone-text-bad" if problem else "", remove="" if problem else "tone-text-bad")
        verbs = [f"redrive {count(redriven.total())}"] if redriven.total() else []
        verbs += [f"park {count(parked.total())}"] if parked.total() else []
        text = ", ".join(verbs) or "redrive"
        self._start.set_text(text[0].upper() + text[1:])
        self._start.set_enabled(bool(outcome.changed) and self._visit.caller.may("admin", self._topic))

    async def _redrive(self) -> None:
        if await attempt(lambda: self._described()(wait_seconds=0.0)):
            self._dialog.close()
            await self._after()


def summary(outcome: Outcome) -> str:
    """What a redrive does, in a sentence.

    >>> summary(Outcome())
    'nothing would be redriven.'
    """
    redriven, parked = outcome.redriven.total(), outcome.parked.total()
    parts = [f"{count(redriven)} would be redriven"] if redriven else []
    parts += [f"{count(parked)} would be parked, since they were tried too often"] if parked else []
    return (" and ".join(parts) or "nothing would be redriven") + "."


class RedriveProgress:
    """The progress of a redrive of the topic; hidden when there is none."""

    def __init__(self, visit: Visit, topic: str) -> None:
        self._visit, self._topic = visit, topic
        self._card = block("card stack tight").props('role="status" aria-label="Redrive"')
        with self._card:
            with block("row-flex between"):
                self._text = ui.label("").classes("strong")
                self._stop_button = button("Stop", self._stop, icon="stop")
            self._bar = html("")
        self._card.set_visibility(False)

    def show(self, redrive: Redrive | None) -> None:
        self._card.set_visibility(redrive is not None)
        if redrive is None:
            return
        words = {"running": "Redriving", "done": "Redriven", "stopped": "Stopped", "failed": "Failed"}
        outcome, share = redrive.outcome, 100 * redrive.share
        refused = f", {count(len(outcome.refused))} refused" if outcome.refused else ""
        error = f" {redrive.error}" if redrive.error else ""
        self._text.set_text(
            f"{words[redrive.state]}: {count(outcome.changed)} of {count(redrive.total)}{refused}. "
            f"Begun by {redrive.caller}.{error}"
        )
        self._stop_button.set_visibility(redrive.running and self._visit.caller.may("admin", self._topic))
        tone = "bad" if redrive.state == "failed" else ""
        self._bar.set_content(
            f'<div class="meter {tone}" role="progressbar" aria-label="Dead letters redriven" aria-valuemin="0" '
            f'aria-valuemax="100" aria-valuenow="{share:.0f}"><i style="width: {share:.1f}%"></i></div>'
        )

    def _stop(self) -> None:
        self._visit.services.dead_letters.stop_redrive(self._topic)
        notify("It stops after the rows that are on their way.")
