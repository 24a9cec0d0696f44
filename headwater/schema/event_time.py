"""Event time: the column of a topic that says when something happened, and how the watermark follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from typing import Any, Literal, get_args

from headwater.errors import ArgumentInvalid
from headwater.units import DAY, Duration, format_seconds, parse_seconds

#: Whose latest time makes the watermark: the slowest partition's, the latest of all rows, or each key's own.
Scope = Literal["partition", "input", "key"]
_DURATIONS = ("delay", "idle_timeout", "future_max", "key_idle_timeout")


@dataclass(frozen=True)
class EventTime:
    """The event time of a topic, declared once where the topic is made; operators find it with the rows.

    The watermark is the latest time of `column` less `delay`, the bound on how far rows come out of order. A partition
    without rows for `idle_timeout` no longer holds the watermark back. A row further in the future than `future_max`
    does not move it: one wrong clock must not close every window. `scope` says whose latest time counts; with `"key"`,
    each key has its own watermark, and `key_idle_timeout` bounds how far a silent key stays behind all others.

    >>> EventTime("at", delay="30 seconds", idle_timeout="1 minute")
    EventTime('at', delay=30.0, idle_timeout=60.0)
    >>> EventTime.of("at, delay=30 seconds") == EventTime("at", delay="30 seconds")
    True
    """

    column: str
    _: KW_ONLY
    delay: Duration = 0
    idle_timeout: Duration | None = None
    future_max: Duration | None = DAY
    scope: Scope = "partition"
    key_idle_timeout: Duration | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ArgumentInvalid(name="time", value=self.column, expected="the name of a timestamp column")
        for name in _DURATIONS:
            value = getattr(self, name)
            if value is not None:  # in seconds: "1 minute" and 60 are the same
                object.__setattr__(self, name, parse_seconds(value, name=name))
        if self.scope not in get_args(Scope):
            raise ArgumentInvalid(name="scope", value=self.scope, expected='"partition", "input" or "key"')
        if self.key_idle_timeout is not None and self.scope != "key":
            raise ArgumentInvalid(
                name="key_idle_timeout", value=self.key_idle_timeout, expected='`scope="key"` beside it'
            )

    def __repr__(self) -> str:
        return f"EventTime({', '.join([repr(self.column), *(f'{name}={value!r}' for name, value in self._given().items())])})"

    def __str__(self) -> str:
        return ", ".join([self.column, *(f"{name}={_text(value)}" for name, value in self._given().items())])

    @classmethod
    def of(cls, value: EventTime | str | Mapping[str, Any]) -> EventTime:
        """Parse an event time: a value of this class, its JSON, a column, or text such as `at, delay=30 seconds`."""
        if isinstance(value, EventTime):
            return value
        if isinstance(value, Mapping):
            return cls(**value)
        if not isinstance(value, str):
            raise ArgumentInvalid(name="time", value=value, expected='a column such as "at", or `EventTime("at", …)`')
        column, *settings = (part.strip() for part in value.split(","))
        given: dict[str, Any] = {}
        for setting in settings:
            name, is_setting, text = (part.strip() for part in setting.partition("="))
            if not is_setting or name not in _SETTINGS:
                expected = f"a column, then settings such as delay=30 seconds; they are {', '.join(_SETTINGS)}"
                raise ArgumentInvalid(name="time", value=value, expected=expected)
            given[name] = None if text == "none" else text
        return cls(column, **given)

    def to_json(self) -> str | dict[str, Any]:
        """Return the column alone where all else is as by default, else an object; durations are seconds."""
        return {"column": self.column, **self._given()} if self._given() else self.column

    def later(self, seconds: float) -> EventTime:
        """The event time of rows that an operator held back for so long."""
        return replace(self, delay=(self.seconds("delay") or 0.0) + seconds)

    def seconds(self, setting: str) -> float | None:
        """Return a duration in seconds, or None where there is none."""
        value = getattr(self, setting)
        return None if value is None else parse_seconds(value, name=setting)

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name, default in _SETTINGS.items() if getattr(self, name) != default}


_SETTINGS = {each.name: each.default for each in fields(EventTime) if each.default is not MISSING}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if not isinstance(value, float):
        return str(value)
    short = format_seconds(value)
    return short if parse_seconds(short) == value else f"{value} s"
