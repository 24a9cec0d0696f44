"""The dialog that replays a queue for one group: it says what will be delivered again before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import button
from headwater.console.kit.layout import block, note, subtitle
from headwater.console.kit.live import notify, perform

#: Where a replay may begin, and what that means.
STARTS = {"earliest": "Oldest message", "time": "A time", "latest": "Next new message"}
HINTS = {
    "earliest": "All messages that are kept are delivered again, also acknowledged ones.",
    "time": "UTC, such as 2026-11-15 10:00, or how long ago, such as 1h. Messages that were put since are delivered again.",
    "latest": "What waits now is passed over, and never delivered to this group; only new messages are.",
}


class ReplayDialog:
    """The dialog of one group. `after` is called when it was replayed."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, visit: Visit, queue: str, group: str, after: Callable[[], Any]) -> None:
        self._service, self._queue, self._group, self._after = visit.services.queues, queue, group, after
        with ui.dialog().props('aria-label="Replay"') as self._dialog, block("card stack"):
            subtitle(f"Replay {queue} for group {group}")
            with block("row-flex"):
                self._start = ui.toggle(dict(STARTS), value="earliest", on_change=self._choose)
                self._start.classes("seg").props('flat no-caps aria-label="From where"')
                self._time = ui.input(value="1h").classes("field grow").props('outlined dense aria-label="Time"')
            self._hint = ui.label("").classes("quiet")
            note(
                "What workers hold now is lost to them: their acknowledgements fail. Other groups are not affected.",
                "warn",
            )
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                button("Replay", self._replay, kind="danger")

    def open(self) -> None:
        self._choose()
        self._dialog.open()

    def _choose(self) -> None:
        self._hint.set_text(HINTS[str(self._start.value)])
        self._time.set_visibility(self._start.value == "time")

    async def _replay(self) -> None:
        start = str(self._start.value)
        place = f"@{(self._time.value or '').strip().removeprefix('@')}" if start == "time" else start
        if await perform(lambda: self._service.replay(self._queue, place, group=self._group)):
            self._dialog.close()
            notify(f"Group {self._group} of {self._queue} is replayed.")
            await self._after()
