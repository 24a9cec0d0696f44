"""A box in which a schema is written, tried against the versions that are there, and then registered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, button, card, pill, text_box
from headwater.console.kit.live import attempt, read, tell
from headwater.console.visit import Visit
from headwater.services.schemas import Draft, SchemaInfo, Verdict

FORCE_HELP = "Columns may go: rows keep what they hold, but readers no longer see it"
SIGNS = {"added": ("+", "good"), "removed": ("−", "bad")}


class DraftBox:
    """The draft of the next version. `after` gets the number that it was registered under."""

    def __init__(self, visit: Visit, about: SchemaInfo, after: Callable[[int], Awaitable[Any]]) -> None:
        self._visit, self._about, self._after = visit, about, after
        self._may_register = visit.caller.may(about.action, about.topic)
        self._begun = ""
        with card("The next version", why="schema_draft"), block("grid"):
            with block("stack"):
                label = "Avro schema" if about.kind == "subject" else "Columns, as `name type [not null]`, or JSON"
                self._text = text_box(label, lines=10, code=True)
                self._text.props(
                    'debounce=300 autogrow spellcheck=false input-style="min-height: 176px"'
                ).on_value_change(self._check)
                self._force = ui.checkbox(FORCE_HELP, on_change=self._check)
                self._force.set_visibility(about.kind == "topic")
            with block("stack"):
                self._verdict = block("stack tight").props('role="status" aria-label="Verdict"')
                with block("row-flex"):
                    self._do = button("Register", self._register, kind="primary", icon="check")

    def begin(self, text: str) -> None:
        """Start from the newest version, unless the user has already written something."""
        if (self._text.value or "") == self._begun:
            self._begun = text
            self._text.set_value(text)

    @property
    def _given(self) -> Draft:
        return Draft(schema=self._text.value or "", force=bool(self._force.value))

    def _checked(self, draft: Draft) -> Verdict:
        return self._visit.services.schemas.check(self._about.name, draft, kind=self._about.kind)

    async def _check(self) -> None:
        draft = self._given
        found = await attempt(lambda: self._checked(draft))
        if found is not None and draft == self._given:
            self._show(found)

    def _show(self, found: Verdict) -> None:
        same = found.fits and not found.changes
        self._do.set_enabled(found.fits and not same and self._may_register)
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
            if not self._may_register:
                needed = f"To register it, one needs {self._about.action} rights on {self._about.topic}."
                ui.label(needed).classes("quiet")

    async def _register(self) -> None:
        draft = self._given
        found = await read(lambda: self._checked(draft))
        if not found.fits:
            self._show(found)
            return
        with Question(f"Register a new version of {self._about.name}?", yes="Register it") as question:
            for change in found.changes:
                ui.label(change.description)
            ui.label("Versions stay: rows that are there keep the one they were written under.").classes("quiet")
        if await question.answered():
            version = await attempt(lambda: self._register_now(draft))
            if version is not None:
                tell(f"{self._about.name} has version {version} now.")
                self._begun = self._given.schema
                await self._after(version)

    def _register_now(self, draft: Draft) -> int:
        return self._visit.services.schemas.register(self._about.name, draft, kind=self._about.kind).version


def _list_changes(found: Verdict) -> set[str]:
    """List each change, and under it why it is refused; return the refusals that are listed."""
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
