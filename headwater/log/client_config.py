"""The settings of producers and consumers: as users write them, and as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from headwater.config import Config
from headwater.errors import ArgumentInvalid
from headwater.units import MIB

if TYPE_CHECKING:
    from headwater.log.clients.producer_buffer import Limit
    from headwater.log.port import Place

OnExpired = Literal["fail", "skip"]
Overload = Literal["block", "buffer", "drop"]
Start = Literal["earliest", "latest"] | int | datetime | Mapping[int, int]

#: Anything that can be converted to rows: mappings, dataclasses, a pandas or polars frame, an Arrow table or batch.
Rows = Any


class ProducerSettings(TypedDict, total=False):
    """The settings of a producer as users write them; None means the default of `Config` or `ProducerConfig`."""

    name: str | None
    linger_seconds: float | None
    batch_rows_max: int | None
    batch_bytes_max: int | None
    limit: Limit | None
    overload: Overload
    wait_seconds_max: float | None
    buffer_bytes_max: int
    on_drop: Callable[[str, Rows], None] | None


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer.

    `overload` is what `send` does at the limit: wait (`block`), collect rows in memory up to `buffer_bytes_max`
    (`buffer`), or drop them and call `on_drop` (`drop`).
    """

    name: str | None = None
    linger_seconds: float
    batch_rows_max: int
    batch_bytes_max: int
    limit: Limit | None = None
    overload: Overload = "block"
    wait_seconds_max: float | None = None
    buffer_bytes_max: int = 64 * MIB
    on_drop: Callable[[str, Rows], None] | None = None

    def __post_init__(self) -> None:
        if self.overload not in get_args(Overload):
            raise ArgumentInvalid(name="overload", value=self.overload, expected="'block', 'buffer' or 'drop'")
        for name in ("batch_rows_max", "batch_bytes_max", "buffer_bytes_max"):
            if getattr(self, name) < 1:
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected="at least 1")
        if self.linger_seconds < 0:
            raise ArgumentInvalid(name="linger_seconds", value=self.linger_seconds, expected="0 or more")

    @classmethod
    def of(cls, settings: ProducerSettings, config: Config) -> ProducerConfig:
        """Build the configuration of a producer, with defaults from `config`."""
        names = ("linger_seconds", "batch_rows_max", "batch_bytes_max")
        return cls(**{name: getattr(config, name) for name in names} | _given(settings))


class ConsumerSettings(TypedDict, total=False):
    """The settings of a consumer as users write them; None means the default of `Config` or `ConsumerConfig`."""

    member: str | None
    start: Start
    columns: Sequence[str] | None
    auto_commit: bool
    auto_commit_seconds: float
    rows_max: int | None
    session_seconds_max: float | None
    heartbeat_seconds: float | None
    heartbeat_in_background: bool
    poll_seconds_max: float
    on_expired: OnExpired
    on_revoke: Callable[[list[Place]], None] | None


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """The settings of a consumer.

    A poll returns at most `rows_max` rows. A member of a group that has not polled for `poll_seconds_max` sends no more
    heartbeats. If retention has deleted the next row, a poll fails or skips the gap (`on_expired`).
    """

    member: str | None = None
    start: Start = "earliest"
    columns: Sequence[str] | None = None
    auto_commit: bool = True
    auto_commit_seconds: float = 0.0
    rows_max: int
    session_seconds_max: float
    heartbeat_seconds: float
    heartbeat_in_background: bool = True
    poll_seconds_max: float = 300.0
    on_expired: OnExpired = "fail"
    on_revoke: Callable[[list[Place]], None] | None = None

    def __post_init__(self) -> None:
        if self.rows_max < 1:
            raise ArgumentInvalid(name="rows_max", value=self.rows_max, expected="at least 1")
        if self.on_expired not in get_args(OnExpired):
            raise ArgumentInvalid(name="on_expired", value=self.on_expired, expected="'fail' or 'skip'")

    @classmethod
    def of(cls, settings: ConsumerSettings, config: Config) -> ConsumerConfig:
        """Build the configuration of a consumer, with defaults from `config`."""
        defaults: dict[str, Any] = {
            "rows_max": config.batch_rows_max,
            "session_seconds_max": config.session_seconds_max,
            "heartbeat_seconds": config.heartbeat_seconds,
        }
        return cls(**defaults | _given(settings))


def _given(settings: ProducerSettings | ConsumerSettings) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
