"""Triggers: when a window says what it knows, as values that can be put together.

They mean what they mean in Apache Beam. A trigger fires, and may thereby finish: a finished trigger fires no more, and
the window takes no more rows. Most triggers fire once and finish; `Repeatedly` begins again.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import ArgumentInvalid
from headwater.operators.windowed.spans import duration_us


@dataclass(frozen=True)
class Trigger:
    """What all triggers are."""

    def parts(self) -> tuple[Trigger, ...]:
        """The triggers that this one is made of."""
        return ()


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires once when at least so many rows have come since it began to count.

    >>> AfterCount(100)
    AfterCount(count=100)
    """

    count: int

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ArgumentInvalid(name="count", value=self.count, expected="a number of rows, at least 1")


@dataclass(frozen=True)
class AfterProcessingTime(Trigger):
    """Fires once when this much processing time has passed since the first row came that it saw.

    >>> AfterProcessingTime("5 seconds")
    AfterProcessingTime(delay='5 seconds')
    """

    delay: str | float

    def __post_init__(self) -> None:
        duration_us("delay", self.delay)

    @property
    def delay_us(self) -> int:
        return duration_us("delay", self.delay)


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires when the watermark reaches the end of the window; before it and after it as often as `early` and `late` do.

    Both are repeated. Without `late` the trigger has then finished.

    >>> AfterWatermark(early=every("5 seconds"), late=rows(1)).late
    AfterCount(count=1)
    """

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        for name, part in (("early", self.early), ("late", self.late)):
            if part is not None:
                check_trigger(name, part)

    def parts(self) -> tuple[Trigger, ...]:
        return tuple(part for part in (self.early, self.late) if part is not None)


@dataclass(frozen=True)
class WhenClosed(Trigger):
    """Never fires by itself: what there is to say is said when the window closes, once, and for good.

    Alone it gives final results only, as Kafka Streams' `suppress` does. As `late` it collects all late rows.
    """


@dataclass(frozen=True, init=False)
class _Several(Trigger):
    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        if len(triggers) < 2:
            raise ArgumentInvalid(name="triggers", value=triggers, expected="two triggers or more")
        for part in triggers:
            check_trigger("triggers", part)
        object.__setattr__(self, "triggers", triggers)

    def parts(self) -> tuple[Trigger, ...]:
        return self.triggers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.triggers))})"


class FirstOf(_Several):
    """Fires once, as soon as one of its triggers would.

    >>> FirstOf(rows(100), every("5 seconds"))
    FirstOf(AfterCount(count=100), AfterProcessingTime(delay='5 seconds'))
    """


class AllOf(_Several):
    """Fires once, as soon as all of its triggers would.

    >>> AllOf(rows(10), every("1 minute")).triggers[0]
    AfterCount(count=10)
    """


class EachOf(_Several):
    """Does what its triggers do, one after the other: when one has finished, the next begins.

    >>> len(EachOf(rows(1), rows(10), Repeatedly(rows(100))).triggers)
    3
    """


@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Does what its trigger does, and begins again when that has finished. It never finishes.

    >>> Repeatedly(rows(10))
    Repeatedly(trigger=AfterCount(count=10))
    """

    trigger: Trigger

    def __post_init__(self) -> None:
        check_trigger("trigger", self.trigger)

    def parts(self) -> tuple[Trigger, ...]:
        return (self.trigger,)


@dataclass(frozen=True)
class OrFinally(Trigger):
    """Does what its trigger does until that has finished or `until` fires, which is the last time.

    `until` goes on counting while the trigger fires.

    >>> OrFinally(Repeatedly(rows(10)), until=rows(100)).until
    AfterCount(count=100)
    """

    trigger: Trigger
    until: Trigger

    def __post_init__(self) -> None:
        check_trigger("trigger", self.trigger)
        check_trigger("until", self.until)

    def parts(self) -> tuple[Trigger, ...]:
        return (self.trigger, self.until)


def every(delay: str | float) -> AfterProcessingTime:
    """So much processing time after the first row that was not yet told of: `early=every("5 seconds")`.

    >>> every("5 seconds")
    AfterProcessingTime(delay='5 seconds')
    """
    return AfterProcessingTime(delay)


def rows(count: int) -> AfterCount:
    """When so many rows were not yet told of: `early=rows(100)`.

    >>> rows(100)
    AfterCount(count=100)
    """
    return AfterCount(count)


def check_trigger(name: str, value: object) -> None:
    """Refuse what is no trigger."""
    if not isinstance(value, Trigger):
        raise ArgumentInvalid(name=name, value=value, expected='a trigger, such as rows(100) or every("5 seconds")')
