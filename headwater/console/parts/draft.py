"""A box in which a schema is written, tried against the versions that are there, and then registered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.console.context import context
from headwater.console.parts.layout import block, button, card, pill, text_box
from headwater.console.parts.live import attempt, read, tell
from headwater.console.parts.question import Question
from headwater.console.schemas import FORCE_HELP, Schemas, Verdict
from headwater.console.visit import Visit

SIGNS = {"added": ("+", "good"), "removed": ("−", "bad")}


class Draft:
    """The draft of the next version. `after` gets the number that it was registered under."""

    def __init__(self, visit: Visit, schemas: Schemas, after: Callable[[int], Awaitable[Any]]) -> None:
        self._visit, self._schemas, self._after = visit, schemas, after
        self._begun = ""
        with card("The next version", why="schema_draft"), block("grid"):
            with block("stack"):
                label = "Avro schema" if schemas.kind == "subject" else "Columns, as `name type [not null]`, or JSON"
                self._text = text_box(label, lines=10, code=True)
                self._text.props(
                    'debounce=300 autogrow spellcheck=false input-style="min-height: 176px"'
                ).on_value_change(self._check)
                self._force = ui.checkbox(FORCE_HELP, on_change=self._check)
                self._force.set_visibility(schemas.kind == "topic")
            with block("stack"):
                self._verdict = block("stack tight").props('role="status" aria-label="Verdict"')
                with block("row-flex"):
                    self._do = button("Register", self._register, kind="primary", icon="check")

    def begin(self, text: str) -> None:
        """Start from the newest version, unless somebody has already written something."""
        if (self._text.value or "") == self._begun:
            self._begun = text
            self._text.set_value(text)

    @property
    def _given(self) -> str:
        return self._text.value or ""

    async def _check(self) -> None:
        draft, force = self._given, bool(self._force.value)
        found = await attempt(lambda: self._schemas.check(draft, force=force))
        if found is not None and draft == self._given:
            self._show(found)

    def _show(self, found: Verdict) -> None:
        same = found.fits and not found.changes
        self._do.set_enabled(
            found.fits and not same and self._visit.caller.may(self._schemas.action, self._schemas.topic)
        )
        self._verdict.clear()
        with self._verdict:
            if same:
                ui.label("This is the newest version. Change it, and see whether it may follow.").classes("quiet")
                return
            pill("It may follow" if found.fits else "It may not follow", "good" if found.fits else "bad")
            told = _list_changes(found)
            for why in found.refused:
                if why not in told:
                    with block("note bad"):
                        ui.label(why).classes("grow wrap-anywhere")
            if not self._visit.caller.may(self._schemas.action, self._schemas.topic):
                ui.label(f"To register it, one needs {self._schemas.action} rights on {self._schemas.topic}.").classes(
                    "quiet"
                )

    async def _register(self) -> None:
        draft, force = self._given, bool(self._force.value)
        found = await read(lambda: self._schemas.check(draft, force=force))
        if not found.fits:
            self._show(found)
            return
        with Question(f"Register a new version of {self._schemas.name}?", yes="Register it") as question:
            for change in found.changes:
                ui.label(change.description)
            ui.label("Versions stay: rows that are there keep the one they were written under.").classes("quiet")
        if await question.answered():
            version = await attempt(lambda: self._register_now(draft, force))
            if version is not None:
                tell(f"{self._schemas.name} has version {version} now.")
                self._begun = self._given
                await self._after(version)

    def _register_now(self, draft: str, force: bool) -> int:
        self._visit.caller.require(self._schemas.action, self._schemas.topic)
        version = self._schemas.register(draft, force=force)
        context().note(
            self._visit.caller, "schema.register", f"{self._schemas.kind} {self._schemas.name} version {version}"
        )
        return version


def _list_changes(found: Verdict) -> set[str]:
    """Each change, and under it why it is refused; gives the refusals that were told so."""
    told: set[str] = set()
    for change in found.changes:
        sign, tone = SIGNS.get(change.kind, ("~", "warn"))
        mine = [why for why in found.refused if why.startswith(f"{change.column}: ") and why not in told]
        told.update(mine)
        under = "".join(f'<div class="refused">{escape(why.removeprefix(f"{change.column}: "))}</div>' for why in mine)
        ui.html(
            f'<div class="change tone-text-{tone}"><b>{sign}</b> {escape(change.description)}{under}</div>',
            sanitize=False,
        )
    return told
