"""The topics of a sync as tables of its target."""

from __future__ import annotations

from headwater.log.dead_letters import SUFFIX
from headwater.log.port import Log
from headwater.sync.changes import table_columns
from headwater.sync.config import SyncConfig
from headwater.sync.errors import SyncInvalid
from headwater.sync.port import TargetTable


def topic_tables(log: Log, config: SyncConfig) -> list[TargetTable]:
    """The topics of a sync as tables. A topic without a key that only a pattern names is left out."""
    names: dict[str, None] = {}
    for pattern in config.topics:
        found = [name for name in log.topics(pattern) if not name.endswith(SUFFIX)]
        if not found and not any(letter in pattern for letter in "*?["):
            log.topic(pattern)  # raises with the most similar name
        names |= dict.fromkeys(found)
    tables: dict[str, TargetTable] = {}
    for name in names:
        topic = log.topic(name)
        if not topic.key:
            if name in config.topics:
                raise SyncInvalid(
                    sync=config.name,
                    why=f"topic {name!r} has no key, and only a key says which row of the target a row replaces",
                    instead="Name topics with a key",
                )
            continue
        table = TargetTable(
            topic=name, topic_id=topic.id, name=config.table_of(name), columns=table_columns(topic), key=topic.key
        )
        if table.name in tables:
            raise SyncInvalid(
                sync=config.name,
                why=f"topics {tables[table.name].topic!r} and {name!r} would both be table {table.name!r}",
                instead="Give `--table '{topic}'`, or fewer topics",
            )
        tables[table.name] = table
    return list(tables.values())
