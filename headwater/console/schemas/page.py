"""One schema: its columns, what changed between two versions, who uses it; a draft is tried before it is registered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

import pyarrow as pa
from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.layout import block, card, heading, select
from headwater.console.kit.live import attempt, every, read
from headwater.console.kit.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.kit.words import counted
from headwater.console.pages import screen
from headwater.console.schemas.draft import DraftBox
from headwater.console.schemas.list_page import schemas_path
from headwater.console.visit import Visit
from headwater.schema import Change, diff
from headwater.schema.notation import format_type
from headwater.services.schemas import Kind, SchemaInfo, SchemaVersion

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
    asked: Kind | None = "subject" if kind == "subject" else None
    found = await read(lambda: visit.services.schemas.describe(name, kind=asked))
    page = SchemaPage(visit, found, old=old, new=new)
    every(5.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class SchemaContent:
    """What the page shows."""

    versions: list[int]
    text: str
    """The newest version, as it is edited."""
    lines: list[ColumnDiff]
    users: list[Row]
    about: str


class SchemaPage:
    """The page of a topic's or a subject's schema."""

    def __init__(self, visit: Visit, about: SchemaInfo, *, old: int, new: int) -> None:
        self._visit, self._schema, self._versions = visit, about, list[int]()
        self._wanted = (old, new)
        what = "Avro, registered under a subject" if about.kind == "subject" else "The columns of a topic"
        with heading(about.name, under=f"{what}. {about.rule}", why="schemas"):
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
                self._users = Table(USER_COLUMNS, label="Users", none="No users yet.")
        self._draft = DraftBox(visit, about, self._registered)

    def look(self) -> SchemaContent:
        name, kind = self._schema.name, self._schema.kind
        versions = self._visit.services.schemas.describe(name, kind=kind).versions
        old, new = self._chosen(versions)
        later = self._version(new)
        lines = lines_between(pa.schema([]) if old == NOTHING else self._version(old).columns, later.columns)
        if old == NOTHING:  # there were no rows that could not follow
            lines = [replace(one, refused="") for one in lines]
        changed = [one for one in lines if one.change not in ("", "changed inside")]
        about = f"{counted(len(changed), 'change')}." if changed else "The two versions have the same columns."
        if old == NOTHING:
            about = f"The first version, with {counted(len(lines), 'column')}."
        if later.id is not None:
            about += f" Version {new} has the number {later.id} in messages."
        text = (later if new == versions[-1] else self._version(versions[-1])).text
        return SchemaContent(versions=versions, text=text, lines=lines, users=self._used_by(), about=about)

    def show(self, found: SchemaContent) -> None:
        if found.versions != self._versions:
            old, new = self._chosen(found.versions)
            self._versions, self._wanted = found.versions, (-1, -1)
            names = {version: f"version {version}" for version in found.versions}
            self._old.set_options({NOTHING: "nothing", **names}, value=old)
            self._new.set_options(names, value=new)
            self._draft.begin(found.text)
        self._about.set_text(found.about)
        self._lines.set_rows([_line(one) for one in self._pages.part(found.lines)])
        self._users.set_rows(found.users)

    def _chosen(self, versions: list[int]) -> tuple[int, int]:
        """The two versions to compare: those chosen, or the last and the one before."""
        asked = (self._old.value, self._new.value) if versions == self._versions else self._wanted
        new = asked[1] if asked[1] in versions else versions[-1]
        before = max((one for one in versions if one < new), default=NOTHING)
        return (asked[0] if asked[0] in (NOTHING, *versions) else before), new

    def _version(self, number: int) -> SchemaVersion:
        return self._visit.services.schemas.version(self._schema.name, number, kind=self._schema.kind)

    async def _again(self, _: object = None) -> None:
        found = await attempt(self.look)
        if found is not None:
            self.show(found)

    async def _registered(self, version: int) -> None:
        self._wanted = (-1, version)
        await self._again()

    def _used_by(self) -> list[Row]:
        """The topic, its other schemas, and the groups and queries that read it."""
        topic, known = self._schema.topic, self._visit.services.schemas.list_schemas()
        rows = []
        if any(one.kind == "topic" and one.name == topic for one in known):
            rows.append(Row([link(topic, f"/console/topics/{quote(topic, safe='')}"), "topic"], key=f"t {topic}"))
        if self._schema.kind == "topic":
            mine = [one.name for one in known if one.kind == "subject" and one.topic == topic]
            rows += [Row([link(name, schemas_path(name, "subject")), "subject"], key=f"s {name}") for name in mine]
        groups = sorted({lag.group for lag in self._visit.lags(topic)})
        rows += [Row([link(one, f"/console/groups/{quote(one, safe='')}"), "group"], key=f"g {one}") for one in groups]
        for one in context().history.statuses:
            if topic in (*one.inputs, *one.outputs):
                told = "query that reads it" if topic in one.inputs else "query that writes it"
                rows.append(
                    Row([link(one.name, f"/console/queries/{quote(one.name, safe='')}"), told], key=f"q {one.name}")
                )
        return rows


def _line(one: ColumnDiff) -> Row:
    tone = next((tone for kind, tone in TONES.items() if kind in one.change), "warn")
    cells = [
        one.column,
        toned(one.old, "bad" if one.change and not one.new else "quiet" if one.change else "") if one.old else "",
        toned(one.new, "good" if one.change and not one.old else "") if one.new else "",
        {**mark(one.change, tone), "under": one.refused} if one.change else toned("same", "quiet"),
    ]
    return Row(cells, key=one.column)


# -- two versions side by side -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ColumnDiff:
    """One column in two versions; `""` where it is not there."""

    column: str
    old: str
    new: str
    change: str = ""
    refused: str = ""


def lines_between(old: pa.Schema, new: pa.Schema) -> list[ColumnDiff]:
    """All columns of two versions side by side, those that go last; a change inside a column has a line of its own.

    >>> [(one.column, one.change) for one in lines_between(pa.schema([("a", pa.int32())]), pa.schema([("b", pa.int8()), ("a", pa.int64())]))]
    [('b', 'added'), ('a', 'widened')]
    """
    changes: dict[str, list[Change]] = {}
    for change in diff(old, new):
        changes.setdefault(change.column, []).append(change)
    found = []
    for name in [*new.names, *(name for name in old.names if name not in new.names)]:
        before, after = _written(old, name), _written(new, name)
        mine = changes.pop(name, [])
        within = [path for path in changes if path.startswith((f"{name}.", f"{name}[]", f"{name}{{}}"))]
        kind = _told(mine) or ("changed inside" if within else "")
        found.append(ColumnDiff(column=name, old=before, new=after, change=kind, refused=_refused(mine)))
        for inside in within:
            mine = changes.pop(inside)
            found.append(
                ColumnDiff(column=inside, old=mine[0].old, new=mine[0].new, change=_told(mine), refused=_refused(mine))
            )
    return found


def _written(schema: pa.Schema, name: str) -> str:
    if name not in schema.names:
        return ""
    column = schema.field(name)
    return format_type(column.type) + ("" if column.nullable else " not null")


def _told(changes: Sequence[Change]) -> str:
    return ", ".join(change.kind for change in changes)


def _refused(changes: Sequence[Change]) -> str:
    return "; ".join(change.refused for change in changes if change.refused)
