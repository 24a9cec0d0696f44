"""A topic: its schema and its settings, as users write them, as values, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property
from typing import Any, TypedDict, get_args

import pyarrow as pa

from headwater.config import Codec, Config, Durability
from headwater.errors import ArgumentInvalid, UsageError
from headwater.schema import EventTime, schema_from_json, schema_to_json
from headwater.units import MIB, parse_bytes, parse_seconds

PARTITIONS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long rows are kept, and how many bytes of each partition; older rows are deleted.

    >>> Retention.of("7 days, 10 MiB")
    Retention(seconds_max=604800.0, bytes_max=10485760)
    >>> Retention.of("forever")
    Retention(seconds_max=None, bytes_max=None)
    """

    seconds_max: float | None = None
    bytes_max: int | None = None

    def __post_init__(self) -> None:
        for name in ("seconds_max", "bytes_max"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                expected = "more than 0, or None to keep everything"
                raise ArgumentInvalid(name=f"retention.{name}", value=limit, expected=expected)

    @classmethod
    def of(cls, value: Retention | timedelta | str) -> Retention:
        """Parse a retention: a time, a size, both with a comma between, or "forever"."""
        if isinstance(value, Retention):
            return value
        if isinstance(value, timedelta):
            return cls(seconds_max=value.total_seconds())
        if value.strip() == "forever":
            return cls()
        seconds: float | None = None
        size: int | None = None
        for part in value.split(","):
            try:
                seconds = parse_seconds(part.strip())
            except UsageError:
                try:
                    size = parse_bytes(part.strip())
                except UsageError:
                    expected = "a time such as '7 days', a size such as '10 GB', both with a comma, or 'forever'"
                    raise ArgumentInvalid(name="retention", value=value, expected=expected) from None
        return cls(seconds_max=seconds, bytes_max=size)


class TopicChanges(TypedDict, total=False):
    """The settings of a topic that can be altered, as users write them; None leaves a setting unchanged."""

    time: EventTime | str | None
    partitions: int | None
    retention: Retention | timedelta | str | None
    compact: bool | None
    tombstone_seconds_max: float | str | None
    codec: Codec | None
    segment_bytes_max: int | str | None
    segment_seconds_max: float | str | None
    archive: bool | None


class TopicSettings(TopicChanges, total=False):
    """The settings of a new topic, as users write them; None means the default of `Config` or `TopicConfig`."""

    key: str | Sequence[str] | None
    durability: Durability | None


#: Parsers of settings that users may write in another form.
_PARSERS: dict[str, Callable[[Any], Any]] = {
    "key": lambda value: (value,) if isinstance(value, str) else tuple(value),
    "time": EventTime.of,
    "retention": Retention.of,
    "tombstone_seconds_max": parse_seconds,
    "segment_bytes_max": parse_bytes,
    "segment_seconds_max": parse_seconds,
}


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """The settings of a topic. Every adapter, the server and the command line derive theirs from these fields.

    >>> TopicConfig.of({"partitions": 4, "retention": "7 days"}, Config()).retention.seconds_max
    604800.0
    """

    partitions: int = 1
    key: tuple[str, ...] = ()
    time: EventTime | None = None
    retention: Retention = field(default_factory=Retention)
    compact: bool = False
    tombstone_seconds_max: float = 86_400.0
    durability: Durability = "fsync"
    codec: Codec = "none"
    segment_bytes_max: int = 64 * MIB
    segment_seconds_max: float = 7 * 86_400.0
    archive: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.partitions, int) or not 1 <= self.partitions <= PARTITIONS_MAX:
            raise ArgumentInvalid(name="partitions", value=self.partitions, expected=f"1 to {PARTITIONS_MAX}")
        for setting, allowed in (("durability", get_args(Durability)), ("codec", get_args(Codec))):
            value = getattr(self, setting)
            if value not in allowed:
                raise ArgumentInvalid(name=setting, value=value, expected=", ".join(map(repr, allowed)))
        for setting in ("segment_bytes_max", "segment_seconds_max"):
            if getattr(self, setting) <= 0:
                raise ArgumentInvalid(name=setting, value=getattr(self, setting), expected="more than 0")
        if self.compact and not self.key:
            expected = "a key as well: compaction keeps the last row of each key"
            raise ArgumentInvalid(name="compact", value=True, expected=expected)

    @classmethod
    def of(cls, settings: TopicSettings, config: Config) -> TopicConfig:
        """Build the configuration of a new topic, with defaults from `config`."""
        defaults: dict[str, Any] = {
            name: getattr(config, name) for name in ("partitions", "durability", "codec", "segment_bytes_max")
        }
        defaults["retention"] = Retention(
            seconds_max=config.retention_seconds_max, bytes_max=config.retention_bytes_max
        )
        return TopicConfig(**defaults | parsed_settings(settings))

    @cached_property  # the writer asks at each append
    def time_column(self) -> str | None:
        """The column of the event time, if the topic has one."""
        return None if self.time is None else self.time.column

    def settings_to_json(self) -> dict[str, Any]:
        """The settings as JSON values, for files, requests and output."""
        return {name: to_json(getattr(self, name)) for name in TOPIC_SETTINGS}


TOPIC_SETTINGS = tuple(each.name for each in fields(TopicConfig))


def parsed_settings(settings: TopicSettings | TopicChanges) -> dict[str, Any]:
    """Parse settings as users write them into values of `TopicConfig`, without those that are None."""
    unknown = settings.keys() - set(TOPIC_SETTINGS)
    if unknown:
        raise TypeError(f"a topic has no setting {', '.join(sorted(unknown))}; it has {', '.join(TOPIC_SETTINGS)}")
    return {
        name: _PARSERS[name](value) if name in _PARSERS else value
        for name, value in settings.items()
        if value is not None
    }


def settings_to_json(settings: TopicSettings | TopicChanges) -> dict[str, Any]:
    """Parse settings as users write them into JSON values, without those that are None."""
    return {name: to_json(value) for name, value in parsed_settings(settings).items()}


def settings_from_json(body: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the settings in JSON; a missing one has its default."""
    given = {name: body[name] for name in TOPIC_SETTINGS if name in body}
    time = None if given.get("time") is None else EventTime.of(given["time"])
    return given | {"key": tuple(body["key"]), "time": time, "retention": Retention(**body["retention"])}


def to_json(value: Any) -> Any:
    """A setting as a JSON value."""
    if isinstance(value, Retention):
        return {"seconds_max": value.seconds_max, "bytes_max": value.bytes_max}
    if isinstance(value, EventTime):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, kw_only=True)
class Topic(TopicConfig):
    """A topic: its schema and settings."""

    name: str
    id: str
    schema: pa.Schema
    schema_version: int = 1
    schemaless: bool = False
    created_us: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "id": self.id,
            "schema": schema_to_json(self.schema),
            "schema_version": self.schema_version,
            "schemaless": self.schemaless,
            **self.settings_to_json(),
            "created_us": self.created_us,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Topic:
        return cls(
            name=body["name"],
            id=body["id"],
            schema=schema_from_json(body["schema"]),
            schema_version=body["schema_version"],
            schemaless=body["schemaless"],
            created_us=body["created_us"],
            **settings_from_json(body),
        )

    def _repr_html_(self) -> str:
        from headwater.log.cards import topic_html

        return topic_html(self)
