"""One schema: its columns, what changed between two versions, who uses it; a draft is tried before it is registered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow as pa
from nicegui import ui

from headwater.console.context import context
from headwater.console.parts.draft import Draft
from headwater.console.parts.layout import block, card, heading, select
from headwater.console.parts.live import attempt, every, read
from headwater.console.parts.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.parts.words import counted
from headwater.console.schemas import Line, Schemas, SubjectSchemas, lines_between
from headwater.console.screen import screen
from headwater.console.screens.schemas import registry, schemas_named, schemas_path
from headwater.console.visit import Visit
from headwater.server.subjects import topic_of

NOTHING = 0
LINE_COLUMNS = (
    Column(name="column", label="Column", mono=True),
    Column(name="old", label="Before", mono=True),
    Column(name="new", label="After", mono=True),
    Column(name="change", label="Change"),
)
USER_COLUMNS = (Column(name="who", label="Used by"), Column(name="kind", label="As"))
TONES = {
    "changed inside": "",
    "added": "good",
    "removed": "bad",
    "retyped": "bad",
    "made not null": "bad",
    "moved": "info",
}


@screen("/schemas/{name}", under="/schemas")
async def schema(visit: Visit, name: str, kind: str = "", old: int = -1, new: int = -1) -> None:
    found = await read(lambda: schemas_named(name, kind))
    visit.caller.require_sight(found.topic)
    page = SchemaPage(visit, found, old=old, new=new)
    every(5.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What the page shows."""

    versions: list[int]
    lines: list[Line]
    users: list[Row]
    about: str


class SchemaPage:
    """The page of a topic's or a subject's schema."""

    def __init__(self, visit: Visit, schemas: Schemas, *, old: int, new: int) -> None:
        self._schemas, self._versions = schemas, list[int]()
        self._wanted = (old, new)
        what = "Avro, registered under a subject" if schemas.kind == "subject" else "The columns of a topic"
        with heading(schemas.name, under=f"{what}. {schemas.rule()}", why="schemas"):
            pass
        with block("split"):
            with card(flush=True):
                with block("toolbar"):
                    ui.html("<h2>Changes</h2>", sanitize=False)
                    block("grow")
                    self._old = select({}, value=None, label="Earlier version", on_change=self._again)
                    ui.label("→").classes("quiet")
                    self._new = select({}, value=None, label="Later version", on_change=self._again)
                self._about = ui.label("").classes("quiet small pad").props('role="status"')
                self._lines = Table(LINE_COLUMNS, label="Columns of both versions", none="No columns.")
                self._lines.classes("first-line")
                self._pages = Pages(self._again, size=60)
            with card("Users", flush=True, why="schema_users"):
                self._users = Table(USER_COLUMNS, label="Users", none="Nobody uses it yet.")
        self._draft = Draft(visit, schemas, self._registered)

    def look(self) -> Looked:
        versions = self._schemas.versions()
        old, new = self._chosen(versions)
        lines = lines_between(self._columns(old), self._columns(new))
        if old == NOTHING:  # there were no rows that could not follow
            lines = [replace(one, refused="") for one in lines]
        changed = [one for one in lines if one.change not in ("", "changed inside")]
        about = f"{counted(len(changed), 'change')}." if changed else "The two versions have the same columns."
        if old == NOTHING:
            about = f"The first version, with {counted(len(lines), 'column')}."
        if isinstance(self._schemas, SubjectSchemas):
            about += f" Version {new} has the number {self._schemas.identity(new)} in messages."
        return Looked(versions=versions, lines=lines, users=self._used_by(), about=about)

    def show(self, found: Looked) -> None:
        if found.versions != self._versions:
            old, new = self._chosen(found.versions)
            self._versions, self._wanted = found.versions, (-1, -1)
            names = {version: f"version {version}" for version in found.versions}
            self._old.set_options({NOTHING: "nothing", **names}, value=old)
            self._new.set_options(names, value=new)
            self._draft.begin(self._schemas.text(found.versions[-1]))
        self._about.set_text(found.about)
        self._lines.set_rows([_line(one) for one in self._pages.part(found.lines)])
        self._users.set_rows(found.users)

    def _chosen(self, versions: list[int]) -> tuple[int, int]:
        """The two versions to compare: those chosen, or the last and the one before."""
        asked = (self._old.value, self._new.value) if versions == self._versions else self._wanted
        new = asked[1] if asked[1] in versions else versions[-1]
        before = max((one for one in versions if one < new), default=NOTHING)
        return (asked[0] if asked[0] in (NOTHING, *versions) else before), new

    def _columns(self, version: int) -> pa.Schema:
        return pa.schema([]) if version == NOTHING else self._schemas.columns(version)

    async def _again(self, _: object = None) -> None:
        found = await attempt(self.look)
        if found is not None:
            self.show(found)

    async def _registered(self, version: int) -> None:
        self._wanted = (-1, version)
        await self._again()

    def _used_by(self) -> list[Row]:
        """The topic, its other schemas, the groups and queries that read it: whoever meets the new version first."""
        topic, known = self._schemas.topic, context()
        rows = []
        if topic in known.log.topics(topic):
            rows.append(Row([link(topic, f"/console/topics/{quote(topic, safe='')}"), "topic"], key=f"t {topic}"))
        if self._schemas.kind == "topic":
            mine = [name for name in registry().subjects() if topic_of(name) == topic and name != self._schemas.name]
            rows += [Row([link(name, schemas_path(name, "subject")), "subject"], key=f"s {name}") for name in mine]
        groups = sorted({lag.group for lag in known.history.lags if lag.topic == topic})
        rows += [Row([link(one, f"/console/groups/{quote(one, safe='')}"), "group"], key=f"g {one}") for one in groups]
        for one in known.history.statuses:
            if topic in (*one.inputs, *one.outputs):
                told = "query that reads it" if topic in one.inputs else "query that writes it"
                rows.append(
                    Row([link(one.name, f"/console/queries/{quote(one.name, safe='')}"), told], key=f"q {one.name}")
                )
        return rows


def _line(one: Line) -> Row:
    tone = next((tone for kind, tone in TONES.items() if kind in one.change), "warn")
    cells = [
        one.column,
        toned(one.old, "bad" if one.change and not one.new else "quiet" if one.change else "") if one.old else "",
        toned(one.new, "good" if one.change and not one.old else "") if one.new else "",
        {**mark(one.change, tone), "under": one.refused} if one.change else toned("same", "quiet"),
    ]
    return Row(cells, key=one.column)
