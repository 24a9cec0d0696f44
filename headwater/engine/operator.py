"""What operators over event time share: where they find the time of their rows, and which side outputs are on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from headwater.engine.errors import EventTimeUnknown
from headwater.engine.event_time import WatermarkStrategy
from headwater.engine.spark_plan import default_name
from headwater.engine.time_metadata import carried_times
from headwater.errors import ArgumentInvalid
from headwater.schema.event_time import EventTime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_side_outputs: ContextVar[set[str] | None] = ContextVar("side_outputs", default=None)


@dataclass(frozen=True, kw_only=True)
class EventTimeOperator:
    """An operator over event time: `time` is that of the rows unless it is given, as a column or an `EventTime`."""

    time: EventTime | str | None = None
    partitions: int | None = None
    name: str | None = None

    #: Whether the operator can go by a watermark for each key.
    per_key: ClassVar[bool] = False

    @property
    def called(self) -> str:
        """The name of the operator for its state, and for people."""
        return self.name or default_name(self)

    @property
    def event_time(self) -> EventTime:
        """The event time, of an operator that was given one or was resolved with its rows."""
        if self.time is None:
            raise EventTimeUnknown(operator=self.name or type(self).__name__, why="it was given none")
        return self.time if isinstance(self.time, EventTime) else EventTime(self.time)

    def strategy(self) -> WatermarkStrategy:
        return WatermarkStrategy.of(self.event_time)

    def resolved(self, rows: DataFrame) -> Self:
        """This operator with what it takes from its surroundings: the event time of its rows, and the app's side outputs.

        Its name stays that of the operator as it was written: a new `delay` of the topic must not lose its state.
        """
        time = event_time_of(rows, self.time, operator=type(self).__name__)
        if time.scope == "key" and not self.per_key:
            expected = f'"partition" or "input" for {type(self).__name__}: `time=EventTime({time.column!r}, …)`'
            raise ArgumentInvalid(name="scope", value="key", expected=expected)
        changes: dict[str, Any] = {"time": time}  # Any: fields of the operator
        if claims("late") and getattr(self, "late", None) == "drop":
            changes["late"] = "side_output"
        return replace(self, name=self.called, **changes)


@contextmanager
def wanted_side_outputs(names: Iterable[str]) -> Iterator[None]:
    """Turn side outputs on in operators that are applied inside of the block: each in the first that has it."""
    token = _side_outputs.set(set(names))
    try:
        yield
    finally:
        _side_outputs.reset(token)


def is_wanted(side_output: str) -> bool:
    """Whether a side output is wanted that no operator has claimed yet."""
    return side_output in (_side_outputs.get() or ())


def claims(side_output: str) -> bool:
    """Claim a side output that is wanted; False if it is not, or another operator has it."""
    wanted = _side_outputs.get()
    if wanted is None or not is_wanted(side_output):
        return False
    wanted.remove(side_output)
    return True


def event_time_of(rows: DataFrame, time: EventTime | str | None, *, operator: str) -> EventTime:
    """Return the event time of rows: the one that is given, or the one that their columns carry.

    A column that is given by its name keeps the settings that it carries.
    """
    if isinstance(time, EventTime):
        return time
    carried = carried_times(rows.schema)
    if time is not None:
        return carried.get(time) or EventTime(time)
    if len(carried) == 1:
        return next(iter(carried.values()))
    why = f"several columns are event time ({', '.join(carried)})" if carried else "none of its columns is event time"
    raise EventTimeUnknown(operator=operator, why=why)
