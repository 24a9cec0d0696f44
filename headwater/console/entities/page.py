"""One entity: its history as a timeline, one event whole, the states before and after it, and commands to try."""

from __future__ import annotations

import time
from dataclasses import dataclass
from html import escape

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.entities.kind_page import NO_DECIDER
from headwater.console.entities.model import (
    HINTS,
    PLACES,
    History,
    Place,
    States,
    cause_path,
    data_text,
    entity_path,
    json_text,
    kind_path,
    marked,
)
from headwater.console.entities.try_dialog import TryDialog
from headwater.console.kit.controls import button, select
from headwater.console.kit.layout import Stat, block, card, heading, html, sentence, subtitle, why_button
from headwater.console.kit.live import LivePage, attempt, notify, read
from headwater.console.kit.table import Column, Pages, Row, Table, toned
from headwater.console.kit.values import coloured
from headwater.console.kit.words import ago, count, moment, whole_number
from headwater.console.pages import screen
from headwater.console.topics.frame import row_path
from headwater.services.entities import EntityEvent, EntityKind

#: States are computed again after this time, for a person may have been erased; and when another event is picked.
STATES_SECONDS = 30.0
COLUMNS = (
    Column(name="version", label="Version", width="64px"),
    Column(name="at", label="When (UTC)"),
    Column(name="event", label="What happened"),
    Column(name="by", label="Who and why"),
)
#: Where the event is below its history, go there.
SCROLL = "if (innerWidth <= 1100) document.getElementById('event').scrollIntoView()"


@screen("/entities/{kind}/entity", under="/entities")
async def entity(visit: Visit, kind: str, id: str = "", version: str = "") -> None:
    history = History(visit.services.entities, kind, id)
    first = await read(lambda: visit.services.entities.kind(kind))
    kinds = await read(visit.services.entities.kinds)
    newest = await read(history.version)  # one that is not there is an error instead of a page
    picked = None
    if version:
        picked = max(1, min(whole_number(version, name="version", expected=HINTS["version"], least=0), newest))
    EntityPage(visit, first, history, id=id, picked=picked, kinds=[each.name for each in kinds]).start()


@dataclass(frozen=True, kw_only=True)
class Content:
    """What the page shows, with the place that was chosen when it was loaded."""

    chosen: tuple[int | None, int]
    newest: int
    first_us: int
    last: EntityEvent
    events: list[EntityEvent]
    event: EntityEvent
    states: States


class EntityPage(LivePage[Content]):
    """The page of an entity. Without a choice, it follows the newest event."""

    def __init__(
        self, visit: Visit, kind: EntityKind, history: History, *, id: str, picked: int | None, kinds: list[str]
    ) -> None:
        self._kind, self._id, self._history, self._kinds = kind, id, history, kinds
        self._picked, self._newest = picked, 0
        self._states: tuple[int, float, States] | None = None
        with heading(id, under=f"An entity of kind `{kind.name}`, with all that happened to it.", why="entities"):
            html(f'<a href="{escape(kind_path(kind.name))}">Others of its kind</a>')
            if kind.commands:
                dialog = TryDialog(visit, kind, id)
                button("Try a command", dialog.open, icon="science")
        if kind.commands is None:
            html(f'<div class="note info"><div class="grow">{sentence(NO_DECIDER)}</div></div>')
        with block("grid tiles"):
            self._version = Stat("Version", why="entity_version")
            self._last = Stat("Last event")
            self._age = Stat("First event")
        with block("entity-split"):
            with card("History", flush=True, why="entity_history"):
                self._build_toolbar()
                self._table = Table(COLUMNS, label="History", none="No event.", on_row=self._pick)
                self._table.classes("history")
                self._pages = Pages(self.refresh)
            self._build_event()

    def _build_toolbar(self) -> None:
        with block("toolbar slim"):
            self._place = select(PLACES, value="version", label="Go to", on_change=self._choose_place)
            self._at = ui.input(placeholder=HINTS["version"]).classes("field grow").style("min-width: 160px")
            self._at.props('outlined dense aria-label="Place"').on("keydown.enter", self._go)
            button("Go there", self._go)

    def _build_event(self) -> None:
        with card() as self._panel:
            self._panel.props('id="event"')
            with block("row-flex nowrap-row"):
                self._title = html("").classes("grow")
                self._before = button(
                    "", lambda: self._step(-1), icon="expand_more", kind="ghost", label="Earlier event"
                )
                self._after = button("", lambda: self._step(1), icon="expand_less", kind="ghost", label="Later event")
            self._facts = html("")
            subtitle("What it says", level=3)
            self._data = _json_box("Data of the event")
            self._problem = html("")
            with block("states") as self._both:
                with block("stack tight"):
                    with block("row-flex"):
                        self._label_before = html("")
                        why_button("entity_state")
                    self._state_before = _json_box("State before")
                with block("stack tight"):
                    self._label_after = html("")
                    self._state_after = _json_box("State after")

    # -- content ------------------------------------------------------------------------------------------------------

    def load(self) -> Content:
        picked, first = chosen = (self._picked, self._pages.first)
        newest = self._history.version()
        version = picked or newest
        events = self._history.page(newest - first, self._pages.size)
        here = {event.version: event for event in events}
        last = here.get(newest) or self._history.event(newest)
        return Content(
            chosen=chosen,
            newest=newest,
            first_us=self._history.event(1).at_us,
            last=last,
            events=events,
            event=here.get(version) or self._history.event(version),
            states=self._states_at(version),
        )

    def _states_at(self, version: int) -> States:
        if self._kind.commands is None:
            return States(problem=NO_DECIDER)
        known, now = self._states, time.monotonic()
        if known is None or known[0] != version or now - known[1] > STATES_SECONDS:
            known = self._states = (version, now, self._history.states(version))
        return known[2]

    def show(self, content: Content) -> None:
        self._newest = content.newest
        self._version.set(count(content.newest), foot="events so far")
        self._last.set(ago(content.last.at_us), foot=content.last.event)
        self._age.set(ago(content.first_us), foot=moment(content.first_us)[:19])
        if content.chosen != (self._picked, self._pages.first):
            return  # the user has chosen something else, and another load is under way
        self._pages.set_count(content.newest)
        self._table.set_rows([_row(event, content.event.version) for event in content.events])
        self._show_event(content.event)
        self._show_states(content.event.version, content.states)

    def _show_event(self, event: EntityEvent) -> None:
        self._title.set_content(
            f'<h2><a href="{escape(entity_path(self._kind.name, self._id, event.version))}" title="The address of this '
            f'event">{count(event.version)}: {escape(event.event)}</a></h2>'
        )
        self._before.set_enabled(event.version > 1)
        self._after.set_enabled(event.version < self._newest)
        self._facts.set_content(_facts(event, self._kind, self._kinds))
        self._data.set_content(coloured(json_text(event.data)))

    def _show_states(self, version: int, states: States) -> None:
        self._both.set_visibility(not states.problem)
        is_known = self._kind.commands is None  # the page has said so already
        self._problem.set_content(
            f'<div class="note warn"><div class="grow wrap-anywhere">{sentence(states.problem)}</div></div>'
            if states.problem and not is_known
            else ""
        )
        if not states.problem:
            before, after = marked(states.before, states.after)
            first = "nothing had happened" if version == 1 else f"version {count(version - 1)}"
            self._label_before.set_content(f"<h3>State before it: {first}</h3>")
            self._label_after.set_content(f"<h3>State after it: version {count(version)}</h3>")
            self._state_before.set_content(before)
            self._state_after.set_content(after)

    # -- places -------------------------------------------------------------------------------------------------------

    def _choose_place(self) -> None:
        self._at.props(f'placeholder="{HINTS[str(self._place.value)]}"')

    async def _go(self) -> None:
        place = Place(kind=str(self._place.value), at=self._at.value or "")
        version = await attempt(lambda: self._history.version_at(place))
        if version == 0:
            notify(f"{self._id} had no event yet.", good=False)
        elif version is not None:
            await self._pick(version)

    async def _step(self, by: int) -> None:
        await self._pick(max(1, min((self._picked or self._newest) + by, self._newest)))

    async def _pick(self, version: int) -> None:
        """Show an event: the address says which one, so that it can be sent to others."""
        self._picked = int(version)
        if not self._newest - self._pages.first >= self._picked > self._newest - self._pages.first - self._pages.size:
            self._pages.first = (self._newest - self._picked) // self._pages.size * self._pages.size
        ui.navigate.history.replace(entity_path(self._kind.name, self._id, self._picked))
        await self.refresh()
        ui.run_javascript(SCROLL)


def _row(event: EntityEvent, picked: int) -> Row:
    date, _, clock = moment(event.at_us).partition(" ")
    cells = [
        count(event.version),
        toned(clock, "", under=date),
        toned(event.event, "", under=data_text(event.data)),
        toned(event.by or "–", "", under=event.why or ""),
    ]
    return Row(cells, key=event.version, picked=event.version == picked)


def _facts(event: EntityEvent, kind: EntityKind, kinds: list[str]) -> str:
    """Who, when and why, as HTML. The cause is a link where it is an event of an entity."""
    values = {
        "When": moment(event.at_us),
        "Who": event.by,
        "Why": event.why,
        "Belongs to": event.correlation,
        "Caused by": event.causation,
        "Command id": event.command_id,
        "Tags": ", ".join(event.tags),
    }
    rows = [(name, escape(value)) for name, value in values.items() if value]
    if path := cause_path(event.causation, kinds):
        cause = f'<a href="{escape(path)}">{escape(event.causation or "")}</a>'
        rows = [(name, cause if name == "Caused by" else value) for name, value in rows]
    place = f"partition {event.partition}, offset {count(event.offset)}"
    rows.append(("Its row", f'<a href="{escape(row_path(kind.topic, event.partition, event.offset))}">{place}</a>'))
    rows.append(("Schema", f"version {event.schema} of {escape(event.event)}"))
    return f'<dl class="facts">{"".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)}</dl>'


def _json_box(label: str) -> ui.html:
    """A box for HTML of our own in a fixed font."""
    return ui.html("", sanitize=False, tag="pre").classes("code json").props(f'tabindex="0" aria-label="{label}"')
