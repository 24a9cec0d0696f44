"""Schemas: those of topics, and those registered under subjects, with their versions and columns."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.console.context import Visit
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, link, mark, toned
from headwater.console.kit.words import count
from headwater.console.pages import path_to, screen
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


def schema_path(name: str, kind: Kind) -> str:
    """The address of a schema's page; a topic and a subject may have the same name."""
    return path_to("schemas", name) + ("?kind=subject" if kind == "subject" else "")


@screen("/schemas", title="Schemas", group="Data", icon="schema", key="c", order=40)
def schemas(visit: Visit) -> None:
    SchemaList(visit).start(seconds=5.0)


class SchemaList(ListPage[SchemaName]):
    """The list of topics and subjects by name."""

    def __init__(self, visit: Visit) -> None:
        super().__init__(
            visit,
            "Schemas",
            COLUMNS,
            under="What the rows of each topic are, were, and may become.",
            why="schemas",
            none="No schema fits. Each topic brings its own.",
        )

    def items(self) -> Sequence[SchemaName]:
        return self.visit.services.schemas.list_schemas()

    def text(self, item: SchemaName) -> str:
        return item.name

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
            toned("–", "quiet") if is_bytes else schema.level or "readable for old rows",
            link(item.topic, path_to("topics", item.topic)),
        ]
        return Row(cells, key=f"{item.kind} {item.name}")
