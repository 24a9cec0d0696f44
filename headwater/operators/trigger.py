"""Triggers: when a window emits a pane, as values that can be combined.

They mean what they mean in Apache Beam. A trigger fires, and may thereby finish: a finished trigger fires no more, and
the window takes no more rows. Most triggers fire once and finish; `Repeatedly` begins again.

A trigger runs as a `Machine`, for many windows at once: what each window's trigger remembers is a column. A trigger is a
tree. Of every trigger in it one bit says whether it has finished; a trigger that counts has a column for its count, one
that waits a column for the time until which it waits. `ready` says whether it would fire, `fire` tells it that it did,
and `rows` that rows have come. The rules are those of Apache Beam for windows that do not merge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.engine.aggregation import Int64s
from headwater.engine.event_time import EVER
from headwater.engine.window_spans import duration_us
from headwater.errors import ArgumentInvalid
from headwater.units import Duration

# ruff: noqa: ARG002 - all machines are asked the same questions, and not all need every part of them


Mask = npt.NDArray[np.bool_]
FINISHED = "_finished"
#: Bits of a column.
TRIGGERS_MAX = 62
#: What the triggers of windows remember, by column.
Memory = dict[str, Int64s]


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

    With `aligned`, it fires at the next full multiple of the delay on the clock instead (in UTC, from 1970 on): every
    window at the same moments, however its rows came.

    >>> AfterProcessingTime("5 seconds")
    AfterProcessingTime(delay='5 seconds', aligned=False)
    """

    delay: Duration
    aligned: bool = False

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
    FirstOf(AfterCount(count=100), AfterProcessingTime(delay='5 seconds', aligned=False))
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


def every(delay: Duration, *, aligned: bool = False) -> AfterProcessingTime:
    """So much processing time after the first row that was not yet told of: `early=every("5 seconds")`.

    With `aligned`, at the full multiples of it: `every("1 minute", aligned=True)` at the full minutes.

    >>> every("1 minute", aligned=True)
    AfterProcessingTime(delay='1 minute', aligned=True)
    """
    return AfterProcessingTime(delay, aligned)


def rows(count: int) -> AfterCount:
    """When so many rows were not yet told of: `early=rows(100)`.

    >>> rows(100)
    AfterCount(count=100)
    """
    return AfterCount(count)


def check_trigger(name: str, value: object) -> None:
    """Raise unless the value is a trigger."""
    if not isinstance(value, Trigger):
        raise ArgumentInvalid(name=name, value=value, expected='a trigger, such as rows(100) or every("5 seconds")')


@dataclass(frozen=True)
class Moment:
    """What time it is for each window: whether the watermark has reached its end, and the processing time of all."""

    ended: Mask
    now_us: int | None


def any_of(masks: list[Mask]) -> Mask:
    found: Mask = np.logical_or.reduce(masks)
    return found


def all_of(masks: list[Mask]) -> Mask:
    found: Mask = np.logical_and.reduce(masks)
    return found


class Machine(ABC):
    """A trigger of many windows. `number` is its place in the tree; the masks say which windows are meant."""

    #: The column that it needs beside its bit, and what stands there at the beginning.
    column: str | None = None
    initial = 0

    def __init__(self, number: int, parts: tuple[Machine, ...] = ()) -> None:
        self.number = number
        self.parts = parts

    def rows(self, memory: Memory, chosen: Mask, counts: Int64s, moment: Moment) -> None:
        """Rows have come."""
        for part in self.parts:
            part.rows(memory, chosen, counts, moment)

    @abstractmethod
    def ready(self, memory: Memory, moment: Moment) -> Mask:
        """Which windows it would fire for."""

    @abstractmethod
    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        """It has fired."""

    def done(self, memory: Memory) -> Mask:
        """For which windows it has finished."""
        found: Mask = (memory[FINISHED] >> self.number) & 1 == 1
        return found

    def finish(self, memory: Memory, chosen: Mask) -> None:
        memory[FINISHED][chosen] |= 1 << self.number

    def clear(self, memory: Memory, chosen: Mask) -> None:
        """Forget the rows that have come."""
        if self.column is not None:
            memory[self.column][chosen] = self.initial
        for part in self.parts:
            part.clear(memory, chosen)

    def reset(self, memory: Memory, chosen: Mask) -> None:
        """Begin again."""
        self.clear(memory, chosen)
        for machine in self.everything():
            memory[FINISHED][chosen] &= ~(1 << machine.number)

    def everything(self) -> list[Machine]:
        return [self, *(machine for part in self.parts for machine in part.everything())]

    def columns(self) -> dict[str, int]:
        """What windows remember for it and its parts, and what that is at the beginning."""
        own = {machine.column: machine.initial for machine in self.everything() if machine.column is not None}
        return {FINISHED: 0, **own}

    def waits(self) -> list[str]:
        """The columns that are times to wait for."""
        return [one.column for one in self.everything() if isinstance(one, _Delay) and one.column is not None]


class _Count(Machine):
    def __init__(self, number: int, count: int) -> None:
        super().__init__(number)
        self.column = f"_count_{number}"
        self.count = count

    def rows(self, memory: Memory, chosen: Mask, counts: Int64s, moment: Moment) -> None:
        memory[f"_count_{self.number}"][chosen] += counts[chosen]

    def ready(self, memory: Memory, moment: Moment) -> Mask:
        found: Mask = memory[f"_count_{self.number}"] >= self.count
        return found

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        self.clear(memory, chosen)
        self.finish(memory, chosen)


class _Delay(Machine):
    initial = EVER

    def __init__(self, number: int, delay_us: int, *, aligned: bool) -> None:
        super().__init__(number)
        self.column = f"_until_{number}"
        self.delay_us = delay_us
        self.aligned = aligned

    def rows(self, memory: Memory, chosen: Mask, counts: Int64s, moment: Moment) -> None:
        until = memory[f"_until_{self.number}"]
        if moment.now_us is not None:
            passed = moment.now_us % self.delay_us if self.aligned else 0
            until[chosen & (until == EVER)] = moment.now_us - passed + self.delay_us

    def ready(self, memory: Memory, moment: Moment) -> Mask:
        until = memory[f"_until_{self.number}"]
        if moment.now_us is None:
            return np.zeros(len(until), bool)
        found: Mask = until <= min(moment.now_us, EVER - 1)
        return found

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        self.clear(memory, chosen)
        self.finish(memory, chosen)


class _Never(Machine):
    def ready(self, memory: Memory, moment: Moment) -> Mask:
        return np.zeros(len(moment.ended), bool)

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        pass


class _Watermark(Machine):
    """The first part is repeated before the end of the window, the second, if there is one, after it.

    The first never finishes by itself: its bit says that the window's end has been told.
    """

    def rows(self, memory: Memory, chosen: Mask, counts: Int64s, moment: Moment) -> None:
        told = self.parts[0].done(memory)
        self.parts[0].rows(memory, chosen & ~told, counts, moment)
        for late in self.parts[1:]:
            late.rows(memory, chosen & told, counts, moment)

    def ready(self, memory: Memory, moment: Moment) -> Mask:
        early, *late = self.parts
        after = late[0].ready(memory, moment) if late else np.zeros(len(moment.ended), bool)
        return np.where(early.done(memory), after, early.ready(memory, moment) | moment.ended)

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        early, *late = self.parts
        told = early.done(memory)
        early.fire(memory, chosen & ~told & ~moment.ended, moment)
        for part in late:
            part.fire(memory, chosen & told, moment)
        now = chosen & ~told & moment.ended
        early.reset(memory, now)
        early.finish(memory, now)
        if not late:
            self.finish(memory, chosen & early.done(memory))


class _First(Machine):
    def ready(self, memory: Memory, moment: Moment) -> Mask:
        return any_of([part.ready(memory, moment) for part in self.parts])

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        self.clear(memory, chosen)  # the rows that its parts were told of are gone
        self.finish(memory, chosen)


class _All(Machine):
    def ready(self, memory: Memory, moment: Moment) -> Mask:
        return all_of([part.ready(memory, moment) for part in self.parts])

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        self.clear(memory, chosen)
        self.finish(memory, chosen)


class _Each(Machine):
    def _turns(self, memory: Memory) -> list[Mask]:
        """For each part the windows in which it is its turn."""
        turns, before = [], np.ones(len(memory[FINISHED]), bool)
        for part in self.parts:
            done = part.done(memory)
            turns.append(before & ~done)
            before = before & done
        return turns

    def rows(self, memory: Memory, chosen: Mask, counts: Int64s, moment: Moment) -> None:
        for part, turn in zip(self.parts, self._turns(memory), strict=True):
            part.rows(memory, chosen & turn, counts, moment)

    def ready(self, memory: Memory, moment: Moment) -> Mask:
        turns = zip(self.parts, self._turns(memory), strict=True)
        return any_of([turn & part.ready(memory, moment) for part, turn in turns])

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        for part, turn in zip(self.parts, self._turns(memory), strict=True):
            part.fire(memory, chosen & turn, moment)
        self.finish(memory, chosen & all_of([part.done(memory) for part in self.parts]))


class _Repeat(Machine):
    def ready(self, memory: Memory, moment: Moment) -> Mask:
        return self.parts[0].ready(memory, moment)

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        self.parts[0].fire(memory, chosen, moment)
        self.parts[0].reset(memory, chosen & self.parts[0].done(memory))


class _Finally(Machine):
    def ready(self, memory: Memory, moment: Moment) -> Mask:
        return self.parts[0].ready(memory, moment) | self.parts[1].ready(memory, moment)

    def fire(self, memory: Memory, chosen: Mask, moment: Moment) -> None:
        actual, until = self.parts
        last = until.ready(memory, moment)
        actual.fire(memory, chosen & ~last, moment)  # `until` is not cleared: it counts across firings
        over = chosen & (last | actual.done(memory))
        self.clear(memory, over)
        self.finish(memory, over)


_COMPOSITES: dict[type[Trigger], Callable[[int, tuple[Machine, ...]], Machine]] = {
    FirstOf: _First,
    AllOf: _All,
    EachOf: _Each,
    Repeatedly: _Repeat,
    OrFinally: _Finally,
}


def machine_of(trigger: Trigger) -> Machine:
    """The machine of a trigger."""
    made = _made(trigger, iter(range(10**9)).__next__)
    if len(made.everything()) > TRIGGERS_MAX:
        raise ArgumentInvalid(name="trigger", value=trigger, expected=f"at most {TRIGGERS_MAX} triggers in one")
    return made


def _made(trigger: Trigger, number: Callable[[], int]) -> Machine:
    own = number()
    match trigger:
        case AfterCount():
            return _Count(own, trigger.count)
        case AfterProcessingTime():
            return _Delay(own, trigger.delay_us, aligned=trigger.aligned)
        case WhenClosed():
            return _Never(own)
        case AfterWatermark():
            early = _made(Repeatedly(trigger.early or WhenClosed()), number)
            late = () if trigger.late is None else (_made(Repeatedly(trigger.late), number),)
            return _Watermark(own, (early, *late))
    composite = _COMPOSITES.get(type(trigger))
    if composite is None:
        raise ArgumentInvalid(name="trigger", value=trigger, expected="one of Headwater's triggers")
    return composite(own, tuple(_made(part, number) for part in trigger.parts()))
