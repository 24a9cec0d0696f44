"""The syncs of a log: their definitions are rows of the internal topic `__syncs`, so that every process sees the same.

How far a sync has come is not here but in its target, where it changes together with the rows.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pyarrow as pa

from headwater.errors import ArgumentInvalid, NotFound, did_you_mean
from headwater.log.port import Log
from headwater.log.topic import Topic
from headwater.schema import parse_schema
from headwater.sync.config import SyncConfig
from headwater.sync.targets import open_target, target_kind
from headwater.units import MIB

DEFINITIONS_TOPIC = "__syncs"
_DEFINITIONS: pa.Schema = parse_schema("name string not null, definition string not null, at timestamp not null")


class SyncStore:
    """The definitions of the syncs of a log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def create(self, config: SyncConfig) -> SyncConfig:
        """Add a sync, after its target was found to be of a known kind with known options."""
        if config.name in self.configs():
            raise ArgumentInvalid(name="name", value=config.name, expected="a name that no other sync has")
        config = replace(config, url=target_kind(config.url).address(config.url))
        open_target(config).close()
        self._put(config)
        return config

    def set_paused(self, name: str, paused: bool) -> SyncConfig:
        config = replace(self.config(name), paused=paused)
        self._put(config)
        return config

    def remove(self, name: str) -> None:
        """Remove a sync, and its positions in the target. The tables of the target stay."""
        with contextlib.closing(open_target(self.config(name))) as target:
            target.forget()
        self._log.append(DEFINITIONS_TOPIC, [{"name": name, "_tombstone": True}])

    def configs(self) -> dict[str, SyncConfig]:
        if DEFINITIONS_TOPIC not in self._log.topics(internal=True):
            return {}
        rows = {row["name"]: row for row in self._log.read(DEFINITIONS_TOPIC).rows()}
        return {name: SyncConfig.from_json(row["definition"]) for name, row in rows.items() if not row["_tombstone"]}

    def config(self, name: str) -> SyncConfig:
        configs = self.configs()
        if name not in configs:
            raise NotFound(kind="sync", name=name, near=did_you_mean(name, configs))
        return configs[name]

    def _put(self, config: SyncConfig) -> None:
        self._log.create_internal(
            Topic(
                name=DEFINITIONS_TOPIC,
                id="5c9c001" + "0" * 25,
                schema=_DEFINITIONS,
                created_us=self._log.clock.now_us(),
                segment_bytes_max=8 * MIB,
                key=("name",),
                compact=True,
            )
        )
        row = {"name": config.name, "definition": config.to_json(), "at": self._log.clock.now_us()}
        self._log.append(DEFINITIONS_TOPIC, [row])
