"""Schemas of topics and subjects: the list; and of one, its columns, the changes between two versions, and its users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.kit.controls import select
from headwater.console.kit.layout import block, card, heading, subtitle
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.live import LivePage, read
from headwater.console.kit.table import Column, Pages, Row, Table, link, mark, toned
from headwater.console.kit.words import count, counted
from headwater.console.pages import path_to, screen
from headwater.console.queries.status import query_path
from headwater.console.schemas.draft import DraftBox
from headwater.schema import Change, diff
from headwater.schema.notation import format_type
from headwater.services.schemas import Kind, SchemaInfo, SchemaName, SchemaVersion

#: Stands for the empty schema before the first version.
NOTHING = 0
DIFF_COLUMNS = (
    Column(name="column", label="Column", mono=True),
    Column(name="old", label="Before", mono=True),
    Column(name="new", label="After", mono=True),
    Column(name="change", label="Change"),
)
USER_COLUMNS = (Column(name="who", label="Used by"), Column(name="kind", label="Kind"))
TONES = {
    "changed inside": "",
    "added": "good",
    "removed": "bad",
    "retyped": "bad",
    "made not null": "bad",
    "moved": "info",
}


def schema_path(name: str, kind: Kind) -> str:
    """The address of a schema's page; a topic and a subject may have the same name."""
    return path_to("schemas", name) + ("?kind=subject" if kind == "subject" else "")


@screen("/schemas", title="Schemas", group="Data", icon="schema", key="c", order=40)
def schemas(visit: Visit) -> None:
    SchemaList(visit).start(seconds=5.0)


class SchemaList(ListPage[SchemaName]):
    """The list of topics and subjects by name."""

    title = "Schemas"
    under = "The columns of each topic, their versions, and what the next version may change."
    why = "schemas"
    columns = (
        Column(name="name", label="Schema"),
        Column(name="kind", label="Kind"),
        Column(name="version", label="Versions", align="right"),
        Column(name="columns", label="Columns", align="right"),
        Column(name="names", label="Names of the columns", clip=True),
        Column(name="level", label="Compatibility"),
        Column(name="topic", label="Topic"),
    )
    none = "No schema fits. Each topic brings its own."

    def items(self) -> Sequence[SchemaName]:
        return self.visit.services.schemas.list_schemas()

    def row(self, item: SchemaName) -> Row:
        service = self.visit.services.schemas
        schema = service.describe(item.name, kind=item.kind)
        names = service.version(item.name, schema.versions[-1], kind=item.kind).columns.names
        is_bytes = schema.schemaless
        cells = [
            link(item.name, schema_path(item.name, item.kind)),
            mark(item.kind, "accent" if item.kind == "subject" else "plain"),
            count(len(schema.versions)),
            toned("bytes", "quiet") if is_bytes else count(len(names)),
            toned("any key and any value", "quiet") if is_bytes else ", ".join(names),
            toned("–", "quiet") if is_bytes else schema.level.capitalize() or "Old rows stay readable",
            link(item.topic, path_to("topics", item.topic)),
        ]
        return Row(cells, key=f"{item.kind} {item.name}")


@screen("/schemas/{name}", under="/schemas")
async def schema(visit: Visit, name: str, kind: str = "", old: int = -1, new: int = -1) -> None:
    asked: Kind | None = "subject" if kind == "subject" else None
    info = await read(lambda: visit.services.schemas.describe(name, kind=asked))
    SchemaPage(visit, info, old=old, new=new).start(seconds=5.0)


@dataclass(frozen=True, kw_only=True)
class SchemaContent:
    """What the page of a schema shows."""

    versions: list[int]
    text: str
    """The newest version, in the notation in which it is edited."""
    columns: list[ColumnDiff]
    users: list[Row]
    summary: str


class SchemaPage(LivePage[SchemaContent]):
    """The page of a topic's or a subject's schema."""

    def __init__(self, visit: Visit, info: SchemaInfo, *, old: int, new: int) -> None:
        self._visit, self._schema, self._versions = visit, info, list[int]()
        self._wanted = (old, new)
        kind = "Avro, registered under a subject" if info.kind == "subject" else "The columns of a topic"
        heading(info.name, under=f"{kind}. {info.rule}", why="schemas")
        with block("split"):
            with card(flush=True):
                with block("toolbar"):
                    subtitle("Changes")
                    block("grow")
                    self._old = select({}, value=None, label="Earlier version", on_change=self.refresh)
                    ui.label("→").classes("quiet")
                    self._new = select({}, value=None, label="Later version", on_change=self.refresh)
                self._summary = ui.label("").classes("quiet small pad").props('role="status"')
                self._columns = Table(DIFF_COLUMNS, label="Columns of both versions", none="No columns.")
                self._columns.classes("first-line")
                self._pages = Pages(self.refresh, size=60)
            with card("Users", flush=True, why="schema_users"):
                self._users = Table(USER_COLUMNS, label="Users", none="No users yet.")
        self._draft = DraftBox(visit, info, self._show_registered)

    def load(self) -> SchemaContent:
        name, kind = self._schema.name, self._schema.kind
        versions = self._visit.services.schemas.describe(name, kind=kind).versions
        old, new = self._chosen(versions)
        later = self._version(new)
        columns = column_diffs(pa.schema([]) if old == NOTHING else self._version(old).columns, later.columns)
        if old == NOTHING:  # there were no rows that could not follow
            columns = [replace(column, refused="") for column in columns]
        changed = [column for column in columns if column.change not in ("", "changed inside")]
        summary = f"{counted(len(changed), 'change')}." if changed else "The two versions have the same columns."
        if old == NOTHING:
            summary = f"The first version, with {counted(len(columns), 'column')}."
        if later.id is not None:
            summary += f" Version {new} has the number {later.id} in messages."
        newest = later if new == versions[-1] else self._version(versions[-1])
        return SchemaContent(
            versions=versions, text=newest.text, columns=columns, users=self._user_rows(), summary=summary
        )

    def show(self, content: SchemaContent) -> None:
        if content.versions != self._versions:
            old, new = self._chosen(content.versions)
            self._versions, self._wanted = content.versions, (-1, -1)
            names = {version: f"version {version}" for version in content.versions}
            self._old.set_options({NOTHING: "nothing", **names}, value=old)
            self._new.set_options(names, value=new)
            self._draft.begin(content.text)
        self._summary.set_text(content.summary)
        self._columns.set_rows([_diff_row(column) for column in self._pages.part(content.columns)])
        self._users.set_rows(content.users)

    def _chosen(self, versions: list[int]) -> tuple[int, int]:
        """The two versions to compare: those that the user has chosen, or the last and the one before."""
        old, new = (self._old.value, self._new.value) if versions == self._versions else self._wanted
        new = new if new in versions else versions[-1]
        before = max((version for version in versions if version < new), default=NOTHING)
        return (old if old in (NOTHING, *versions) else before), new

    def _version(self, number: int) -> SchemaVersion:
        return self._visit.services.schemas.version(self._schema.name, number, kind=self._schema.kind)

    async def _show_registered(self, version: int) -> None:
        self._wanted = (-1, version)
        await self.refresh()

    def _user_rows(self) -> list[Row]:
        """The topic, its other schemas, and the groups and queries that read it."""
        topic, schemas = self._schema.topic, self._visit.services.schemas.list_schemas()
        users = [
            (topic, path_to("topics", topic), "topic")
            for other in schemas
            if (other.kind, other.name) == ("topic", topic)
        ]
        if self._schema.kind == "topic":
            subjects = [other.name for other in schemas if other.kind == "subject" and other.topic == topic]
            users += [(name, schema_path(name, "subject"), "subject") for name in subjects]
        groups = sorted({lag.group for lag in self._visit.lags(topic)})
        users += [(group, path_to("groups", group), "group") for group in groups]
        for status in context().history.statuses:
            if topic in (*status.inputs, *status.outputs):
                use = "query that reads it" if topic in status.inputs else "query that writes it"
                users.append((status.name, query_path(status), use))
        return [Row([link(name, path), kind], key=f"{kind} {name}") for name, path, kind in users]


def _diff_row(column: ColumnDiff) -> Row:
    tone = next((tone for kind, tone in TONES.items() if kind in column.change), "warn")
    is_removed, is_added = column.change and not column.new, column.change and not column.old
    cells = [
        column.name,
        toned(column.old, "bad" if is_removed else "quiet" if column.change else "") if column.old else "",
        toned(column.new, "good" if is_added else "") if column.new else "",
        {**mark(column.change, tone), "under": column.refused} if column.change else toned("same", "quiet"),
    ]
    return Row(cells, key=column.name)


# -- two versions side by side -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ColumnDiff:
    """One column in two versions; `""` where it is not there."""

    name: str
    old: str
    new: str
    change: str = ""
    refused: str = ""


def column_diffs(old: pa.Schema, new: pa.Schema) -> list[ColumnDiff]:
    """All columns of two versions, removed ones last; a change inside a column has a line of its own.

    >>> [(column.name, column.change) for column in column_diffs(pa.schema([("a", pa.int32())]), pa.schema([("b", pa.int8()), ("a", pa.int64())]))]
    [('b', 'added'), ('a', 'widened')]
    """
    changes: dict[str, list[Change]] = {}
    for change in diff(old, new):
        changes.setdefault(change.column, []).append(change)

    def line(name: str, before: str, after: str, own: Sequence[Change], default: str = "") -> ColumnDiff:
        kinds = ", ".join(change.kind for change in own) or default
        refused = "; ".join(change.refused for change in own if change.refused)
        return ColumnDiff(name=name, old=before, new=after, change=kinds, refused=refused)

    lines = []
    for name in [*new.names, *(name for name in old.names if name not in new.names)]:
        own = changes.pop(name, [])
        inside = [path for path in changes if path.startswith((f"{name}.", f"{name}[]", f"{name}{{}}"))]
        lines.append(line(name, _type(old, name), _type(new, name), own, "changed inside" if inside else ""))
        for path in inside:
            own = changes.pop(path)
            lines.append(line(path, own[0].old, own[0].new, own))
    return lines


def _type(schema: pa.Schema, name: str) -> str:
    if name not in schema.names:
        return ""
    column = schema.field(name)
    return format_type(column.type) + ("" if column.nullable else " not null")
