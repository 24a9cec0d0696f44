"""The dialog that tries a command: what it would do now to an entity, without doing it."""

from __future__ import annotations

from html import escape

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.entities.model import command_data, data_text, json_text, marked
from headwater.console.kit.controls import button, select, text_box
from headwater.console.kit.layout import block, html, subtitle
from headwater.console.kit.live import read
from headwater.console.kit.table import Column, Row, Table
from headwater.console.kit.words import count
from headwater.errors import ArgumentInvalid, HeadwaterError, NotAllowed
from headwater.services.entities import CommandOutcome, EntityKind
from headwater.sourcing import CommandRejected

EVENT_COLUMNS = (
    Column(name="version", label="Version", width="72px"),
    Column(name="event", label="Event"),
    Column(name="data", label="Data", clip=True, mono=True),
)


class TryDialog:
    """The dialog of one entity, where this process has its decider."""

    def __init__(self, visit: Visit, kind: EntityKind, id: str) -> None:
        self._service, self._kind, self._id = visit.services.entities, kind.name, id
        self._commands = kind.commands or {}
        self._fields: dict[str, ui.input | ui.textarea] = {}
        with ui.dialog().props('aria-label="Try a command"') as self._dialog, block("card stack"):
            subtitle(f"Try a command on {id}")
            ui.label("It is decided on the state of now. Nothing is appended.").classes("quiet")
            names = list(self._commands)
            self._name = select(names, value=names[0], label="Command", on_change=self._choose, named=True)
            self._form = block("row-flex low")
            self._answer = block("stack")
            with self._answer:
                self._note = html("")
                self._events = Table(EVENT_COLUMNS, label="Events that it would make", none="It would make no event.")
                self._states = html("")
            with block("row-flex end"):
                button("Close", self._dialog.close, kind="ghost")
                button("Try it", self._try, kind="primary")
        self._choose()

    def open(self) -> None:
        self._answer.set_visibility(False)
        self._dialog.open()

    def _choose(self) -> None:
        """Show the fields of the command."""
        self._answer.set_visibility(False)
        self._form.clear()
        with self._form:
            self._fields = {
                field.name: text_box(field.name, placeholder=f"{field.type}{'' if field.required else ', or empty'}")
                for field in self._commands[str(self._name.value)]
            }
            if not self._fields:
                ui.label("This command has no fields.").classes("quiet small")

    async def _try(self) -> None:
        name = str(self._name.value)
        texts = {field: str(box.value or "") for field, box in self._fields.items()}
        try:
            data = command_data(self._commands[name], texts)
            outcome, before = await read(lambda: self._outcome(name, data))
        except CommandRejected as error:
            self._show(error.reason, "It would be rejected")
        except ArgumentInvalid as error:
            self._show(str(error), "It cannot be decided")
        except HeadwaterError as error:
            self._show(str(error), "The decider failed")
        else:
            self._show_outcome(outcome, before)

    # Any: JSON.
    def _outcome(self, name: str, data: dict[str, object]) -> tuple[CommandOutcome, str | None]:
        """What the command would do, and the state before it if the caller may see it."""
        outcome = self._service.send(self._kind, self._id, name, data, dry_run=True)
        try:
            version = outcome.version - len(outcome.events)
            return outcome, json_text(self._service.state(self._kind, self._id, version=version).state)
        except NotAllowed:
            return outcome, None

    def _show(self, text: str, title: str, tone: str = "warn") -> None:
        self._note.set_content(
            f'<div class="note {tone}" role="status"><div class="grow wrap-anywhere"><b>{escape(title)}.</b> {escape(text)}</div></div>'
        )
        self._events.set_visibility(False)
        self._states.set_content("")
        self._answer.set_visibility(True)

    def _show_outcome(self, outcome: CommandOutcome, before: str | None) -> None:
        number = len(outcome.events)
        text = f"The entity would be at version {count(outcome.version)}." if number else "Nothing would change."
        self._show(text, "It would be done", "good")
        self._events.set_visibility(True)
        self._events.set_rows(
            [Row([count(each.version), each.event, data_text(each.data)], key=each.version) for each in outcome.events]
        )
        if before is None:
            self._states.set_content('<p class="quiet small">The state has personal values, which you may not see.</p>')
        elif number:
            boxes = zip(
                ("State of now", "State that it would give"), marked(before, json_text(outcome.state)), strict=True
            )
            parts = (
                f'<div class="stack tight"><h3>{title}</h3><pre class="code json" tabindex="0" aria-label="{title}">{markup}</pre></div>'
                for title, markup in boxes
            )
            self._states.set_content(f'<div class="states">{"".join(parts)}</div>')
