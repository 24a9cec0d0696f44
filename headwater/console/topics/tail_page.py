"""Live tail: rows as they are appended. What is left out is counted and said; pausing and stopping keep what is there."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

from nicegui import ui

from headwater.console.kit.layout import block, button, card, select
from headwater.console.kit.live import read
from headwater.console.kit.words import count
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head
from headwater.console.topics.row_list import RowList
from headwater.console.topics.row_panel import RowPanel
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.port import Topic
from headwater.log.remote.wire import offsets_to_text
from headwater.services.rows import RowTail

#: Rows shown at once when the tail begins, so that a quiet topic is not an empty page.
CONTEXT_ROWS = 50
#: Rows that the page keeps; older ones leave it.
KEPT_ROWS_MAX = 2_000
#: A page that is further behind goes on with the last ones. Fewer than are kept, so that the gap before them stays in sight.
BEHIND_ROWS_MAX = 1_500
#: Rows sent at once, and how often: 2,000 a second at most, and only when the browser has taken the ones before.
ROWS_AT_ONCE = 500
LOOK_SECONDS = 0.25
BEGINNINGS = {"context": f"The last {CONTEXT_ROWS} rows", "now": "Now"}

State = Literal["live", "paused", "stopped"]


@screen("/topics/{name}/tail", under="/topics")
async def tail(visit: Visit, name: str) -> None:
    topic, buttons = await topic_head(visit, name, "Live tail")
    page = TailPage(visit, topic, buttons)
    ui.timer(LOOK_SECONDS, page.tick)


@dataclass
class TailCounts:
    """What has happened since the tail was started."""

    shown: int = 0
    skipped: int = 0
    kept: int = 0
    waiting: int = 0

    def told(self, state: State) -> str:
        """One line.

        >>> TailCounts(shown=2_500, skipped=9, kept=2_000).told("live")
        '2,500 rows shown, 500 of them have left this page'
        >>> TailCounts(shown=1, kept=1, waiting=7).told("paused")
        '1 row shown. 7 have come meanwhile'
        """
        text = f"{count(self.shown)} row{'s' if self.shown != 1 else ''} shown"
        if self.shown > self.kept:
            text += f", {count(self.shown - self.kept)} of them have left this page"
        if state == "paused":
            text += f". {count(self.waiting)} have come meanwhile"
        return text


class TailPage:
    """The page. It starts by itself."""

    def __init__(self, visit: Visit, topic: Topic, buttons: ui.element) -> None:
        self._rows, self._topic = visit.services.rows, topic
        self._state: State = "live"
        self._counts = TailCounts()
        #: The last step of the tail; None before its first.
        self._last: RowTail | None = None
        self._gap = 0
        #: What is passed over is not read: where compaction takes rows away, it is not known how many they were.
        self._counted = "offsets" if topic.compact else "rows"
        with buttons:
            self._start = button("Start", self.start, icon="play_arrow", kind="primary")
            self._pause = button("Pause", self.pause, icon="pause", kind="primary")
            self._resume = button("Resume", self.resume, icon="play_arrow", kind="primary")
            self._stop = button("Stop", self.stop, icon="stop")
        with card(flush=True):
            self._controls()
            with block("with-beside"):
                self._box = block("grow")
                self._beside = RowPanel(visit, topic)
            with self._box:
                self._list = RowList(
                    topic,
                    label=f"Rows of {topic.name}, as they come",
                    none="Waiting for rows.",
                    on_pick=self._beside.show,
                    on_close=self._beside.close,
                )
            self._beside.serves(self._list)
        self._paint()

    def _controls(self) -> None:
        with block("toolbar"):
            self._begin = select(BEGINNINGS, value="context", label="Begin with")
            parts = {-1: "All partitions", **{n: f"Partition {n}" for n in range(self._topic.partitions)}}
            self._partition = select(parts, value=-1, label="Partition")
            self._partition.set_visibility(self._topic.partitions > 1)
            button("Clear", self.clear, icon="backspace", kind="ghost")
            block("grow")
            self._mark = ui.html("", sanitize=False)
            self._told = ui.label("").classes("quiet small num").props('role="status"')
            self._skipped = ui.html("", sanitize=False)

    # -- what the visitor does ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self.clear()
        self._last, self._state = None, "live"
        self._paint()

    def pause(self) -> None:
        self._state = "paused"
        self._paint()

    def resume(self) -> None:
        self._state = "live"
        self._paint()

    def stop(self) -> None:
        self._state, self._last = "stopped", None
        self._paint()

    def clear(self) -> None:
        self._counts, self._gap = TailCounts(), 0
        self._list.empty()
        self._paint()

    # -- what happens -------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Look once."""
        try:
            if self._state == "live":
                await self._go_on()
            elif self._state == "paused" and self._last is not None:
                self._counts.waiting = (await read(lambda: self._step(limit=0))).waiting
        except HeadwaterError as error:  # the topic was deleted, for example; its rows stay in the page
            self.stop()
            self._told.set_text(str(error))
            return
        if self._state != "stopped":
            self._paint()

    async def _go_on(self) -> None:
        self._last = step = await read(lambda: self._step(limit=ROWS_AT_ONCE))
        self._counts.skipped += step.skipped
        self._gap += step.skipped
        if step.rows:
            await self._push(step)

    async def _push(self, step: RowTail) -> None:
        """Waits until the browser has taken the rows: one that is slow is sent less, not more and more."""
        gap = f"{count(self._gap)} {self._counted} skipped: more came than can be shown" if self._gap else ""
        self._gap = 0
        self._counts.shown += len(step.rows)
        with contextlib.suppress(TimeoutError):
            kept = await self._list.push(step.rows, most=KEPT_ROWS_MAX, gap=gap)
            self._counts.kept = self._counts.kept if kept is None else kept

    def _step(self, *, limit: int) -> RowTail:
        last = self._last
        return self._rows.follow(
            self._topic.name,
            after=None if last is None else offsets_to_text(last.next),
            topic_id="" if last is None else last.topic_id,
            partition=None if self._partition.value == -1 else int(self._partition.value),
            limit=limit,
            behind_max=BEHIND_ROWS_MAX,
            context=CONTEXT_ROWS if self._begin.value == "context" else 0,
        )

    def _paint(self) -> None:
        state = self._state
        self._start.set_visibility(state == "stopped")
        self._pause.set_visibility(state == "live")
        self._resume.set_visibility(state == "paused")
        self._stop.set_visibility(state != "stopped")
        self._begin.set_enabled(state == "stopped")
        self._partition.set_enabled(state == "stopped")
        tone = {"live": "good", "paused": "warn", "stopped": ""}[state]
        self._mark.set_content(f'<span class="pill {tone}">{state}</span>')
        self._told.set_text(self._counts.told(state))
        skipped = self._counts.skipped
        told = f"{count(skipped)} {'offsets ' if self._counted == 'offsets' else ''}skipped"
        self._skipped.set_content(f'<span class="pill warn">{told}</span>' if skipped else "")
