"""One kind of entities: find one of them by the beginning of its id."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.entities.model import entity_path, signature
from headwater.console.kit.controls import button, search_box
from headwater.console.kit.layout import block, card, facts_markup, heading, html, note, sentence
from headwater.console.kit.live import LivePage, read
from headwater.console.kit.table import Column, Row, Table, link
from headwater.console.kit.words import ago, count
from headwater.console.pages import path_to, screen
from headwater.services.entities import EntityKind, EntityPage

#: Entities on one page.
SIZE = 50
COLUMNS = (Column(name="id", label="Entity"), Column(name="version", label="Events", align="right"))
NO_DECIDER = (
    "This process does not have the code of these entities. Their histories are shown; states and commands need their "
    "decider: start the server with `headwater serve --entities FILE`, or run the app that calls `app.serve_entities`."
)


@screen("/entities/{kind}", under="/entities")
async def kind(visit: Visit, kind: str) -> None:
    first = await read(lambda: visit.services.entities.kind(kind))  # one that is not there is an error, not a page
    KindPage(visit, first).start()


@dataclass(frozen=True, kw_only=True)
class KindContent:
    """A kind, and a page of its entities, with what the user had chosen when it was loaded."""

    kind: EntityKind
    chosen: tuple[str, str]
    page: EntityPage


class KindPage(LivePage[KindContent]):
    """The page of a kind of entities."""

    def __init__(self, visit: Visit, first: EntityKind) -> None:
        self._service, self._name = visit.services.entities, first.name
        #: The ids behind which this page and those before it begin.
        self._places = [""]
        self._next: str | None = None
        self._first_id = ""
        with heading(first.name, under="A kind of entities. Each has an id, and a history of events.", why="entities"):
            html(f'<a href="{escape(path_to("topics", first.topic))}">Its topic</a>')
            self._search = search_box("Beginning of an id", self._begin)
            self._search.on("keydown.enter", self._open_first)
        if first.commands is None:
            html(f'<div class="note info"><div class="grow">{sentence(NO_DECIDER)}</div></div>')
        with block("split start"):
            with card("Entities", flush=True):
                self._table = Table(COLUMNS, label="Entities", none="No entity has an id that begins so.")
                with block("pager"):
                    self._place = ui.label("").props('role="status"')
                    block("grow")
                    self._back = button("Back", self._go_back, icon="chevron_left", kind="ghost")
                    self._forward = button("Further", self._go_on, icon="chevron_right", kind="ghost")
            with block("stack wide"):
                with card("Its events"):
                    self._facts = html("")
                if first.commands is not None:
                    with card("Commands", why="entity_commands"):
                        for name, fields in first.commands.items():
                            html(f'<code class="wrap-anywhere">{escape(signature(name, fields))}</code>')
                        if not first.commands:
                            note("Its commands are not sent by name: it reacts to the events of other entities.")

    def load(self) -> KindContent:
        prefix, after = chosen = self._chosen()
        page = self._service.ids(self._name, prefix=prefix, after=after, limit=SIZE)
        return KindContent(kind=self._service.kind(self._name), chosen=chosen, page=page)

    def show(self, content: KindContent) -> None:
        kind, found = content.kind, content.page.entities
        self._facts.set_content(
            facts_markup(
                [
                    ("Events", count(kind.events)),
                    ("Last event", ago(kind.appended_us)),
                    ("Topic", kind.topic),
                    ("Partitions", count(kind.partitions)),
                ]
            )
        )
        if content.chosen != self._chosen():  # the user has chosen something else, and another load is under way
            return
        self._next = content.page.next
        self._first_id = found[0].id if found else ""
        rows = [
            Row([link(each.id, entity_path(kind.name, each.id)), count(each.version)], key=each.id) for each in found
        ]
        self._table.set_rows(rows)
        self._place.set_text(f"{len(found)} entities, in the order of their ids" if len(found) != 1 else "1 entity")
        self._back.set_enabled(len(self._places) > 1)
        self._forward.set_enabled(self._next is not None)

    def _chosen(self) -> tuple[str, str]:
        return self._search.value or "", self._places[-1]

    async def _begin(self) -> None:
        self._places = [""]
        await self.refresh()

    async def _go_on(self) -> None:
        if self._next is not None:
            self._places.append(self._next)
            await self.refresh()

    async def _go_back(self) -> None:
        self._places = self._places[:-1] or [""]
        await self.refresh()

    async def _open_first(self) -> None:
        await self._begin()
        if self._first_id:
            ui.navigate.to(entity_path(self._name, self._first_id))
