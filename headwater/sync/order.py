"""Changes applied one after the other, in the order of their topics, and without those that the target refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from headwater.sync.changes import in_order
from headwater.sync.errors import ChangeRefused
from headwater.sync.port import TableChanges, TargetTable


class Attempt(Protocol):
    """Applies changes; raises `ChangeRefused`. A trial has no effect."""

    def __call__(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None: ...


class SetAside(Protocol):
    """Takes a row that was refused; raises if there is no place for it."""

    def __call__(self, table: TargetTable, row: pa.Table, why: str) -> None: ...


def apply_in_order(attempt: Attempt, set_aside: SetAside, changes: Sequence[TableChanges]) -> None:
    """Apply changes in order, all but those that are refused; these are set aside first."""
    changes = [replace(one, steps=in_order(one.versions, one.table)) for one in changes]
    good = 0
    while (refused := _first_refused(attempt, changes, good)) is not None:
        good, place, error = refused
        row = changes[place[0]].versions.slice(place[1], 1)
        set_aside(changes[place[0]].table, row, error.why)
        changes = [_without(one, place[1]) if at == place[0] else one for at, one in enumerate(changes)]
    attempt(changes)


def _first_refused(
    attempt: Attempt, changes: Sequence[TableChanges], good: int
) -> tuple[int, tuple[int, int], ChangeRefused] | None:
    """The first change that the target refuses: how many precede it, its place, and why; None if there is none.

    A search by halves: the first `good` changes are known to be accepted.
    """
    bad = sum(one.versions.num_rows for one in changes)
    error = _refusal(attempt, changes, bad)
    if error is None:
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        found = _refusal(attempt, changes, middle)
        if found is None:
            good = middle
        else:
            bad, error = middle, found
    place = good
    for at, one in enumerate(changes):
        if place < one.versions.num_rows:
            return good, (at, place), error
        place -= one.versions.num_rows
    raise error  # no change is refused, but what the target checks besides


def _refusal(attempt: Attempt, changes: Sequence[TableChanges], count: int) -> ChangeRefused | None:
    """Try the first `count` changes, without effect."""
    some = []
    for one in changes:
        rows = one.versions.slice(0, count)
        count -= rows.num_rows
        some.append(replace(one, versions=rows, steps=in_order(rows, one.table)))
    try:
        attempt(some, trial=True)
    except ChangeRefused as error:
        return error
    return None


def _without(changes: TableChanges, place: int) -> TableChanges:
    rows = pa.concat_tables([changes.versions.slice(0, place), changes.versions.slice(place + 1)])
    return replace(changes, versions=rows, steps=in_order(rows, changes.table))
