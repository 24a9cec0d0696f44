"""Registered schemas: rows of an internal, compacted topic, so that they are copied and backed up with the log.

A row is one version of a subject, or the level of a subject (version 0). Identities are numbers that count up; one
schema has one number in all subjects. A change reads the topic to its end, decides, and appends on the condition that
no other process has appended meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from headwater.log.errors import OffsetConflict
from headwater.log.topic import Topic
from headwater.schema.compatibility import DEFAULT_LEVEL

if TYPE_CHECKING:
    from headwater.log import Log

SCHEMAS_TOPIC = "__schemas"
SCHEMAS_SCHEMA = pa.schema(
    [
        pa.field("subject", pa.string(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("id", pa.int32()),
        pa.field("schema", pa.string()),
        pa.field("deleted", pa.bool_()),
        pa.field("level", pa.string()),
    ]
)
#: The subject under which the level for all subjects is kept; no topic can have this name.
EVERY_SUBJECT = "*"


@dataclass(frozen=True, kw_only=True)
class RegisteredSchema:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    deleted: bool = False


class SchemaRegistry:
    """The table of registered schemas, in memory; each call catches up with the topic."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.RLock()
        self._next = 0
        self._versions: dict[str, dict[int, RegisteredSchema]] = {}
        self._levels: dict[str, str] = {}
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    # -- queries ------------------------------------------------------------------------------------------------------

    def subjects(self, *, deleted: bool = False) -> list[str]:
        with self._caught_up():
            return sorted(subject for subject in self._versions if self._live(subject, deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> dict[int, RegisteredSchema]:
        """The versions of a subject, oldest first; empty if there is no such subject."""
        with self._caught_up():
            return {found.version: found for found in self._live(subject, deleted)}

    def text(self, identity: int) -> str | None:
        """The schema that has a number."""
        with self._caught_up():
            return self._texts.get(identity)

    def used_by(self, identity: int, *, deleted: bool = False) -> list[RegisteredSchema]:
        """The subjects and versions of a schema; with `deleted` also those that are hidden."""
        with self._caught_up():
            every = [found for subject in sorted(self._versions) for found in self._live(subject, deleted)]
            return [found for found in every if found.id == identity]

    def level(self, subject: str) -> str | None:
        """The compatibility level that was set for the subject itself."""
        with self._caught_up():
            return self._levels.get(subject)

    def level_in_force(self, subject: str) -> str:
        """The compatibility level of a subject: its own, that of all subjects, or the default."""
        return self.level(subject) or self.level(EVERY_SUBJECT) or DEFAULT_LEVEL

    # -- changes ------------------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: str, check: Callable[[list[RegisteredSchema]], None]) -> RegisteredSchema:
        """Add a version, unless the subject has this schema already; `check` may raise, given the current versions."""
        key = canonical(schema)

        def decide() -> tuple[list[dict[str, Any]], RegisteredSchema]:
            live = self._live(subject, False)
            same = next((found for found in live if canonical(found.schema) == key), None)
            if same is not None:
                return [], same
            check(live)
            identity = self._ids.get(key, max(self._texts, default=0) + 1)
            version = max(self._versions.get(subject, {}), default=0) + 1
            made = RegisteredSchema(subject=subject, version=version, id=identity, schema=schema)
            return [_row(made)], made

        made: RegisteredSchema = self._change(decide)
        return made

    def delete(self, subject: str, versions: list[int], *, permanent: bool) -> None:
        """Hide versions; with `permanent`, delete versions that are hidden."""

        def decide() -> tuple[list[dict[str, Any]], None]:
            known = self._versions.get(subject, {})
            found = [known[number] for number in versions if number in known]
            if permanent:
                return [{"subject": subject, "version": one.version, "_tombstone": True} for one in found], None
            return [{**_row(one), "deleted": True} for one in found], None

        self._change(decide)

    def set_level(self, subject: str, level: str | None) -> None:
        def decide() -> tuple[list[dict[str, Any]], None]:
            row: dict[str, Any] = {"subject": subject, "version": 0}
            return [row | ({"_tombstone": True} if level is None else {"level": level})], None

        self._change(decide)

    # Any: rows, and what a decision is about.
    def _change(self, decide: Callable[[], tuple[list[dict[str, Any]], Any]]) -> Any:
        while True:
            with self._caught_up():
                self._make()
                rows, result = decide()
                if not rows:
                    return result
                try:
                    self._log.append(SCHEMAS_TOPIC, rows, expected_offset=self._next)
                except OffsetConflict:
                    continue  # another process has appended: read its rows, and decide again
                return result

    # -- the table ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        with self._lock:
            self._catch_up()
            yield

    def _catch_up(self) -> None:
        if not self._log.topics(SCHEMAS_TOPIC, internal=True):
            return
        start, end = self._log.start_offsets(SCHEMAS_TOPIC)[0], self._log.end_offsets(SCHEMAS_TOPIC)[0]
        # If the position is behind the end, the topic was deleted and made again.
        reader = self._log.read(SCHEMAS_TOPIC, start=max(self._next, start) if self._next <= end else start)
        for batch in reader.batches():
            for row in batch.rows():
                self._take(row)
        self._next = reader.ranges[0][1]  # compaction may have left no row before the end

    def _take(self, row: dict[str, Any]) -> None:
        subject, version = row["subject"], row["version"]
        if version == 0:
            if row["_tombstone"]:
                self._levels.pop(subject, None)
            else:
                self._levels[subject] = row["level"]
            return
        if row["_tombstone"]:
            self._versions.get(subject, {}).pop(version, None)
            return
        found = RegisteredSchema(
            subject=subject, version=version, id=row["id"], schema=row["schema"], deleted=bool(row["deleted"])
        )
        self._versions.setdefault(subject, {})[version] = found
        self._ids.setdefault(canonical(found.schema), found.id)
        self._texts[found.id] = found.schema

    def _live(self, subject: str, deleted: bool) -> list[RegisteredSchema]:
        known = self._versions.get(subject, {})
        return [known[number] for number in sorted(known) if deleted or not known[number].deleted]

    def _make(self) -> None:
        if not self._log.topics(SCHEMAS_TOPIC, internal=True):
            self._log.create_internal(
                Topic(
                    name=SCHEMAS_TOPIC,
                    id="5c4e3a5" + "0" * 25,
                    schema=SCHEMAS_SCHEMA,
                    key=("subject", "version"),
                    compact=True,
                    created_us=self._log.clock.now_us(),
                )
            )


def canonical(schema: str) -> str:
    """The canonical text of a schema.

    >>> canonical('{"type": "string"}') == canonical('{ "type":"string" }')
    True
    """
    return orjson.dumps(orjson.loads(schema), option=orjson.OPT_SORT_KEYS).decode()


def _row(found: RegisteredSchema) -> dict[str, Any]:
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        "schema": found.schema,
        "deleted": found.deleted,
    }
