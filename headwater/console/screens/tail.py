"""Live tail: rows as they are appended. What is left out is counted and said; pausing and stopping keep what is there."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

from nicegui import ui

from headwater.console.context import context
from headwater.console.parts.layout import block, button, card, select
from headwater.console.parts.live import read
from headwater.console.parts.rows import RowList
from headwater.console.parts.topic import Beside, topic_head
from headwater.console.parts.words import count
from headwater.console.screen import screen
from headwater.console.tailing import CONTEXT_ROWS, Piece, Tailing
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.port import Topic

#: Rows that the page keeps; older ones leave it.
KEPT_ROWS_MAX = 2_000
#: Whoever is further behind goes on with the last ones. Fewer than are kept, so that the gap before them stays in sight.
BEHIND_ROWS_MAX = 1_500
#: Rows sent at once, and how often: 2,000 a second at most, and only when the browser has taken the ones before.
ROWS_AT_ONCE = 500
LOOK_SECONDS = 0.25
BEGINNINGS = {"context": f"The last {CONTEXT_ROWS} rows", "now": "Now"}

State = Literal["live", "paused", "stopped"]


@screen("/topics/{name}/tail", under="/topics")
async def tail(visit: Visit, name: str) -> None:
    topic, buttons = await topic_head(visit, name, "Live tail")
    page = Tail(topic, buttons)
    ui.timer(LOOK_SECONDS, page.tick)


@dataclass
class Counts:
    """What has happened since the tail was started."""

    shown: int = 0
    skipped: int = 0
    kept: int = 0
    waiting: int = 0

    def told(self, state: State) -> str:
        """One line.

        >>> Counts(shown=2_500, skipped=9, kept=2_000).told("live")
        '2,500 rows shown, 500 of them have left this page'
        >>> Counts(shown=1, kept=1, waiting=7).told("paused")
        '1 row shown. 7 have come meanwhile'
        """
        text = f"{count(self.shown)} row{'s' if self.shown != 1 else ''} shown"
        if self.shown > self.kept:
            text += f", {count(self.shown - self.kept)} of them have left this page"
        if state == "paused":
            text += f". {count(self.waiting)} have come meanwhile"
        return text


class Tail:
    """The page. It starts by itself."""

    def __init__(self, topic: Topic, buttons: ui.element) -> None:
        self._topic = topic
        self._state: State = "live"
        self._counts = Counts()
        self._tailing: Tailing | None = None
        self._gap = 0
        #: What is passed over is not read: where compaction takes rows away, nobody knows how many it were.
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
                self._beside = Beside(topic)
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

    # -- what somebody does -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.clear()
        self._tailing, self._state = None, "live"
        self._paint()

    def pause(self) -> None:
        self._state = "paused"
        self._paint()

    def resume(self) -> None:
        self._state = "live"
        self._paint()

    def stop(self) -> None:
        self._state, self._tailing = "stopped", None
        self._paint()

    def clear(self) -> None:
        self._counts, self._gap = Counts(), 0
        self._list.empty()
        self._paint()

    # -- what happens -------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Look once."""
        try:
            if self._state == "live":
                await self._go_on()
            elif self._state == "paused" and (tailing := self._tailing) is not None:
                self._counts.waiting = await read(tailing.waiting)
        except HeadwaterError as error:  # the topic was deleted, for example; its rows stay in the page
            self.stop()
            self._told.set_text(str(error))
            return
        if self._state != "stopped":
            self._paint()

    async def _go_on(self) -> None:
        if self._tailing is None:
            self._tailing = await read(self._made)
        tailing = self._tailing
        piece = await read(lambda: tailing.read(rows_max=ROWS_AT_ONCE))
        self._counts.skipped += piece.skipped
        self._gap += piece.skipped
        if piece.records:
            await self._push(piece)

    async def _push(self, piece: Piece) -> None:
        """Waits until the browser has taken the rows: one that is slow is sent less, not more and more."""
        gap = f"{count(self._gap)} {self._counted} skipped: more came than can be shown" if self._gap else ""
        self._gap = 0
        self._counts.shown += len(piece.records)
        with contextlib.suppress(TimeoutError):
            kept = await self._list.push(piece.records, most=KEPT_ROWS_MAX, gap=gap)
            self._counts.kept = self._counts.kept if kept is None else kept

    def _made(self) -> Tailing:
        partition = None if self._partition.value == -1 else int(self._partition.value)
        rows = CONTEXT_ROWS if self._begin.value == "context" else 0
        return Tailing(
            context().log, self._topic.name, partition=partition, behind_max=BEHIND_ROWS_MAX, context_rows=rows
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
