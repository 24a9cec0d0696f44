"""Triggers against a machine for one window and one row at a time, written from Beam's documentation of each trigger."""

# ruff: noqa: ARG002 - all models are asked the same questions

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import Hopping, agg
from headwater.operators.panes import Panes
from headwater.operators.trigger import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    EachOf,
    FirstOf,
    OrFinally,
    Repeatedly,
    Trigger,
    WhenClosed,
    every,
    rows,
)
from tests.laws import costly
from tests.operators.batches import streamed, with_arguments
from tests.operators.test_windows import SECOND, Row, table

COMPUTE = {"total": agg.sum("amount"), "n": agg.count(), "all": agg.collect_list("amount")}

# -- the model: one trigger of one window, told of one row at a time --------------------------------------------------


class Model:
    """What Beam says of all triggers: told of rows, asked whether they fire, told that they did."""

    finished = False

    def row(self, now: int) -> None:
        raise NotImplementedError

    def fires(self, now: int, ended: bool) -> bool:
        raise NotImplementedError

    def fired(self, now: int, ended: bool) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """The pane that was waiting has gone."""

    def alarms(self) -> Iterator[int]:
        """The times at which to ask again."""
        yield from ()


class Count(Model):
    """Fires when the pane has at least so many rows."""

    def __init__(self, trigger: AfterCount) -> None:
        self.wanted = trigger.count
        self.seen = 0

    def row(self, now: int) -> None:
        self.seen += 1

    def fires(self, now: int, ended: bool) -> bool:
        return self.seen >= self.wanted

    def fired(self, now: int, ended: bool) -> None:
        self.forget()
        self.finished = True

    def forget(self) -> None:
        self.seen = 0


class Delay(Model):
    """Fires when so much time has passed since the first row of the pane, or at the next moment that it divides."""

    def __init__(self, trigger: AfterProcessingTime) -> None:
        self.delay = int(str(trigger.delay))
        self.aligned = trigger.aligned
        self.until: int | None = None

    def row(self, now: int) -> None:
        if self.until is None:
            later = range(now + 1, now + self.delay + 1)
            self.until = next(at for at in later if at % self.delay == 0) if self.aligned else later[-1]

    def fires(self, now: int, ended: bool) -> bool:
        return self.until is not None and now >= self.until

    def fired(self, now: int, ended: bool) -> None:
        self.forget()
        self.finished = True

    def forget(self) -> None:
        self.until = None

    def alarms(self) -> Iterator[int]:
        if self.until is not None:
            yield self.until


class Never(Model):
    def row(self, now: int) -> None:
        pass

    def fires(self, now: int, ended: bool) -> bool:
        return False


class Parts(Model):
    """A trigger that is made of others: all of them see all rows, unless it says otherwise."""

    def __init__(self, *triggers: Trigger) -> None:
        self.parts = [model_of(trigger) for trigger in triggers]

    def row(self, now: int) -> None:
        for part in self.parts:
            part.row(now)

    def forget(self) -> None:
        for part in self.parts:
            part.forget()

    def alarms(self) -> Iterator[int]:
        for part in self.parts:
            yield from part.alarms()


class First(Parts):
    def fires(self, now: int, ended: bool) -> bool:
        return any(part.fires(now, ended) for part in self.parts)

    def fired(self, now: int, ended: bool) -> None:
        self.finished = True
        self.forget()


class All(Parts):
    def fires(self, now: int, ended: bool) -> bool:
        return all(part.fires(now, ended) for part in self.parts)

    def fired(self, now: int, ended: bool) -> None:
        self.finished = True
        self.forget()


class Each(Parts):
    """Only one trigger is at work at a time."""

    def turn(self) -> Model:
        return next(part for part in self.parts if not part.finished)

    def row(self, now: int) -> None:
        self.turn().row(now)

    def fires(self, now: int, ended: bool) -> bool:
        return self.turn().fires(now, ended)

    def fired(self, now: int, ended: bool) -> None:
        self.turn().fired(now, ended)
        self.finished = all(part.finished for part in self.parts)


class Again(Parts):
    """An endless sequence of the same trigger."""

    def __init__(self, trigger: Trigger) -> None:
        super().__init__(trigger)
        self.trigger = trigger

    def fires(self, now: int, ended: bool) -> bool:
        return self.parts[0].fires(now, ended)

    def fired(self, now: int, ended: bool) -> None:
        self.parts[0].fired(now, ended)
        if self.parts[0].finished:
            self.parts = [model_of(self.trigger)]


class Until(Parts):
    """The first trigger, until it has finished or the second fires."""

    def fires(self, now: int, ended: bool) -> bool:
        return any(part.fires(now, ended) for part in self.parts)

    def fired(self, now: int, ended: bool) -> None:
        actual, until = self.parts
        if until.fires(now, ended):
            self.finished = True
        else:
            actual.fired(now, ended)
            self.finished = actual.finished
        if self.finished:
            self.forget()


class Watermark(Model):
    """At the end of the window; `early` is repeated before it, and `late` after it."""

    def __init__(self, trigger: AfterWatermark) -> None:
        self.current: Model = Again(trigger.early) if trigger.early is not None else Never()
        self.late = trigger.late
        self.told = False

    def row(self, now: int) -> None:
        self.current.row(now)

    def fires(self, now: int, ended: bool) -> bool:
        return self.current.fires(now, ended) or (ended and not self.told)

    def fired(self, now: int, ended: bool) -> None:
        if self.told or not ended:
            self.current.fired(now, ended)
            return
        self.told = True
        self.finished = self.late is None
        self.current = Never() if self.late is None else Again(self.late)

    def forget(self) -> None:
        self.current.forget()

    def alarms(self) -> Iterator[int]:
        yield from self.current.alarms()


def model_of(trigger: Trigger) -> Model:
    match trigger:
        case AfterCount():
            return Count(trigger)
        case AfterProcessingTime():
            return Delay(trigger)
        case WhenClosed():
            return Never()
        case AfterWatermark():
            return Watermark(trigger)
        case Repeatedly():
            return Again(trigger.trigger)
        case OrFinally():
            return Until(trigger.trigger, trigger.until)
    kinds: dict[type[Trigger], type[Parts]] = {FirstOf: First, AllOf: All, EachOf: Each}
    return kinds[type(trigger)](*trigger.parts())


# -- the model: windows of all users ----------------------------------------------------------------------------------


@dataclass
class Window:
    end: int
    trigger: Model
    passed: bool
    #: The rows of the pane to come, and of all panes before: time, offset, amount.
    fresh: list[tuple[int, int, int]] = field(default_factory=list)
    before: list[tuple[int, int, int]] = field(default_factory=list)
    panes: int = 0


@dataclass
class Windows:
    """All windows, one row at a time."""

    operator: Panes
    size: int
    period: int
    late_by: int
    allowed_lateness: int
    windows: dict[tuple[str, int], Window] = field(default_factory=dict)
    watermark: int = -(10**6)
    latest: int = -(10**6)
    now: int = -(10**6)
    offset: int = 0
    dropped: int = 0

    def batch(self, rows: Sequence[Row], now: int) -> list[tuple[Any, ...]]:
        """What a batch makes windows say: first time passes, then rows come, together or one after the other."""
        before, self.watermark = self.watermark, max(self.watermark, self.latest - self.late_by)
        was, self.now = self.now, now
        said: list[tuple[Any, ...]] = []
        for (user, start), window in sorted(self.windows.items()):
            if window.end + self.allowed_lateness <= self.watermark:
                del self.windows[user, start]
                if not window.trigger.finished:
                    said += self.pane(user, start, window, last=True)
            elif any(was < at <= now for at in window.trigger.alarms()) or before < window.end <= self.watermark:
                said += self.ask(user, start, window)
        placed = sorted((at, self.offset + place, user, amount) for place, (user, amount, at) in enumerate(rows))
        self.offset += len(rows)
        for portion in [[row] for row in placed] if self.operator.emit == "every_change" else [placed]:
            touched = [window for row in portion for window in self.row(*row)]
            for user, start in sorted(set(touched)):
                said += self.ask(user, start, self.windows[user, start])
        return said

    def row(self, at: int, offset: int, user: str, amount: int) -> list[tuple[str, int]]:
        """Put a row into all windows that take it."""
        self.latest = max(self.latest, at)
        starts = [start for start in range(-10 * self.period, 200, self.period) if start <= at < start + self.size]
        taken = []
        for start in starts:
            end = start + self.size
            if end + self.allowed_lateness <= self.watermark:
                continue
            made = Window(end, model_of(self.operator.triggers), end <= self.watermark)
            window = self.windows.setdefault((user, start), made)
            if not window.trigger.finished:
                window.fresh.append((at, offset, amount))
                window.trigger.row(self.now)
                taken.append((user, start))
        self.dropped += bool(starts) and not taken
        return taken

    def ask(self, user: str, start: int, window: Window) -> list[tuple[Any, ...]]:
        ended = window.end <= self.watermark
        if window.trigger.finished or not window.trigger.fires(self.now, ended):
            return []
        window.trigger.fired(self.now, ended)
        return self.pane(user, start, window, last=window.trigger.finished)

    def pane(self, user: str, start: int, window: Window, *, last: bool) -> list[tuple[Any, ...]]:
        ended = window.end <= self.watermark
        timing = "late" if window.passed else "on_time" if ended else "early"
        window.passed |= ended
        wanted = bool(window.fresh)
        wanted |= timing == "on_time" and self.operator.on_time == "always"
        wanted |= last and self.operator.closing == "always"
        if not wanted:
            return []
        seen = window.fresh if self.operator.mode == "discarding" else [*window.before, *window.fresh]
        window.before, window.fresh = [*window.before, *window.fresh], []
        window.panes += 1
        amounts = tuple(amount for _, _, amount in sorted(seen))
        total = sum(amounts) if amounts else None
        return [(user, start, window.panes - 1, timing, last, total, len(amounts), amounts)]


def flat(row: dict[str, Any]) -> tuple[Any, ...]:
    start = round(row["window_start"].timestamp())
    return (
        row["user"],
        start,
        row["pane_index"],
        row["pane_timing"],
        row["is_last"],
        row["total"],
        row["n"],
        tuple(row["all"]),
    )


ONE = (
    st.builds(AfterCount, st.integers(1, 4))
    | st.builds(AfterProcessingTime, st.integers(1, 6), st.booleans())
    | st.just(AfterWatermark())
    | st.just(WhenClosed())
)
TRIGGERS = st.recursive(
    ONE,
    lambda part: (
        st.builds(FirstOf, part, part)
        | st.builds(AllOf, part, part)
        | st.builds(EachOf, part, part)
        | st.builds(EachOf, part, part, part)
        | st.builds(Repeatedly, part)
        | st.builds(OrFinally, part, part)
        | st.builds(AfterWatermark, early=st.none() | part, late=st.none() | part)
    ),
    max_leaves=6,
)
ROW = st.tuples(st.sampled_from("aab"), st.integers(-9, 9), st.integers(0, 30))


def batches(rows_max: int) -> st.SearchStrategy[list[tuple[list[Row], int]]]:
    """Batches of rows, each with how many seconds have passed since the one before."""
    return st.lists(st.tuples(st.lists(ROW, max_size=rows_max), st.integers(0, 4)), min_size=1, max_size=25)


@costly(2)
@given(
    given_batches=batches(1) | batches(5),
    trigger=TRIGGERS,
    mode=st.sampled_from(["discarding", "accumulating"]),
    period=st.sampled_from([10, 5, 13]),
    late_by=st.sampled_from([0, 4]),
    allowed_lateness=st.sampled_from([0, 7, 20]),
    on_time=st.sampled_from(["always", "non_empty"]),
    closing=st.sampled_from(["always", "non_empty"]),
    emit=st.sampled_from(["changes", "every_change"]),
)
def test_panes_are_those_of_the_model(
    given_batches: list[tuple[list[Row], int]],
    trigger: Trigger,
    period: int,
    late_by: int,
    allowed_lateness: int,
    **how: Any,
) -> None:
    window = Hopping(size=10, every=period, time=EventTime("at", delay=late_by, future_max=None))
    operator = Panes(
        window=window, by="user", compute=COMPUTE, trigger=trigger, allowed_lateness=allowed_lateness, **how
    )
    model = Windows(operator, 10, period, late_by, allowed_lateness)
    now, times, tables, wanted = 0, [], [], []
    for given_rows, passed in given_batches:
        now += passed
        times.append(now * SECOND)
        tables.append(arguments(given_rows, first=model.offset))
        wanted.append(model.batch(given_rows, now))
    sides: dict[str, list[Any]] = {}
    found = streamed(operator.contract, tables, processing_us=times, partitions=2, sides=sides)
    assert [sorted(flat(row) for row in one.to_pylist()) for one in found] == [sorted(one) for one in wanted]
    # Of late rows that are dropped up to twenty are kept of each batch and partition: here, all.
    assert sum(one.num_rows for one in sides.get("late", [])) == model.dropped


@costly(9)
@given(given_batches=batches(3), trigger=TRIGGERS, allowed_lateness=st.sampled_from([0, 20]))
def test_retracting_panes_take_back_what_accumulating_ones_said(
    given_batches: list[tuple[list[Row], int]], trigger: Trigger, allowed_lateness: int
) -> None:
    times, now, offset, tables = [], 0, 0, []
    for given_rows, passed in given_batches:
        now += passed
        times.append(now * SECOND)
        tables.append(arguments(given_rows, first=offset))
        offset += len(given_rows)
    window = Hopping(size=10, every=10, time=EventTime("at", future_max=None))
    said: dict[tuple[str, int], tuple[Any, ...]] = {}
    outputs = {}
    for mode in ("accumulating", "retracting"):
        operator = Panes(
            window=window, by="user", compute=COMPUTE, trigger=trigger, allowed_lateness=allowed_lateness, mode=mode
        )
        outputs[mode] = streamed(operator.contract, tables, processing_us=times)
    for panes, changes in zip(outputs["accumulating"], outputs["retracting"], strict=True):
        wanted = []
        for pane in map(flat, panes.to_pylist()):
            at = pane[:2]
            wanted += [("-U", *said[at]), ("+U", *pane)] if at in said else [("+I", *pane)]
            said[at] = pane
        assert [(row["_op"], *flat(row)) for row in changes.to_pylist()] == wanted


def arguments(batch: Sequence[Row], *, first: int) -> Any:
    return with_arguments(table(batch, first=first).select(range(5)), COMPUTE)


# -- as people write them ---------------------------------------------------------------------------------------------


def test_triggers_are_values() -> None:
    assert AfterWatermark(early=every("5 seconds"), late=rows(1)) == AfterWatermark(
        early=AfterProcessingTime("5 seconds"), late=AfterCount(1)
    )
    assert len({FirstOf(rows(1), rows(2)), AllOf(rows(1), rows(2)), AllOf(rows(1), rows(2))}) == 2
    assert repr(EachOf(rows(1), Repeatedly(rows(2)))) == (
        "EachOf(AfterCount(count=1), Repeatedly(trigger=AfterCount(count=2)))"
    )
    assert len({rows(1), rows(1), EachOf(rows(1), rows(2)), EachOf(rows(1), rows(2))}) == 2


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: rows(0), "at least 1"),
        (lambda: rows(2.5), "at least 1"),  # type: ignore[arg-type]
        (lambda: every("0 seconds", aligned=True), "delay"),
        (lambda: every("soon"), "delay"),
        (lambda: FirstOf(rows(1)), "two triggers or more"),
        (lambda: AllOf(rows(1), 5), "a trigger"),  # type: ignore[arg-type]
        (lambda: Repeatedly("5 seconds"), "a trigger"),  # type: ignore[arg-type]
        (lambda: OrFinally(rows(1), until=None), "a trigger"),  # type: ignore[arg-type]
        (lambda: AfterWatermark(early=5), "early"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        make()
