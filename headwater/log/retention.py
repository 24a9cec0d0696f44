"""How much of a topic to keep, as people write it: `"7 days"`, `"10 GB"`, `"7 days, 10 GB"` or a `Retention`."""

from __future__ import annotations

from datetime import timedelta

from headwater.config import Config
from headwater.errors import ArgumentInvalid, UsageError
from headwater.log.port import Retention
from headwater.units import parse_bytes, parse_seconds


def parse_retention(value: Retention | timedelta | str | None, config: Config | None = None) -> Retention:
    """What a person means by a retention.

    >>> parse_retention("7 days, 10 MiB")
    Retention(seconds_max=604800.0, bytes_max=10485760)
    >>> parse_retention("forever")
    Retention(seconds_max=None, bytes_max=None)
    """
    if value is None:
        if config is None:
            return Retention()
        return Retention(seconds_max=config.retention_seconds_max, bytes_max=config.retention_bytes_max)
    if isinstance(value, Retention):
        return _checked(value)
    if isinstance(value, timedelta):
        return _checked(Retention(seconds_max=value.total_seconds()))
    if value.strip() == "forever":
        return Retention()
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
    return _checked(Retention(seconds_max=seconds, bytes_max=size))


def _checked(retention: Retention) -> Retention:
    for name, limit in (("seconds_max", retention.seconds_max), ("bytes_max", retention.bytes_max)):
        if limit is not None and limit <= 0:
            raise ArgumentInvalid(
                name=f"retention.{name}", value=limit, expected="more than 0, or None to keep everything"
            )
    return retention
