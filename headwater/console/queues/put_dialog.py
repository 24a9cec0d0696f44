"""The dialog that puts a message written by hand, for example to test a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import button, text_box
from headwater.console.kit.layout import block, subtitle
from headwater.console.kit.live import attempt, notify
from headwater.console.kit.words import whole_number
from headwater.errors import ArgumentInvalid
from headwater.services.queues import NewMessage, QueueStatus

HINTS = {
    "json": "Any JSON value.",
    "schema": "A JSON object with the columns of the queue's schema.",
    "bytes": 'A text in quotes, or an object with bytes in base64: {"base64": "…"}.',
}


class PutDialog:
    """The dialog of one queue. `after` is called when a message was put."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, visit: Visit, status: QueueStatus, after: Callable[[], Any]) -> None:
        self._service, self._queue, self._after = visit.services.queues, status.name, after
        with ui.dialog().props('aria-label="Put a message"') as self._dialog, block("card stack"):
            subtitle(f"Put a message into {status.name}")
            ui.label("Workers process it as any other message: every group gets it.").classes("quiet")
            self._body = text_box("Body, as JSON", value="{}", lines=8, code=True)
            ui.label(HINTS[status.settings.body]).classes("quiet small")
            with block("row-flex low"):
                self._key = text_box("Key", placeholder="none")
                self._delay = text_box("Delay", placeholder="at once, or 5 min")
                self._priority = text_box("Priority", value="0")
                self._priority.set_visibility(status.settings.priorities > 1)
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                button("Put", self._put, kind="primary")

    def open(self) -> None:
        self._dialog.open()

    async def _put(self) -> None:
        id = await attempt(lambda: self._service.put(self._queue, self._described()))
        if id is not None:
            self._dialog.close()
            notify(
                f"Message {id} is in {self._queue}." if id else f"{self._queue} is full, and has dropped the message."
            )
            await self._after()

    def _described(self) -> NewMessage:
        text = self._body.value or ""
        try:
            body = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ArgumentInvalid(name="body", value=text[:50], expected=f"JSON; {error}") from None
        return NewMessage(
            body=body,
            key=(self._key.value or "").strip() or None,
            delay=(self._delay.value or "").strip() or None,
            priority=whole_number(self._priority.value or "0", name="priority", expected="a number", least=0),
        )
