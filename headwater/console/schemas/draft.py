"""The draft of the next version of a schema: edited, checked against the versions there are, and registered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import button, text_box
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, card, html, note, pill
from headwater.console.kit.live import attempt, notify, read
from headwater.services.schemas import Draft, SchemaInfo, Verdict

FORCE_HELP = "Columns may go: rows keep what they hold, but readers no longer see it"
SIGNS = {"added": ("+", "good"), "removed": ("−", "bad")}


class DraftBox:
    """The draft of the next version. `after` is called with its number when it was registered."""

    # Any: the result of a coroutine.
    def __init__(self, visit: Visit, info: SchemaInfo, after: Callable[[int], Awaitable[Any]]) -> None:
        self._service, self._info, self._after = visit.services.schemas, info, after
        self._may_register = visit.caller.may(info.action, info.topic)
        self._begun = ""
        with card("The next version", why="schema_draft"), block("grid"):
            with block("stack"):
                label = "Avro schema" if info.kind == "subject" else "Columns, as `name type [not null]`, or JSON"
                self._text = text_box(label, lines=10, code=True)
                self._text.props('debounce=300 autogrow spellcheck=false input-style="min-height: 176px"')
                self._text.on_value_change(self._check)
                self._force = ui.checkbox(FORCE_HELP, on_change=self._check)
                self._force.set_visibility(info.kind == "topic")
            with block("stack"):
                self._verdict = block("stack tight").props('role="status" aria-label="Verdict"')
                with block("row-flex"):
                    self._do = button("Register", self._register, kind="primary", icon="check")

    def begin(self, text: str) -> None:
        """Start from the newest version, unless the user has changed the draft."""
        if (self._text.value or "") == self._begun:
            self._begun = text
            self._text.set_value(text)

    def _draft(self) -> Draft:
        return Draft(schema=self._text.value or "", force=bool(self._force.value))

    async def _check(self) -> None:
        draft = self._draft()
        verdict = await attempt(lambda: self._service.check(self._info.name, draft, kind=self._info.kind))
        if verdict is not None and draft == self._draft():
            self._show(verdict)

    def _show(self, verdict: Verdict) -> None:
        is_same = verdict.fits and not verdict.changes
        self._do.set_enabled(verdict.fits and not is_same and self._may_register)
        self._verdict.clear()
        with self._verdict:
            if is_same:
                ui.label("This is the newest version. Change it, and see whether it may follow.").classes("quiet")
                return
            pill("It may follow" if verdict.fits else "It may not follow", "good" if verdict.fits else "bad")
            listed = _list_changes(verdict)
            for why in verdict.refused:
                if why not in listed:
                    note(why, "bad")
            if not self._may_register:
                needed = f"To register it, one needs {self._info.action} rights on {self._info.topic}."
                ui.label(needed).classes("quiet")

    async def _register(self) -> None:
        draft, name, kind = self._draft(), self._info.name, self._info.kind
        verdict = await read(lambda: self._service.check(name, draft, kind=kind))
        if not verdict.fits:
            self._show(verdict)
            return
        with Question(f"Register a new version of {name}?", yes="Register it") as question:
            for change in verdict.changes:
                ui.label(change.description)
            ui.label("Versions stay: rows that are there keep the one they were written under.").classes("quiet")
        if await question.answered():
            registered = await attempt(lambda: self._service.register(name, draft, kind=kind))
            if registered is not None:
                notify(f"{name} has version {registered.version} now.")
                self._begun = self._draft().schema
                await self._after(registered.version)


def _list_changes(verdict: Verdict) -> set[str]:
    """List each change, and under it why it is refused; return the refusals that are listed."""
    listed: set[str] = set()
    for change in verdict.changes:
        sign, tone = SIGNS.get(change.kind, ("~", "warn"))
        prefix = f"{change.column}: "
        own = [why for why in verdict.refused if why.startswith(prefix) and why not in listed]
        listed.update(own)
        under = "".join(f'<div class="refused">{escape(why.removeprefix(prefix))}</div>' for why in own)
        html(f'<div class="change tone-text-{tone}"><b>{sign}</b> {escape(change.description)}{under}</div>')
    return listed
