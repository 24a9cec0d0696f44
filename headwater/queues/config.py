"""The settings of a queue, and the internal topic that stores them for all processes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypedDict, get_args

import orjson

from headwater.errors import ArgumentInvalid, did_you_mean
from headwater.log import Log, Topic
from headwater.queues.errors import QueueExists
from headwater.schema import parse_schema
from headwater.units import Duration, parse_seconds

Body = Literal["json", "bytes", "schema"]
Count = Literal["acquisitions", "failures"]
Overflow = Literal["block", "drop_oldest", "drop_newest", "reject"]
Expired = Literal["dead_letter", "drop"]

#: The topic with the settings of all queues and the bindings of all exchanges.
SETTINGS_TOPIC = "__queues"
PRIORITIES_MAX = 32
_CHOICES = {"body": Body, "count": Count, "overflow": Overflow, "expired": Expired}
_DURATIONS = ("lease", "ttl", "deduplicate")


class QueueSettings(TypedDict, total=False):
    """The settings of a queue as users write them."""

    body: Body
    priorities: int
    lease: Duration
    attempts_max: int | None
    count: Count
    ordered: bool
    single_active: bool
    prefetch: int | None
    length_max: int | None
    overflow: Overflow
    ttl: Duration | None
    expired: Expired
    deduplicate: Duration | None
    delete_acknowledged: bool


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """The settings of a queue. Durations may be written as "30 seconds"; they are stored as seconds.

    `count` is the rule of the delivery count: each acquisition counts, as in KIP-932, or failures only, as in RabbitMQ.
    A message that was delivered `attempts_max` times becomes a dead letter. With `ordered`, messages of one key are
    delivered one after the other, also through redelivery. `deduplicate` is the time in which an id is accepted once.
    With `delete_acknowledged` a message is deleted, segment by segment, once all groups are done with it.

    >>> QueueConfig(lease="1 minute", ordered=True).lease
    60.0
    >>> QueueConfig(overflow="explode")
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `overflow` is 'explode'. Give 'block', 'drop_oldest', 'drop_newest' or 'reject'.
    """

    body: Body = "json"
    priorities: int = 1
    lease: Duration = 30.0
    attempts_max: int | None = 5
    count: Count = "acquisitions"
    ordered: bool = False
    single_active: bool = False
    prefetch: int | None = None
    length_max: int | None = None
    overflow: Overflow = "block"
    ttl: Duration | None = None
    expired: Expired = "dead_letter"
    deduplicate: Duration | None = None
    delete_acknowledged: bool = False

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            *some, last = (repr(choice) for choice in get_args(kind))
            if getattr(self, name) not in get_args(kind):
                expected = f"{', '.join(some)} or {last}"
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected=expected)
        for name in _DURATIONS:
            value = getattr(self, name)
            if value is not None:
                seconds = parse_seconds(value, name=name)
                if seconds <= 0:
                    raise ArgumentInvalid(name=name, value=value, expected="more than 0")
                object.__setattr__(self, name, seconds)
        for name in ("attempts_max", "prefetch", "length_max"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ArgumentInvalid(name=name, value=value, expected="at least 1, or None for no limit")
        if not isinstance(self.priorities, int) or not 1 <= self.priorities <= PRIORITIES_MAX:
            raise ArgumentInvalid(name="priorities", value=self.priorities, expected=f"1 to {PRIORITIES_MAX}")

    @property
    def lease_us(self) -> int:
        return seconds_us(self.lease)

    def changed(self, settings: Mapping[str, Any]) -> QueueConfig:
        """These settings with some others."""
        names = [each.name for each in fields(self)]
        for name in settings:
            if name not in names:
                raise ArgumentInvalid(
                    name="setting", value=name, expected=f"one of {', '.join(names)}.{did_you_mean(name, names)}"
                )
        return replace(self, **settings)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_same(queue: str, config: QueueConfig, given: Mapping[str, Any]) -> None:
    """Raise if a queue that exists has other settings than the given ones."""
    other = [name for name, value in config.changed(given).to_json().items() if value != config.to_json()[name]]
    if other:
        raise QueueExists(queue=queue, why=f"with another value of {', '.join(other)}")


def seconds_us(value: Duration) -> int:
    """A duration in microseconds."""
    return round(parse_seconds(value) * 1_000_000)


class Settings:
    """The rows of the settings topic: JSON values by kind ("queue", "binding") and name. The last one of a name is valid."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._rows: dict[tuple[str, str], Any] = {}
        self._next = 0
        self._lock = threading.Lock()

    def has_changed(self) -> bool:
        """Whether there are rows that `all` has not returned yet."""
        return self._log.end_offsets(SETTINGS_TOPIC)[0] > self._next

    def all(self, kind: str) -> dict[str, Any]:
        """The values of a kind by name; each call reads the new rows first."""
        return self.together(kind)[0]

    def together(self, *kinds: str) -> list[dict[str, Any]]:
        """The values of some kinds at one moment."""
        with self._lock:
            if (self._next or self._log.topics(SETTINGS_TOPIC, internal=True)) and self.has_changed():
                for batch in self._log.read(SETTINGS_TOPIC, start={0: self._next}).batches():
                    for row in batch.rows():
                        self._rows[row["kind"], row["name"]] = orjson.loads(row["value"])
                    self._next = batch.offset_next
            return [
                {name: value for (each, name), value in self._rows.items() if each == kind and value is not None}
                for kind in kinds
            ]

    # Any: a JSON value; None deletes it.
    def set(self, kind: str, name: str, value: Any) -> None:
        if not self._log.topics(SETTINGS_TOPIC, internal=True):
            self._log.create_internal(
                Topic(
                    name=SETTINGS_TOPIC,
                    id="90e0e5" + "0" * 26,
                    schema=parse_schema("kind string not null, name string not null, value string not null"),
                    key=("kind", "name"),
                    compact=True,
                    segment_bytes_max=1024 * 1024,
                    created_us=self._log.clock.now_us(),
                )
            )
        self._log.append(SETTINGS_TOPIC, [{"kind": kind, "name": name, "value": orjson.dumps(value).decode()}])
