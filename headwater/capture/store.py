"""The captures of a log: their definitions, and how far each has come.

Both are rows of internal topics, so that every process sees the same:

    __captures             compacted by name: the definition, and whether it is paused
    __capture_positions    compacted by name: the position in the source, and the progress of snapshots
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from headwater.capture.config import CaptureConfig
from headwater.capture.connectors import connector, open_source
from headwater.capture.errors import CaptureChanged
from headwater.capture.port import Position, SnapshotProgress
from headwater.capture.transform import check_tables, transform_of
from headwater.errors import ArgumentInvalid, NotFound, NotPossible, did_you_mean
from headwater.log.port import Log
from headwater.log.topic import Topic
from headwater.schema import parse_schema
from headwater.units import MIB

DEFINITIONS_TOPIC = "__captures"
POSITIONS_TOPIC = "__capture_positions"
#: What a capture keeps for its whole life: its position and its topics depend on them.
FIXED_SETTINGS = ("url", "prefix", "envelope")

_DEFINITIONS: pa.Schema = parse_schema("name string not null, definition string not null, at timestamp not null")
_POSITIONS: pa.Schema = parse_schema(
    "name string not null, position string not null, snapshot string not null, rows int64 not null, at timestamp not null"
)


@dataclass(frozen=True, kw_only=True)
class CaptureProgress:
    """How far a capture has come: its position in the source, and the snapshot of each table."""

    position: Position | None = None
    snapshot: Mapping[str, SnapshotProgress] = field(default_factory=dict)
    rows: int = 0
    at_us: int | None = None


class CaptureStore:
    """The captures of a log: their definitions and their progress."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def create(self, config: CaptureConfig) -> None:
        """Add a capture, after its database was found to be usable."""
        if config.name in self.configs():
            raise ArgumentInvalid(name="name", value=config.name, expected="a name that no other capture has")
        config = replace(config, url=connector(config.url).address(config.url), id=config.id or secrets.token_hex(4))
        transform_of(config)  # the salt of hashes must be there
        with contextlib.closing(open_source(config)) as source:
            check_tables(config, source.tables())
            source.prepare()
        self._put(config)

    def declare(self, config: CaptureConfig) -> CaptureConfig:
        """Create a capture unless it exists, or give it the settings that a program declares now.

        A capture that is paused stays paused. Its database, its topics' names and its envelope cannot change.
        """
        known = self.configs().get(config.name)
        if known is None:
            self.create(config)
            return self.config(config.name)
        config = replace(
            config,
            url=connector(config.url).address(config.url),
            paused=known.paused,
            id=known.id,
            snapshot_requests=known.snapshot_requests,
        )
        for setting in FIXED_SETTINGS:
            before, now = getattr(known, setting), getattr(config, setting)
            if before != now:
                raise CaptureChanged(capture=config.name, setting=setting, before=str(before), now=str(now))
        if config != known:
            self._put(config)
        return config

    def set_paused(self, name: str, paused: bool) -> CaptureConfig:
        config = replace(self.config(name), paused=paused)
        self._put(config)
        return config

    def remove(self, name: str) -> None:
        """Remove a capture, and what it created in its database. Its topics stay."""
        config = self.config(name)
        with contextlib.closing(open_source(config)) as source:
            source.drop()
        self._log.append(DEFINITIONS_TOPIC, [{"name": name, "_tombstone": True}])
        self._log.append(POSITIONS_TOPIC, [{"name": name, "_tombstone": True}])

    def configs(self) -> dict[str, CaptureConfig]:
        return {row["name"]: CaptureConfig.from_json(row["definition"]) for row in self._latest(DEFINITIONS_TOPIC)}

    def config(self, name: str) -> CaptureConfig:
        configs = self.configs()
        if name not in configs:
            raise NotFound(kind="capture", name=name, near=did_you_mean(name, configs))
        return configs[name]

    def progress(self, name: str) -> CaptureProgress:
        for row in self._latest(POSITIONS_TOPIC):
            if row["name"] == name:
                snapshot = {table: SnapshotProgress(**one) for table, one in orjson.loads(row["snapshot"]).items()}
                return CaptureProgress(
                    position=orjson.loads(row["position"]),
                    snapshot=snapshot,
                    rows=row["rows"],
                    at_us=round(row["at"].timestamp() * 1e6),
                )
        return CaptureProgress()

    def restart_snapshot(self, name: str, table: str, *, where: str | None = None) -> None:
        """Request a new snapshot of a table, or of its rows that meet a condition, beside the changes that go on.

        A capture that runs begins with it at once.
        """
        config, progress = self.config(name), self.progress(name)
        if table not in progress.snapshot:
            raise NotFound(kind="captured table", name=table, near=did_you_mean(table, progress.snapshot))
        if where is not None and config.kind not in ("postgresql", "postgres"):
            raise NotPossible(
                why=f"A snapshot of {config.kind} takes no condition",
                instead="Leave out `where`: the whole table is read",
            )
        self._put(replace(config, snapshot_requests={**config.snapshot_requests, table: where}))

    def take_requests(self, name: str, taken: Collection[str]) -> None:
        """Forget requests for snapshots that have begun."""
        config = self.config(name)
        left = {table: where for table, where in config.snapshot_requests.items() if table not in taken}
        if left != config.snapshot_requests:
            self._put(replace(config, snapshot_requests=left))

    def make_topics(self) -> None:
        for number, name, schema in ((1, DEFINITIONS_TOPIC, _DEFINITIONS), (2, POSITIONS_TOPIC, _POSITIONS)):
            self._log.create_internal(
                Topic(
                    name=name,
                    id=f"ca970{number:02}" + "0" * 25,
                    schema=schema,
                    created_us=self._log.clock.now_us(),
                    segment_bytes_max=8 * MIB,
                    key=("name",),
                    compact=True,
                )
            )

    def _put(self, config: CaptureConfig) -> None:
        self.make_topics()
        row = {"name": config.name, "definition": config.to_json(), "at": self._log.clock.now_us()}
        self._log.append(DEFINITIONS_TOPIC, [row])

    # Any: values of rows.
    def _latest(self, topic: str) -> list[dict[str, Any]]:
        if topic not in self._log.topics(internal=True):
            return []
        rows = {row["name"]: row for row in self._log.read(topic).rows()}
        return [row for row in rows.values() if not row["_tombstone"]]


# Any: a row.
def position_row(name: str, progress: CaptureProgress, at_us: int) -> dict[str, Any]:
    return {
        "name": name,
        "position": orjson.dumps(progress.position).decode(),
        "snapshot": orjson.dumps({table: one.to_json() for table, one in progress.snapshot.items()}).decode(),
        "rows": progress.rows,
        "at": at_us,
    }
