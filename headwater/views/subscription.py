"""Follow a view: all of its rows, then each change as it is applied.

Changes are read from the changelog, up to where the store has come: a subscriber that gets a change finds it in the view.
Nothing is queued for a subscriber, so a slow one costs nothing and holds up no other; it reads on from where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from headwater.views.changelog import MaintainedView, changelog_batches
from headwater.views.maintenance import ViewKeeper
from headwater.views.spec import Change, ViewPosition, ViewSpec
from headwater.views.store import TOMBSTONE

_CHANGES_MAX = 10_000


class Subscription:
    """An iterator of `Change`s that waits for more. Its `position` is where another one can go on."""

    def __init__(self, keeper: ViewKeeper, name: str, start: ViewPosition | str | None = None) -> None:
        self._keeper = keeper
        self._name = name
        self._position = ViewPosition.from_json(start) if isinstance(start, str) else start
        self._resumed = start is not None
        self._pending: Iterator[Change] = iter(())
        self._closed = False
        keeper.view(name)  # a name that is not there is refused at once

    @property
    def position(self) -> ViewPosition | None:
        """What has been told so far; None until all rows that were there at the beginning have been."""
        return self._position

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def next(self, *, timeout: float | None = None) -> Change | None:
        """The next change; None after so many seconds without one, or when the subscription was closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            for change in self._pending:
                return change
            self._pending = self.available()
            for change in self._pending:
                return change
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._keeper.wait_for_change(self._has_news, seconds=left)
        return None

    def available(self) -> Iterator[Change]:
        """What is there now and was not told yet; ends when that has been told."""
        maintained = self._keeper.maintained(self._name)
        if self._position is None or not _continues(self._position, maintained):
            yield from self._all_rows(reset=self._position is not None)
        elif self._position.offsets != maintained.position.offsets:
            yield from self._changes(maintained)

    def close(self) -> None:
        """End the subscription, also for a thread that waits in it."""
        self._closed = True
        self._pending = iter(())  # first rows that were not read to the end hold a snapshot of the store
        self._keeper.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _has_news(self) -> bool:
        if self._closed or self._position is None:
            return True
        maintained = self._keeper.maintained(self._name)
        return not _continues(self._position, maintained) or self._position.offsets != maintained.position.offsets

    def _all_rows(self, *, reset: bool) -> Iterator[Change]:
        self._position = None
        if reset:
            yield Change(op="reset", row={})
        with self._keeper.store.snapshot(self._name) as snapshot:
            for batch in snapshot.batches:
                for row in _rows(batch):
                    yield Change(op="+U", row=row)
            self._position = snapshot.position

    def _changes(self, maintained: MaintainedView) -> Iterator[Change]:
        begun, ends, spec = self._position, maintained.position, maintained.spec
        if begun is None:
            return
        offsets = dict(begun.offsets)
        for batch in changelog_batches(self._keeper.log, spec, begun.offsets, ends.offsets):
            for change in changes_of(batch.data, spec, batch.partition):
                offsets[batch.partition] = (change.offset or 0) + 1
                self._position = ViewPosition(version=begun.version, topic_id=begun.topic_id, offsets=dict(offsets))
                yield change
        self._position = ends


def _continues(position: ViewPosition, maintained: MaintainedView) -> bool:
    """Whether what was told can be followed by what comes; not after a switch, or where the changelog was made again."""
    now = maintained.position
    same = (position.version, position.topic_id) == (now.version, now.topic_id)
    return same and all(now.offsets.get(partition, 0) >= offset for partition, offset in position.offsets.items())


def changes_of(rows: pa.RecordBatch, spec: ViewSpec, partition: int) -> Iterator[Change]:
    """The rows of a changelog as changes of its view."""
    gone = rows.column(TOMBSTONE).to_pylist()
    offsets = rows.column("_offset").to_pylist()
    for row, is_gone, offset in zip(_rows(rows.select(spec.schema.names)), gone, offsets, strict=True):
        told = {name: row[name] for name in spec.key} if is_gone else row
        yield Change(op="-D" if is_gone else "+U", row=told, partition=partition, offset=offset)


# Any: the values of a row are of any type.
def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    for start in range(0, batch.num_rows, _CHANGES_MAX):
        yield from batch.slice(start, _CHANGES_MAX).to_pylist(maps_as_pydicts="strict")
