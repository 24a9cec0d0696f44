"""Live tail: rows as they are appended. Rows that are skipped are counted; pausing and stopping keep what is shown."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import button, select
from headwater.console.kit.layout import block, card, html
from headwater.console.kit.live import read
from headwater.console.kit.words import count, counted
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head
from headwater.console.topics.row_list import RowBrowser
from headwater.errors import HeadwaterError
from headwater.log.remote.wire import offsets_to_text
from headwater.log.topic import Topic
from headwater.services.rows import RowTail

#: Rows shown when the tail begins, so that the page of an idle topic is not empty.
CONTEXT_ROWS = 50
#: Rows that the page keeps; older ones are removed from it.
KEPT_ROWS_MAX = 2_000
#: A page that is further behind continues with the last ones; fewer than are kept, so that the gap before them is shown.
BEHIND_ROWS_MAX = 1_500
#: Rows sent at once, and how often: 2,000 a second at most, and only when the browser has received the ones before.
ROWS_AT_ONCE = 500
STEP_SECONDS = 0.25
STARTS = {"context": f"The last {CONTEXT_ROWS} rows", "now": "Now"}

State = Literal["live", "paused", "stopped"]


@screen("/topics/{name}/tail", under="/topics")
async def tail(visit: Visit, name: str) -> None:
    topic, buttons = await topic_head(visit, name, "Live tail")
    ui.timer(STEP_SECONDS, TailPage(visit, topic, buttons).step)


@dataclass
class TailCounts:
    """Numbers since the tail was started."""

    shown: int = 0
    skipped: int = 0
    kept: int = 0
    waiting: int = 0

    def text(self, state: State) -> str:
        """The numbers in one line.

        >>> TailCounts(shown=2_500, skipped=9, kept=2_000).text("live")
        '2,500 rows shown, 500 of them have left this page'
        >>> TailCounts(shown=1, kept=1, waiting=7).text("paused")
        '1 row shown. 7 have come meanwhile'
        """
        text = f"{counted(self.shown, 'row')} shown"
        if self.shown > self.kept:
            text += f", {count(self.shown - self.kept)} of them have left this page"
        if state == "paused":
            text += f". {count(self.waiting)} have come meanwhile"
        return text


class TailPage:
    """The page. The tail starts when it is opened."""

    def __init__(self, visit: Visit, topic: Topic, buttons: ui.element) -> None:
        self._rows, self._topic = visit.services.rows, topic
        self._state: State = "live"
        self._counts = TailCounts()
        #: The last step of the tail; None before its first.
        self._last: RowTail | None = None
        self._gap = 0
        #: Skipped rows are not read, so that in a compacted topic only their offsets can be counted.
        self._unit = "offsets" if topic.compact else "rows"
        with buttons:
            self._start = button("Start", self.start, icon="play_arrow", kind="primary")
            self._pause = button("Pause", self.pause, icon="pause", kind="primary")
            self._resume = button("Resume", self.resume, icon="play_arrow", kind="primary")
            self._stop = button("Stop", self.stop, icon="stop")
        with card(flush=True):
            self._build_toolbar()
            label = f"Rows of {topic.name}, as they come"
            self._list = RowBrowser(visit, topic, label=label, none="Waiting for rows.").list
        self._show()

    def _build_toolbar(self) -> None:
        with block("toolbar"):
            self._from = select(STARTS, value="context", label="Begin with")
            parts = {-1: "All partitions", **{n: f"Partition {n}" for n in range(self._topic.partitions)}}
            self._partition = select(parts, value=-1, label="Partition")
            self._partition.set_visibility(self._topic.partitions > 1)
            button("Clear", self.clear, icon="backspace", kind="ghost")
            block("grow")
            self._mark = html("")
            self._status = ui.label("").classes("quiet small num").props('role="status"')
            self._skipped = html("")

    # -- actions ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.clear()
        self._last, self._state = None, "live"
        self._show()

    def pause(self) -> None:
        self._state = "paused"
        self._show()

    def resume(self) -> None:
        self._state = "live"
        self._show()

    def stop(self) -> None:
        self._state, self._last = "stopped", None
        self._show()

    def clear(self) -> None:
        self._counts, self._gap = TailCounts(), 0
        self._list.empty()
        self._show()

    # -- steps --------------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Read the rows that have come, and show them."""
        try:
            if self._state == "live":
                await self._push_new()
            elif self._state == "paused" and self._last is not None:
                self._counts.waiting = (await read(lambda: self._read(limit=0))).waiting
        except HeadwaterError as error:  # such as: the topic was deleted; its rows stay in the page
            self.stop()
            self._status.set_text(str(error))
            return
        if self._state != "stopped":
            self._show()

    async def _push_new(self) -> None:
        self._last = tail = await read(lambda: self._read(limit=ROWS_AT_ONCE))
        self._counts.skipped += tail.skipped
        self._gap += tail.skipped
        if not tail.rows:
            return
        gap = f"{count(self._gap)} {self._unit} skipped: more came than can be shown" if self._gap else ""
        self._gap = 0
        self._counts.shown += len(tail.rows)
        # Back-pressure: this waits until the browser has received the rows.
        with contextlib.suppress(TimeoutError):
            kept = await self._list.push(tail.rows, most=KEPT_ROWS_MAX, gap=gap)
            self._counts.kept = self._counts.kept if kept is None else kept

    def _read(self, *, limit: int) -> RowTail:
        last = self._last
        return self._rows.follow(
            self._topic.name,
            after=None if last is None else offsets_to_text(last.next),
            topic_id="" if last is None else last.topic_id,
            partition=None if self._partition.value == -1 else int(self._partition.value),
            limit=limit,
            behind_max=BEHIND_ROWS_MAX,
            context=CONTEXT_ROWS if self._from.value == "context" else 0,
        )

    def _show(self) -> None:
        state = self._state
        self._start.set_visibility(state == "stopped")
        self._pause.set_visibility(state == "live")
        self._resume.set_visibility(state == "paused")
        self._stop.set_visibility(state != "stopped")
        self._from.set_enabled(state == "stopped")
        self._partition.set_enabled(state == "stopped")
        tone = {"live": "good", "paused": "warn", "stopped": ""}[state]
        self._mark.set_content(f'<span class="pill {tone}">{state}</span>')
        self._status.set_text(self._counts.text(state))
        skipped = self._counts.skipped
        text = f"{count(skipped)} {'offsets ' if self._unit == 'offsets' else ''}skipped"
        self._skipped.set_content(f'<span class="pill warn">{text}</span>' if skipped else "")
