"""Making a topic: a form, checked by the log itself, with the command that would do the same."""

from __future__ import annotations

import shlex
from html import escape

from nicegui import ui

from headwater.console.kit.layout import block, button, text_box
from headwater.console.kit.live import read
from headwater.console.topics.frame import topic_path
from headwater.console.visit import Visit
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.schema import parse_schema
from headwater.services.topics import TopicSettings


class CreateTopicDialog:
    """The dialog. It stays open, and says what is wrong, until the topic is made or the dialog is cancelled."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with ui.dialog().props('aria-label="New topic"') as self._dialog, block("card stack"):
            ui.html("<h2>New topic</h2>", sanitize=False)
            with block("grid tiles"):
                self._name = self._box("Name", example="orders")
                self._partitions = self._box("Partitions", value="1")
            self._schema = text_box(
                "Columns", placeholder="customer string, amount double, at timestamp", lines=3, code=True
            )
            self._schema.on_value_change(self._show)
            with block("grid tiles"):
                self._key = self._box("Key columns", example="customer: its rows stay in order")
                self._time = self._box("Event time column", example="at")
                self._keep = self._box("Keep for", example="7 days; empty is for ever")
            self._compact = ui.checkbox("Compact: of each key, keep the last row", on_change=self._show)
            self._command = ui.html("", sanitize=False)
            self._told = block("").props('role="alert"')
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                button("Create", self._create, kind="primary")

    def _box(self, label: str, *, value: str = "", example: str = "") -> ui.input | ui.textarea:
        made = text_box(label, value=value, placeholder=example)
        made.on_value_change(self._show)
        return made

    def open(self) -> None:
        self._visit.caller.require_somewhere("admin")
        self._show()
        self._dialog.open()

    def _show(self) -> None:
        """The command that does the same, as it is written in a terminal; what was wrong before may be corrected by now."""
        self._told.clear()
        words = ["headwater", "topic", "create", self._text(self._name) or "NAME"]
        given = {"--schema": self._text(self._schema), "--key": self._text(self._key), "--time": self._text(self._time)}
        given["--partitions"] = "" if self._text(self._partitions) == "1" else self._text(self._partitions)
        given["--retention"] = self._text(self._keep)
        for option, value in given.items():
            words += [option, value] if value else []
        words += ["--compact"] if self._compact.value else []
        self._command.set_content(
            f'<pre class="code" aria-label="The same in a terminal">{escape(shlex.join(words))}</pre>'
        )

    def _text(self, box: ui.input | ui.textarea) -> str:
        return str(box.value or "").strip()

    async def _create(self) -> None:
        self._told.clear()
        name = self._text(self._name)
        try:
            await read(lambda: self._made(name))
        except HeadwaterError as error:
            with self._told, block("note bad"):
                ui.label(str(error)).classes("grow wrap-anywhere")
            return
        ui.navigate.to(topic_path(name))

    def _made(self, name: str) -> bool:
        partitions = self._text(self._partitions)
        if not partitions.isascii() or not partitions.isdecimal():
            raise ArgumentInvalid(name="partitions", value=partitions, expected="a whole number, from 1 on")
        settings = TopicSettings(
            partitions=int(partitions),
            key=[part.strip() for part in self._text(self._key).split(",") if part.strip()] or None,
            time=self._text(self._time) or None,
            retention=self._text(self._keep) or None,
            compact=bool(self._compact.value),
        )
        columns = self._text(self._schema)
        self._visit.services.topics.create(name, parse_schema(columns) if columns else None, settings)
        return True
