"""Entities: their kinds, each with its events, and what this process can do with it."""

from __future__ import annotations

from headwater.console.context import Visit, context
from headwater.console.entities.model import kind_path
from headwater.console.kit.chart import sparkline
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, toned
from headwater.console.kit.words import ago, count
from headwater.console.pages import path_to, screen
from headwater.services.entities import EntityKind


@screen("/entities", title="Entities", group="Data", icon="history_edu", key="e", order=17)
def entities(visit: Visit) -> None:
    KindList(visit).start()


class KindList(ListPage[EntityKind]):
    """The list of the kinds of entities. Choosing one leads to its entities."""

    title = "Entities"
    under = (
        "Event sourcing: things whose state is computed from what happened to them. Choose a kind to find one of them."
    )
    why = "entities"
    placeholder = "Filter kinds"
    columns = (
        Column(name="name", label="Kind"),
        Column(name="events", label="Events", align="right"),
        Column(name="history", label="Events/s, last minutes", width="140px"),
        Column(name="last", label="Last event", align="right"),
        Column(name="topic", label="Topic of events"),
        Column(name="commands", label="Commands"),
    )
    none = "No kind fits."
    nothing = {
        "title": "There are no entities",
        "hint": "A program makes them with hw.Entities: commands are decided into events, and nothing that happened is overwritten.",
        "icon": "history_edu",
        "command": "headwater entity list",
    }
    sort_keys = {
        "name": lambda kind: kind.name,
        "events": lambda kind: kind.events,
        "last": lambda kind: kind.appended_us or 0,
    }
    sort = "name"

    def items(self) -> list[EntityKind]:
        return self.visit.services.entities.kinds()

    def row(self, item: EntityKind) -> Row:
        known = toned("not known here", "quiet") if item.commands is None else ", ".join(item.commands) or "–"
        cells = [
            link(item.name, kind_path(item.name)),
            count(item.events),
            drawn(sparkline(context().history.values("topic", item.topic, "rate"))),
            ago(item.appended_us),
            link(item.topic, path_to("topics", item.topic)),
            known,
        ]
        return Row(cells, key=item.name)
