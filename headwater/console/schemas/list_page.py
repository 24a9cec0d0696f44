"""Schemas: those of topics, and those registered under subjects; how often each has changed."""

from __future__ import annotations

from urllib.parse import quote

from headwater.console.kit.layout import card, heading, search_box
from headwater.console.kit.live import every, read
from headwater.console.kit.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.kit.words import count
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.services.schemas import Kind, SchemaName

COLUMNS = (
    Column(name="name", label="Schema"),
    Column(name="kind", label="Of"),
    Column(name="version", label="Versions", align="right"),
    Column(name="columns", label="Columns", align="right"),
    Column(name="names", label="They are", clip=True),
    Column(name="level", label="A new version must be"),
    Column(name="topic", label="Topic"),
)


def schemas_path(name: str, kind: Kind) -> str:
    return f"/console/schemas/{quote(name, safe='')}" + ("?kind=subject" if kind == "subject" else "")


@screen("/schemas", title="Schemas", group="Data", icon="schema", key="c", order=40)
def schemas(visit: Visit) -> None:
    page = SchemaList(visit)
    every(5.0, page.look, page.show)


class SchemaList:
    """Topics and subjects by name; only those of the page are looked into."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._rows: dict[SchemaName, Row] = {}
        with heading("Schemas", under="What the rows of each topic are, were, and may become.", why="schemas"):
            self._box = search_box("Filter schemas", self._again)
        with card(flush=True):
            self._table = Table(COLUMNS, label="Schemas", none="No schema fits. Each topic brings its own.")
            self._pages = Pages(self._again)

    def look(self) -> list[SchemaName]:
        text = (self._box.value or "").lower()
        found = [one for one in self._visit.services.schemas.list_schemas() if text in one.name.lower()]
        rows = {}
        for one in found[self._pages.first : self._pages.first + self._pages.size]:
            try:
                rows[one] = self._row(one)
            except HeadwaterError:  # deleted while we looked
                continue
        self._rows = rows
        return found

    def show(self, found: list[SchemaName]) -> None:
        self._table.set_rows([self._rows[one] for one in self._pages.part(found) if one in self._rows])

    def _row(self, one: SchemaName) -> Row:
        service = self._visit.services.schemas
        about = service.describe(one.name, kind=one.kind)
        names = service.version(one.name, about.versions[-1], kind=one.kind).columns.names
        bare = about.schemaless
        cells = [
            link(one.name, schemas_path(one.name, one.kind)),
            mark(one.kind, "accent" if one.kind == "subject" else "plain"),
            count(len(about.versions)),
            toned("bytes", "quiet") if bare else count(len(names)),
            toned("any key and any value", "quiet") if bare else ", ".join(names),
            toned("–", "quiet") if bare else about.level or "readable for old rows",
            link(one.topic, f"/console/topics/{quote(one.topic, safe='')}"),
        ]
        return Row(cells, key=f"{one.kind} {one.name}")

    async def _again(self, _: object = None) -> None:
        self.show(await read(self.look))
