"""The dead letters of one topic: by reason, over time, each of them whole; redriven, parked, taken up again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nicegui import ui

from headwater.console.dead_letters.panel import STATE_WORDS, TONES, DeadLetterPanel
from headwater.console.dead_letters.redrive_dialog import RedriveDialog, RedriveProgress
from headwater.console.kit.chart import BarChart
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, button, card, heading, search_box, select
from headwater.console.kit.live import attempt, every, read, tell
from headwater.console.kit.segments import Segments
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.kit.words import ago, count, counted, moment
from headwater.console.pages import screen
from headwater.console.topics.row_list import row_path
from headwater.console.visit import Visit
from headwater.log.dead_letters import STATES, SUFFIX, Selection, State, StoredDeadLetter
from headwater.services.dead_letter_index import Reason, Timeline
from headwater.services.dead_letters import DeadLetterPage
from headwater.services.dead_letters import Redrive as RedriveState

ANY_REASON = "every reason"
ANY_STATE = "All"
WORDS = {word.capitalize(): state for state, word in STATE_WORDS.items()}
COLUMNS = (
    Column(name="at", label="Given up", width="110px"),
    Column(name="reason", label="Reason"),
    Column(name="message", label="Message", clip=True),
    Column(name="place", label="Stood at"),
    Column(name="attempt", label="Attempt", align="right"),
    Column(name="state", label="State"),
)
REASON_COLUMNS = (
    Column(name="reason", label="Reason"),
    Column(name="open", label="Open", align="right"),
    Column(name="parked", label="Parked", align="right"),
    Column(name="back", label="Redriven", align="right"),
    Column(name="attempts", label="Attempts", align="right"),
    Column(name="last", label="Last", align="right"),
)


@screen("/dead-letters/{topic}", under="/dead-letters")
async def dead_letters_of(visit: Visit, topic: str, reason: str = "", state: str = "open") -> None:
    first = await read(lambda: visit.services.dead_letters.page(topic, limit=0))
    page = DeadLetterTopicPage(visit, first.topic, reason=reason, state=state)
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the page shows."""

    reasons: list[Reason]
    timeline: Timeline
    page: DeadLetterPage
    redrive: RedriveState | None


class DeadLetterTopicPage:
    """The page of one dead-letter topic."""

    def __init__(self, visit: Visit, topic: str, *, reason: str, state: str) -> None:
        self._visit, self._topic, self._picked = visit, topic, ""
        self._letters: list[StoredDeadLetter] = []
        self._reason_names: list[str] = []
        of = topic.removesuffix(SUFFIX)
        with heading(f"Dead letters of {of}", under="Rows that were given up, the newest first.", why="dead_letters"):
            button("Park", self._park_many, icon="inventory_2")
            button("Redrive", self._redrive_many, icon="redo", kind="primary")
        self._progress = RedriveProgress(visit, topic)
        self._redrive = RedriveDialog(visit, topic, self._again)
        with block("grid tiles"):
            self._tiles = {one: Stat(word, why=f"dead_letter_{one}") for word, one in WORDS.items()}
        with block("grid"):
            with card("Given up over time"):
                self._chart = BarChart(
                    label="Dead letters over time, by reason", dark=visit.dark, height=190, stacked=True
                )
            with card("Reasons", flush=True):
                self._reasons = Table(
                    REASON_COLUMNS, label="Reasons", none="No dead letters.", on_row=self._pick_reason
                )
        with card(flush=True):
            self._filter(reason, state)
            with block("with-beside"):
                with block("grow"):
                    self._table = Table(COLUMNS, label="Dead letters", none="No dead letter fits.", on_row=self._pick)
                    self._table.classes("one-line")
                    self._pages = Pages(self._again, size=25)
                self._beside = DeadLetterPanel(
                    redrive=self._redrive_one, park=self._park_one, close=lambda: self._pick("")
                )

    def _filter(self, reason: str, state: str) -> None:
        first = next((word for word, one in WORDS.items() if one == state), ANY_STATE)
        with block("toolbar"):
            self._state = Segments([*WORDS, ANY_STATE], value=first, label="State", on_change=self._from_start)
            chosen = [ANY_REASON, *([reason] if reason else [])]
            self._reason = select(chosen, value=reason or ANY_REASON, label="Reason", on_change=self._from_start)
            self._text = search_box("Search in messages", self._from_start)
            self._count = ui.label("").classes("quiet small").props('role="status"')

    # -- looking ------------------------------------------------------------------------------------------------------

    def selection(self) -> Selection:
        """The dead letters that the filter selects."""
        reason, text = self._reason.value, (self._text.value or "").strip()
        state: State | None = WORDS.get(self._state.value)
        return Selection(
            reasons=() if reason in (None, ANY_REASON) else (str(reason),),
            states=() if state is None else (state,),
            text=text or None,
        )

    def look(self) -> Content:
        service, selection, size = self._visit.services.dead_letters, self.selection(), self._pages.size
        page = service.page(self._topic, selection, skip=self._pages.first, limit=size)
        if not page.dead_letters and self._pages.first:
            page = service.page(self._topic, selection, limit=size)
        return Content(
            reasons=service.reasons(self._topic),
            timeline=service.timeline(self._topic),
            page=page,
            redrive=service.redrive_progress(self._topic),
        )

    def show(self, found: Content) -> None:
        self._letters = found.page.dead_letters
        self._progress.show(found.redrive)
        for state, tile in self._tiles.items():
            number = sum(one.states[state] for one in found.reasons)
            tile.set(count(number), foot=_FEET[state], tone="warn" if state == "open" and number else "")
        self._show_reasons(found.reasons)
        self._show_timeline(found.timeline)
        total = found.page.total
        self._pages.part(range(total))
        self._count.set_text(counted(total, "dead letter"))
        self._show_letters()

    def _show_letters(self) -> None:
        self._table.set_rows([_row(one, picked=_key(one) == self._picked) for one in self._letters])

    def _show_reasons(self, reasons: list[Reason]) -> None:
        names = [one.name for one in reasons]
        if names != self._reason_names:
            self._reason_names = names
            chosen = self._reason.value
            known = [ANY_REASON, *names, *([chosen] if chosen not in (*names, ANY_REASON) else [])]
            self._reason.set_options(known, value=chosen)
        self._reasons.set_rows([_reason(one, picked=one.name == self._reason.value) for one in reasons])

    def _show_timeline(self, found: Timeline) -> None:
        self._chart.set(_moments(found), found.counts)

    async def _again(self, _: object = None) -> None:
        found = await attempt(self.look)
        if found is not None:
            self.show(found)

    async def _from_start(self, _: object = None) -> None:
        self._pages.first = 0
        await self._again()

    def _pick_reason(self, name: str) -> None:
        self._reason.set_value(ANY_REASON if self._reason.value == name else name)

    def _pick(self, key: str) -> None:
        self._picked = "" if key == self._picked else key
        found = next((one for one in self._letters if _key(one) == self._picked), None)
        self._beside.show(found)
        self._show_letters()

    # -- what may be done ---------------------------------------------------------------------------------------------

    def _told(self) -> str:
        chosen = self.selection()
        parts = [f"given up for {chosen.reasons[0]}"] if chosen.reasons else []
        parts += [f"whose message has “{chosen.text}”"] if chosen.text else []
        return "Open dead letters " + " and ".join(parts) if parts else "All open dead letters of this topic"

    async def _redrive_many(self) -> None:
        await self._redrive.open(replace(self.selection(), states=()), f"{self._told()}.")

    async def _redrive_one(self, found: StoredDeadLetter) -> None:
        await self._redrive.open(_only(found), f"The dead letter at offset {found.place.offset}, {found.letter.error}.")

    async def _park_many(self) -> None:
        undo = self._state.value == "Parked"
        await self._park(replace(self.selection(), states=()), undo=undo)

    async def _park_one(self, found: StoredDeadLetter) -> None:
        await self._park(_only(found), undo=found.state == "parked")
        self._pick("")

    async def _park(self, selection: Selection, *, undo: bool) -> None:
        """Park dead letters, or open parked ones again, after a dry run has counted them."""
        service = self._visit.services.dead_letters
        tried = await attempt(lambda: service.park(self._topic, selection, undo=undo, dry_run=True))
        if tried is None:
            return
        verb, number = ("Take up" if undo else "Park"), tried.changed
        amount = counted(number, "dead letter")
        with Question(f"{verb} {amount}?", yes=f"{verb} {amount}") as question:
            if not number:
                question.refuse(f"The filter selects no {'parked' if undo else 'open'} dead letter.")
            elif not self._visit.caller.may("admin", self._topic):
                question.refuse("This needs admin rights on the topic.")
            for reason, some in (tried.unparked if undo else tried.parked).most_common():
                ui.label(f"{reason}: {count(some)}")
            ui.label(
                "They become open again." if undo else "A redrive leaves parked dead letters alone. They stay readable."
            )
        if not await question.answered():
            return
        if await attempt(lambda: service.park(self._topic, selection, undo=undo)) is not None:
            tell(f"{amount} {'taken up again' if undo else 'parked'}.")
            await self._again()


_FEET: dict[State, str] = {
    "open": "wait for a decision",
    "redriven": "their rows went back",
    "parked": "left alone by a redrive",
}
assert set(_FEET) == set(STATES)


def _moments(found: Timeline) -> list[str]:
    """Labels of the intervals: only the part of the time in which they differ."""
    whole = [moment(at) for at in found.starts_us]
    one_day = len({text[:10] for text in whole}) == 1
    return [text[11:19] if found.step_us < 60_000_000 else text[11:16] if one_day else text[5:16] for text in whole]


def _only(found: StoredDeadLetter) -> Selection:
    return Selection(partition=found.place.partition, offsets=(range(found.place.offset, found.place.offset + 1),))


def _key(found: StoredDeadLetter) -> str:
    return f"{found.place.partition}/{found.place.offset}"


def _row(found: StoredDeadLetter, *, picked: bool) -> Row:
    letter = found.letter
    # The last line of a trace says what went wrong; of a message of one line it is the message.
    lines = letter.message.strip().splitlines() or [""]
    # Any: see `Row`.
    cells: list[Any] = [
        ago(letter.at_us),
        letter.error,
        lines[-1][:300],
        link(
            f"{letter.topic} {letter.partition}/{letter.offset}",
            row_path(letter.topic, letter.partition, letter.offset),
        ),
        str(letter.attempt),
        mark(STATE_WORDS[found.state], TONES[found.state]),
    ]
    return Row(cells, key=_key(found), picked=picked)


def _reason(one: Reason, *, picked: bool) -> Row:
    cells = [
        one.name,
        toned(count(one.open), "warn" if one.open else "quiet"),
        count(one.states["parked"]),
        count(one.states["redriven"]),
        f"up to {one.attempts}",
        ago(one.last_us),
    ]
    return Row(cells, key=one.name, picked=picked)
