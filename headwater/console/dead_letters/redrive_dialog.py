"""The dialog that redrives dead letters, with a dry run first; and the card that shows the progress of a redrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.layout import block, button, select
from headwater.console.kit.live import attempt, read, tell
from headwater.console.kit.table import Column, Row, Table, toned
from headwater.console.kit.words import count, whole_number
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.dead_letters import SUFFIX, Selection
from headwater.log.redrive import Outcome
from headwater.services.dead_letters import Redrive as RedriveState

HOME = "where each came from"
REFUSALS_SHOWN = 3
COLUMNS = (
    Column(name="reason", label="Reason"),
    Column(name="back", label="Redriven", align="right"),
    Column(name="park", label="Parked", align="right"),
)


class RedriveDialog:
    """The dialog of one dead-letter topic. `after` is called when the work has begun."""

    def __init__(self, visit: Visit, topic: str, after: Callable[[], Any]) -> None:
        self._visit, self._topic, self._after = visit, topic, after
        self._selection = Selection()
        self._outcome: Outcome | None = None
        with ui.dialog().props('aria-label="Redrive"') as self._dialog, block("card stack"):
            ui.html("<h2>Redrive dead letters</h2>", sanitize=False)
            self._what = ui.label("").classes("quiet")
            with block("row-flex low"):
                self._to = select([HOME], value=HOME, label="To", on_change=self._changed, named=True)
                self._to.style("width: 230px")
                self._rate = self._number("Rows a second, at most", "")
                self._attempts = self._number("Attempts, then park", "3")
            with block("frame"):
                self._table = Table(COLUMNS, label="What the redrive does", none="No open dead letter is selected.")
            self._refused = block("note warn")
            self._sentence = ui.label("").classes("strong").props('role="status"')
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                self._do = button("Redrive", self._begin, kind="primary")

    def _number(self, label: str, value: str) -> ui.input:
        made = ui.input(label, value=value, placeholder="no limit", on_change=self._changed).classes("field")
        return made.props("outlined dense debounce=250").style("width: 176px")

    async def open(self, selection: Selection, told: str) -> None:
        self._selection = selection
        self._what.set_text(told)
        caller = self._visit.caller
        topics = [name for name in context().log.topics() if not name.endswith(SUFFIX) and caller.may("write", name)]
        self._to.set_options([HOME, *topics], value=HOME)
        self._dialog.open()
        await self._changed()

    # -- the dry run --------------------------------------------------------------------------------------------------

    def _asked(self) -> Callable[..., RedriveState]:
        """The redrive that the form describes."""
        attempts, rate = (self._attempts.value or "").strip(), (self._rate.value or "").strip()
        return partial(
            self._visit.services.dead_letters.redrive,
            self._topic,
            self._selection,
            to=None if self._to.value == HOME else str(self._to.value),
            attempts_max=whole_number(attempts, expected="attempts, at least 1", least=1) if attempts else None,
            rate=whole_number(rate, expected="rows a second, at least 1", least=1) if rate else None,
        )

    async def _changed(self) -> None:
        if not self._dialog.value:
            return
        try:
            asked = self._asked()
            self._show((await read(lambda: asked(dry_run=True))).outcome)
        except HeadwaterError as error:
            self._show(None, str(error))

    def _show(self, outcome: Outcome | None, trouble: str = "") -> None:
        self._outcome = outcome
        found = outcome or Outcome()
        names = sorted({*found.redriven, *found.parked}, key=lambda name: -found.redriven[name])
        self._table.set_rows(
            [Row([name, count(found.redriven[name]), _parked(found.parked[name])], key=name) for name in names]
        )
        self._refused.clear()
        self._refused.set_visibility(bool(found.refused))
        if found.refused:
            with self._refused, block("stack tight grow"):
                ui.label(f"{count(len(found.refused))} would be refused, and stay open:").classes("strong")
                for why in list(dict.fromkeys(one.why for one in found.refused))[:REFUSALS_SHOWN]:
                    ui.label(why).classes("small wrap-anywhere")
        self._sentence.set_text(trouble or f"Dry run: {told(found)} Nothing has been changed.")
        self._sentence.classes(add="tone-text-bad" if trouble else "", remove="" if trouble else "tone-text-bad")
        self._do.set_text(_verb(found))
        self._do.set_enabled(bool(found.changed) and self._visit.caller.may("admin", self._topic))

    # -- the act ------------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if await attempt(lambda: self._asked()(wait_seconds=0.0)):
            self._dialog.close()
            await self._after()


class RedriveProgress:
    """The progress of a redrive of the topic; hidden when there is none."""

    def __init__(self, visit: Visit, topic: str) -> None:
        self._visit, self._topic = visit, topic
        self._card = block("card stack tight").props('role="status" aria-label="Redrive"')
        with self._card:
            with block("row-flex between"):
                self._told = ui.label("").classes("strong")
                self._stop = button("Stop", self._stop_now, icon="stop")
            self._bar = ui.html("", sanitize=False)
        self._card.set_visibility(False)

    def show(self, job: RedriveState | None) -> None:
        self._card.set_visibility(job is not None)
        if job is not None:
            self._told.set_text(_sentence(job))
            self._stop.set_visibility(job.running and self._visit.caller.may("admin", self._topic))
            tone = "bad" if job.state == "failed" else ""
            self._bar.set_content(
                f'<div class="meter {tone}" role="progressbar" aria-label="Dead letters redriven" aria-valuemin="0" '
                f'aria-valuemax="100" aria-valuenow="{100 * job.share:.0f}"><i style="width: {100 * job.share:.1f}%"></i></div>'
            )

    def _stop_now(self) -> None:
        self._visit.services.dead_letters.stop_redrive(self._topic)
        tell("It stops after the rows that are on their way.")


def _sentence(job: RedriveState) -> str:
    words = {"running": "Redriving", "done": "Redriven", "stopped": "Stopped", "failed": "Failed"}
    refused = f", {count(len(job.outcome.refused))} refused" if job.outcome.refused else ""
    more = f" {job.error}" if job.error else ""
    return (
        f"{words[job.state]}: {count(job.outcome.changed)} of {count(job.total)}{refused}. Begun by {job.caller}.{more}"
    )


def told(outcome: Outcome) -> str:
    """What a redrive does, in a sentence.

    >>> told(Outcome())
    'nothing would be redriven.'
    """
    back, parked = outcome.redriven.total(), outcome.parked.total()
    parts = [f"{count(back)} would be redriven"] if back else []
    parts += [f"{count(parked)} would be parked, since they were tried too often"] if parked else []
    return (" and ".join(parts) or "nothing would be redriven") + "."


def _verb(outcome: Outcome) -> str:
    back, parked = outcome.redriven.total(), outcome.parked.total()
    parts = [f"redrive {count(back)}"] if back else []
    parts += [f"park {count(parked)}"] if parked else []
    text = ", ".join(parts) or "redrive"
    return text[0].upper() + text[1:]


def _parked(number: int) -> dict[str, str]:
    return toned(count(number), "warn" if number else "quiet")
