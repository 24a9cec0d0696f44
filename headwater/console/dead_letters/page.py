"""The dead letters of one topic: by reason, over time, each of them whole; redriven, parked, taken up again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.dead_letters.panel import TONES, DeadLetterPanel
from headwater.console.dead_letters.redrive_dialog import RedriveDialog, RedriveProgress
from headwater.console.kit.chart import BarChart
from headwater.console.kit.controls import Segments, button, search_box, select
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import Stat, block, card, heading
from headwater.console.kit.live import LivePage, attempt, notify, read
from headwater.console.kit.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.kit.words import ago, count, counted, moment
from headwater.console.pages import screen
from headwater.console.topics.frame import row_path
from headwater.log.dead_letters import STATES, SUFFIX, Selection, State, StoredDeadLetter
from headwater.services.dead_letter_index import Reason, Timeline
from headwater.services.dead_letters import DeadLetterPage, Redrive

ANY_REASON = "every reason"
ANY_STATE = "All"
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
    Column(name="redriven", label="Redriven", align="right"),
    Column(name="attempts", label="Attempts", align="right"),
    Column(name="last", label="Last", align="right"),
)
#: What the tile of each state says, in the order of the page.
FEET: dict[State, str] = {
    "open": "wait for a decision",
    "parked": "left alone by a redrive",
    "redriven": "their rows went back",
}
assert set(FEET) == set(STATES)


@screen("/dead-letters/{topic}", under="/dead-letters")
async def dead_letters_of(visit: Visit, topic: str, reason: str = "", state: str = "open") -> None:
    first = await read(lambda: visit.services.dead_letters.page(topic, limit=0))
    DeadLetterTopicPage(visit, first.topic, reason=reason, state=state).start()


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the page shows."""

    reasons: list[Reason]
    timeline: Timeline
    page: DeadLetterPage
    redrive: Redrive | None


class DeadLetterTopicPage(LivePage[Content]):
    """The page of one dead-letter topic."""

    def __init__(self, visit: Visit, topic: str, *, reason: str, state: str) -> None:
        self._visit, self._topic, self._picked = visit, topic, ""
        self._service = visit.services.dead_letters
        self._dead_letters: list[StoredDeadLetter] = []
        self._reason_names: list[str] = []
        title = f"Dead letters of {topic.removesuffix(SUFFIX)}"
        with heading(title, under="Rows that were given up, the newest first.", why="dead_letters"):
            button("Park", self._park_selected, icon="inventory_2")
            button("Redrive", self._redrive_selected, icon="redo", kind="primary")
        self._progress = RedriveProgress(visit, topic)
        self._redrive = RedriveDialog(visit, topic, self.refresh)
        with block("grid tiles"):
            self._tiles = {known: Stat(known.capitalize(), why=f"dead_letter_{known}") for known in FEET}
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
            with block("toolbar"):
                states = [known.capitalize() for known in FEET]
                chosen = state.capitalize() if state in FEET else ANY_STATE
                self._state = Segments([*states, ANY_STATE], value=chosen, label="State", on_change=self._filter)
                known_reasons = [ANY_REASON, *([reason] if reason else [])]
                self._reason = select(known_reasons, value=reason or ANY_REASON, label="Reason", on_change=self._filter)
                self._text = search_box("Search in messages", self._filter)
                self._count = ui.label("").classes("quiet small").props('role="status"')
            with block("with-beside"):
                with block("grow"):
                    self._table = Table(COLUMNS, label="Dead letters", none="No dead letter fits.", on_row=self._pick)
                    self._table.classes("one-line")
                    self._pages = Pages(self.refresh, size=25)
                self._panel = DeadLetterPanel(
                    redrive=self._redrive_one, park=self._park_one, close=lambda: self._pick("")
                )

    # -- loading and showing ------------------------------------------------------------------------------------------

    def selection(self) -> Selection:
        """The dead letters that the filter selects."""
        reason, text = self._reason.value, (self._text.value or "").strip()
        return Selection(
            reasons=() if reason in (None, ANY_REASON) else (str(reason),),
            states=tuple(state for state in STATES if state.capitalize() == self._state.value),
            text=text or None,
        )

    def load(self) -> Content:
        selection, first, size = self.selection(), self._pages.first, self._pages.size
        page = self._service.page(self._topic, selection, skip=first, limit=size)
        if not page.dead_letters and first:
            page = self._service.page(self._topic, selection, limit=size)
        return Content(
            reasons=self._service.reasons(self._topic),
            timeline=self._service.timeline(self._topic),
            page=page,
            redrive=self._service.redrive_progress(self._topic),
        )

    def show(self, content: Content) -> None:
        self._dead_letters = content.page.dead_letters
        self._progress.show(content.redrive)
        for state, tile in self._tiles.items():
            number = sum(reason.states[state] for reason in content.reasons)
            tile.set(count(number), foot=FEET[state], tone="warn" if state == "open" and number else "")
        self._show_reasons(content.reasons)
        self._chart.set(_labels(content.timeline), content.timeline.counts)
        self._pages.set_count(content.page.total)
        self._count.set_text(counted(content.page.total, "dead letter"))
        self._show_rows()

    def _show_rows(self) -> None:
        self._table.set_rows([_row(letter, picked=_key(letter) == self._picked) for letter in self._dead_letters])

    def _show_reasons(self, reasons: list[Reason]) -> None:
        names = [reason.name for reason in reasons]
        if names != self._reason_names:
            self._reason_names = names
            chosen = self._reason.value
            known = [ANY_REASON, *names, *([chosen] if chosen not in (*names, ANY_REASON) else [])]
            self._reason.set_options(known, value=chosen)
        self._reasons.set_rows([_reason(reason, picked=reason.name == self._reason.value) for reason in reasons])

    async def _filter(self) -> None:
        self._pages.first = 0
        await self.refresh()

    def _pick_reason(self, name: str) -> None:
        self._reason.set_value(ANY_REASON if self._reason.value == name else name)

    def _pick(self, key: str) -> None:
        self._picked = "" if key == self._picked else key
        self._panel.show(next((letter for letter in self._dead_letters if _key(letter) == self._picked), None))
        self._show_rows()

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _redrive_selected(self) -> None:
        selection = self.selection()
        parts = [f"given up for {selection.reasons[0]}"] if selection.reasons else []
        parts += [f"whose message has “{selection.text}”"] if selection.text else []
        text = "Open dead letters " + " and ".join(parts) if parts else "All open dead letters of this topic"
        await self._redrive.open(replace(selection, states=()), f"{text}.")

    async def _redrive_one(self, dead_letter: StoredDeadLetter) -> None:
        text = f"The dead letter at offset {dead_letter.place.offset}, {dead_letter.letter.error}."
        await self._redrive.open(_only(dead_letter), text)

    async def _park_selected(self) -> None:
        await self._park(replace(self.selection(), states=()), undo=self._state.value == "Parked")

    async def _park_one(self, dead_letter: StoredDeadLetter) -> None:
        await self._park(_only(dead_letter), undo=dead_letter.state == "parked")
        self._pick("")

    async def _park(self, selection: Selection, *, undo: bool) -> None:
        """Park dead letters, or open parked ones again, after a dry run has counted them."""
        outcome = await attempt(lambda: self._service.park(self._topic, selection, undo=undo, dry_run=True))
        if outcome is None:
            return
        verb, amount = ("Take up" if undo else "Park"), counted(outcome.changed, "dead letter")
        with Question(f"{verb} {amount}?", yes=f"{verb} {amount}") as question:
            if not outcome.changed:
                question.refuse(f"The filter selects no {'parked' if undo else 'open'} dead letter.")
            elif not self._visit.caller.may("admin", self._topic):
                question.refuse("This needs admin rights on the topic.")
            for reason, number in (outcome.unparked if undo else outcome.parked).most_common():
                ui.label(f"{reason}: {count(number)}")
            ui.label(
                "They become open again." if undo else "A redrive leaves parked dead letters alone. They stay readable."
            )
        if not await question.answered():
            return
        if await attempt(lambda: self._service.park(self._topic, selection, undo=undo)) is not None:
            notify(f"{amount} {'taken up again' if undo else 'parked'}.")
            await self.refresh()


def _labels(timeline: Timeline) -> list[str]:
    """Labels of the intervals: only the part of the time in which they differ."""
    times = [moment(at) for at in timeline.starts_us]
    if timeline.step_us < 60_000_000:
        return [text[11:19] for text in times]
    is_one_day = len({text[:10] for text in times}) == 1
    return [text[11:16] if is_one_day else text[5:16] for text in times]


def _only(dead_letter: StoredDeadLetter) -> Selection:
    place = dead_letter.place
    return Selection(partition=place.partition, offsets=(range(place.offset, place.offset + 1),))


def _key(dead_letter: StoredDeadLetter) -> str:
    return f"{dead_letter.place.partition}/{dead_letter.place.offset}"


def _row(dead_letter: StoredDeadLetter, *, picked: bool) -> Row:
    letter, state = dead_letter.letter, dead_letter.state
    # The last line of a trace says what went wrong.
    lines = letter.message.strip().splitlines() or [""]
    path = row_path(letter.topic, letter.partition, letter.offset)
    cells = [
        ago(letter.at_us),
        letter.error,
        lines[-1][:300],
        link(f"{letter.topic} {letter.partition}/{letter.offset}", path),
        str(letter.attempt),
        mark(state, TONES[state]),
    ]
    return Row(cells, key=_key(dead_letter), picked=picked)


def _reason(reason: Reason, *, picked: bool) -> Row:
    cells = [
        reason.name,
        toned(count(reason.open), "warn" if reason.open else "quiet"),
        count(reason.states["parked"]),
        count(reason.states["redriven"]),
        f"up to {reason.attempts}",
        ago(reason.last_us),
    ]
    return Row(cells, key=reason.name, picked=picked)
