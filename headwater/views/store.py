"""The `ViewStore` port: where the rows of views lie. One contract suite runs against every store (`tests/views`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.faults import reach
from headwater.schema import diff
from headwater.views.errors import ViewConflict
from headwater.views.spec import ViewPosition, ViewSpec
from headwater.views.statement import UNBOUNDED, Bounds, Stoppable

TOMBSTONE = "_tombstone"
#: Partition and offset as one number.
PLACE = "_place"
Step = Literal["deleted", "before_commit", "committed", "before_switch"]
# Any: a parameter of a statement is any value that SQL knows.
Parameters = Sequence[Any] | Mapping[str, Any] | None


def come_to(step: Step) -> None:
    """A durable step that every store passes; see `headwater.faults.VIEW_CRASH_POINTS`."""
    reach(f"view.{step}")


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What to change: the rows of `keys` go, then `rows` come. Every key stands in `keys` once."""

    keys: pa.Table
    rows: pa.Table
    #: Where the row of each key lies in the changelog, where that is known.
    places: npt.NDArray[np.int64] | None = None

    @classmethod
    def nothing(cls, spec: ViewSpec) -> Delta:
        return cls(keys=spec.key_schema.empty_table(), rows=spec.schema.empty_table())

    def __bool__(self) -> bool:
        return bool(self.keys.num_rows)


@dataclass(frozen=True, kw_only=True)
class StoredView:
    """A version of a view as a store holds it."""

    spec: ViewSpec
    active: bool
    position: ViewPosition


class ViewStore(Protocol):
    """Keeps the rows of views, each version together with how far it has come. One writer, any number of readers."""

    #: Whether a look-up waits while changes are written: then it goes past the store, to the changelog.
    holds_readers: ClassVar[bool]

    def declare(self, spec: ViewSpec) -> StoredView:
        """Make room for a version of a view, or change its columns in place; the first version is the active one."""

    def apply(
        self,
        spec: ViewSpec,
        delta: Delta,
        position: ViewPosition,
        *,
        replace: bool = False,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """Change rows and position in one transaction; with `replace`, the rows that were there go first.

        `before_commit` is called when all is written, just before readers can see it.
        """

    def stored(self) -> list[StoredView]:
        """All versions of all views."""

    def activate(self, name: str, version: int) -> None:
        """From now on, readers of `name` see this version."""

    def drop(self, name: str, version: int | None = None) -> None:
        """Forget a version, or the whole view."""

    def get(self, spec: ViewSpec, key: pa.RecordBatch) -> pa.Table:
        """The row with this key, or none."""

    def scan(
        self,
        spec: ViewSpec,
        *,
        where: str | None,
        parameters: Parameters,
        limit: int | None,
        bounds: Bounds = UNBOUNDED,
    ) -> pa.Table:
        """Rows of one version; `where` is one condition that reads no other view."""

    def query(
        self,
        statement: str,
        parameters: Parameters = None,
        *,
        bounds: Bounds = UNBOUNDED,
        stoppable: Stoppable | None = None,
    ) -> pa.Table:
        """The result of one statement that only reads; every view has its name.

        `stoppable` is handed what ends it from another thread.
        """

    def snapshot(self, name: str) -> contextlib.AbstractContextManager[Snapshot]:
        """The active version's rows and position at one moment."""

    def bytes(self) -> int | None:
        """How much room the store takes, where it knows."""

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All rows of a view at one moment, read as they are asked for."""

    spec: ViewSpec
    position: ViewPosition
    batches: Iterator[pa.RecordBatch]


@dataclass(frozen=True, kw_only=True)
class Alteration:
    """How the columns of a table must change for a newer schema."""

    added: tuple[pa.Field, ...] = ()
    retyped: tuple[pa.Field, ...] = ()


def alteration(old: ViewSpec, new: ViewSpec) -> Alteration:
    """What leads from one schema to the next in place, or `ViewConflict` where nothing does.

    >>> old = ViewSpec(name="v", topic="v", key=("id",), schema=pa.schema([("id", pa.int64())]))
    >>> new = ViewSpec(name="v", topic="v", key=("id",), schema=pa.schema([("id", pa.int64()), ("n", pa.int8())]))
    >>> [field.name for field in alteration(old, new).added]
    ['n']
    """
    if old.key != new.key:
        why = f"its key was {', '.join(old.key)} and is now {', '.join(new.key)}"
        raise ViewConflict(view=new.name, version=new.version, why=why)
    if old.topic != new.topic:
        why = f"its changelog was {old.topic!r} and is now {new.topic!r}"
        raise ViewConflict(view=new.name, version=new.version, why=why)
    for change in diff(old.schema, new.schema):
        if change.refused:
            raise ViewConflict(view=new.name, version=new.version, why=f"column {change.column!r} {change.refused}")
    before = {column.name: column for column in old.schema}
    added = tuple(column for column in new.schema if column.name not in before)
    kept = [column for column in new.schema if column.name in before]
    return Alteration(added=added, retyped=tuple(one for one in kept if before[one.name].type != one.type))
