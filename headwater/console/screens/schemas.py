"""Schemas: those of topics, and those registered under subjects; how often each has changed."""

from __future__ import annotations

from urllib.parse import quote

from headwater.console.context import context
from headwater.console.parts.layout import card, heading, search_box
from headwater.console.parts.live import every, read
from headwater.console.parts.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.parts.words import count
from headwater.console.schemas import Kind, Schemas, SubjectSchemas, TopicSchemas
from headwater.console.screen import screen
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.server.registered import Registry
from headwater.server.subjects import level_of_subject, topic_of

COLUMNS = (
    Column(name="name", label="Schema"),
    Column(name="kind", label="Of"),
    Column(name="version", label="Versions", align="right"),
    Column(name="columns", label="Columns", align="right"),
    Column(name="names", label="They are", clip=True),
    Column(name="level", label="A new version must be"),
    Column(name="topic", label="Topic"),
)


def registry() -> Registry:
    return context().share("registry", lambda: Registry(context().log))


def schemas_path(name: str, kind: Kind) -> str:
    return f"/console/schemas/{quote(name, safe='')}" + ("?kind=subject" if kind == "subject" else "")


def schemas_named(name: str, kind: str = "") -> Schemas:
    """The schemas that a name means: a topic's, unless there is none or a subject is asked for."""
    if kind != "subject" and (name in context().log.topics() or name not in registry().subjects()):
        return TopicSchemas(context().log, name)
    return SubjectSchemas(registry(), name)


@screen("/schemas", title="Schemas", group="Data", icon="schema", key="c", order=40)
def schemas(visit: Visit) -> None:
    page = SchemaList(visit)
    every(5.0, page.look, page.show)


class SchemaList:
    """Topics and subjects by name; only those of the page are looked into."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._rows: dict[tuple[str, Kind], Row] = {}
        with heading("Schemas", under="What the rows of each topic are, were, and may become.", why="schemas"):
            self._box = search_box("Filter schemas", self._again)
        with card(flush=True):
            self._table = Table(COLUMNS, label="Schemas", none="No schema fits. Each topic brings its own.")
            self._pages = Pages(self._again)

    def look(self) -> list[tuple[str, Kind]]:
        text = (self._box.value or "").lower()
        caller = self._visit.caller
        topics: list[tuple[str, Kind]] = [(name, "topic") for name in context().log.topics() if caller.sees(name)]
        subjects: list[tuple[str, Kind]] = [
            (name, "subject") for name in registry().subjects() if caller.sees(topic_of(name))
        ]
        found = sorted(one for one in [*topics, *subjects] if text in one[0].lower())
        rows = {}
        for name, kind in found[self._pages.first : self._pages.first + self._pages.size]:
            try:
                rows[name, kind] = _row(schemas_named(name, kind))
            except HeadwaterError:  # deleted while we looked
                continue
        self._rows = rows
        return found

    def show(self, found: list[tuple[str, Kind]]) -> None:
        self._table.set_rows([self._rows[one] for one in self._pages.part(found) if one in self._rows])

    async def _again(self, _: object = None) -> None:
        self.show(await read(self.look))


def _row(found: Schemas) -> Row:
    versions = found.versions()
    names = found.columns(versions[-1]).names
    bare = found.kind == "topic" and context().log.topic(found.name).schemaless
    rule = "readable for old rows" if found.kind == "topic" else level_of_subject(registry(), found.name)
    cells = [
        link(found.name, schemas_path(found.name, found.kind)),
        mark(found.kind, "accent" if found.kind == "subject" else "plain"),
        count(len(versions)),
        toned("bytes", "quiet") if bare else count(len(names)),
        toned("any key and any value", "quiet") if bare else ", ".join(names),
        toned("–", "quiet") if bare else rule,
        link(found.topic, f"/console/topics/{quote(found.topic, safe='')}"),
    ]
    return Row(cells, key=f"{found.kind} {found.name}")
