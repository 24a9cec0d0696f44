"""One view, as its readers have it: look-ups, rows, SQL and subscriptions, in the process that maintains it.

A reader may ask for its own writes: the read then waits until the view reflects so much of a topic. Where the view does
not read that topic itself but something that is made from it, the way is followed backwards: first what stands in
between must reflect the write, then the view must reflect all that stands there by then.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.errors import ArgumentInvalid, EncodingInvalid, NotFound, RowInvalid
from headwater.log import Lag, Log, Offsets
from headwater.log.clients.groups import lag_of
from headwater.schema import format_schema, to_batches
from headwater.schema.notation import nearest
from headwater.views.duckdb_store import DuckStore
from headwater.views.errors import ViewBehind, ViewKeyInvalid
from headwater.views.lookup import looked_up
from headwater.views.maintenance import ViewKeeper
from headwater.views.spec import Sources, ViewPosition, ViewSpec, reached
from headwater.views.statement import UNBOUNDED, Bounds
from headwater.views.store import Parameters
from headwater.views.subscription import Subscription

# Any: the values of a row are of any type.
Row = dict[str, Any]
Where = str | Mapping[str, Any] | None


class View:
    """A table that follows its query.

    Every read may ask for `at_least={"payments": {0: 1042}}`: it then waits until the view reflects the rows of
    `payments` before offset 1042 of partition 0, such as `Appended.offsets_next` names them, for at most `timeout`
    seconds (10 unless told).
    """

    def __init__(self, keeper: ViewKeeper, name: str, *, bounds: Bounds = UNBOUNDED) -> None:
        self.keeper = keeper
        self.name = name
        self._bounds = bounds

    def __repr__(self) -> str:
        return f"View({self.name!r})"

    def within(self, bounds: Bounds) -> View:
        """The same view, whose rows and statements may take only so much: for questions that come from elsewhere."""
        return View(self.keeper, self.name, bounds=bounds)

    @property
    def spec(self) -> ViewSpec:
        """How the version that is served is declared."""
        return self.keeper.maintained(self.name).spec

    @property
    def position(self) -> ViewPosition:
        """How far the view has come in its changelog and in its sources."""
        return self.keeper.maintained(self.name).position

    @property
    def freshness(self) -> float:
        """For how many seconds the oldest change that is not applied yet has been waiting; 0 where there is none."""
        position, topic = self.position, self.spec.topic
        if topic not in self.keeper.log.topics():
            return 0.0
        return max((one.seconds for one in lag_of(self.keeper.log, "", topic, position.offsets)), default=0.0)

    def lag(self) -> list[Lag]:
        """The lag of the view in each partition of the topics that its query reads; empty before its first change.

        It counts from what the view reflects, so it has the lag of the query and that of the store.
        """
        lags: list[Lag] = []
        for topic, offsets in self.position.sources.items():
            with contextlib.suppress(NotFound):  # deleted
                lags += lag_of(self.keeper.log, "", topic, offsets)
        return lags

    def get(
        self,
        key: Mapping[str, Any] | None = None,
        *,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
        **columns: Any,
    ) -> Row | None:
        """The row with this key, None where there is none: `view.get(card=42)`.

        Key columns that are called like an argument go into a mapping: `view.get({"timeout": 3})`.
        """
        wait_for_offsets(self.keeper, self.name, at_least, timeout)
        rows: list[Row] = self.lookup({**(key or {}), **columns}).to_pylist(maps_as_pydicts="strict")
        return rows[0] if rows else None

    def lookup(self, key: Mapping[str, Any]) -> pa.Table:
        """The row with this key as an Arrow table of one row, or of none."""
        found = self.glance(key)
        spec = self.spec
        return self.keeper.store.get(spec, key_batch(spec, key)) if found is None else found

    def glance(self, key: Mapping[str, Any]) -> pa.Table | None:
        """The row with this key where it can be had without waiting for anybody; None where the store must be asked."""
        return looked_up(self.keeper.log, self.keeper.maintained(self.name), key_batch(self.spec, key))

    def table(
        self,
        where: Where = None,
        *,
        parameters: Parameters = None,
        limit: int | None = None,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The rows as an Arrow table; see `rows`."""
        wait_for_offsets(self.keeper, self.name, at_least, timeout)
        if limit is not None and limit < 0:
            raise ArgumentInvalid(name="limit", value=limit, expected="at least 0")
        spec = self.spec
        if isinstance(where, Mapping):
            where, parameters = equalities(spec, where)
        return self.keeper.store.scan(spec, where=where, parameters=parameters, limit=limit, bounds=self._bounds)

    def rows(
        self,
        where: Where = None,
        *,
        parameters: Parameters = None,
        limit: int | None = None,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
    ) -> list[Row]:
        """The rows, or those that fit: `where` is a condition in SQL, or a mapping of columns to values."""
        found = self.table(where, parameters=parameters, limit=limit, at_least=at_least, timeout=timeout)
        rows: list[Row] = found.to_pylist(maps_as_pydicts="strict")
        return rows

    def sql(
        self,
        statement: str,
        parameters: Parameters = None,
        *,
        at_least: AtLeast | None = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """The result of one SELECT over this view and any other of the same app, by their names."""
        wait_for_offsets(self.keeper, self.name, at_least, timeout)
        return self.keeper.store.query(statement, parameters, bounds=self._bounds)

    def subscribe(self, start: ViewPosition | str | None = None) -> Subscription:
        """All rows, then each change as it is applied; from the `position` of an earlier subscription, only changes."""
        return Subscription(self.keeper, self.name, start)

    def live(self, *, seconds: float = 30.0, rows_max: int = 20, order: str | None = None) -> None:
        """In a notebook: show the view, and show it again in the same output as it changes.

        It stops after so many seconds, or when it is interrupted. `order` says which rows come first, as in SQL:
        `view.live(order="minute DESC")`; that looks at all rows of the view for each picture.
        """
        from headwater.views.notebook_card import live

        live(self, seconds=seconds, rows_max=rows_max, order=order, position=self.position)

    def _repr_html_(self) -> str:
        from headwater.views.notebook_card import view_html

        return view_html(self)

    def describe(self) -> dict[str, Any]:
        """What there is to know of the view, as plain values."""
        maintained = self.keeper.maintained(self.name)
        spec, position = maintained.spec, maintained.position
        lags = self.lag()
        return {
            "name": spec.name,
            "version": spec.version,
            "versions": [one.spec.version for one in self.keeper.versions(spec.name)],
            "topic": spec.topic,
            "key": list(spec.key),
            "schema": format_schema(spec.schema),
            "producers": list(spec.producers),
            "topic_id": position.topic_id,
            "offsets": {str(partition): offset for partition, offset in position.offsets.items()},
            "sources": {
                topic: {str(partition): offset for partition, offset in offsets.items()}
                for topic, offsets in position.sources.items()
            },
            "applied_at_us": position.applied_at_us,
            "freshness": self.freshness,
            "lag_rows": sum(lag.rows for lag in lags) if lags else None,
            "lag_seconds": max(lag.seconds for lag in lags) if lags else None,
            "problem": None if maintained.problem is None else str(maintained.problem),
        }


def key_batch(spec: ViewSpec, given: Mapping[str, Any]) -> pa.RecordBatch:
    """A key as one typed row, or `ViewKeyInvalid` that says what is wrong with it."""
    key = ", ".join(spec.key)
    for name in given:
        if name not in spec.key:
            raise ViewKeyInvalid(
                view=spec.name, why=f"{name!r} is not part of it{nearest(name, list(spec.key))}", key=key
            )
    for name in spec.key:
        if given.get(name) is None:
            why = f"{name!r} is null" if name in given else f"{name!r} is missing"
            raise ViewKeyInvalid(view=spec.name, why=why, key=key)
    try:
        [batch] = to_batches([dict(given)], spec.key_schema, topic=spec.topic)
    except (RowInvalid, EncodingInvalid) as error:
        why = f"{error.column!r} {error.why}" if isinstance(error, RowInvalid) else str(error)
        raise ViewKeyInvalid(view=spec.name, why=why, key=key) from error
    return batch.data


def equalities(spec: ViewSpec, where: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """A mapping of columns to values as a condition in SQL."""
    for name in where:
        if name not in spec.schema.names:
            expected = (
                f"columns of view {spec.name!r}: {', '.join(spec.schema.names)}{nearest(name, spec.schema.names)}"
            )
            raise ArgumentInvalid(name="where", value=name, expected=expected)
    terms = []
    values = []
    for name, value in where.items():
        quoted = '"' + name.replace('"', '""') + '"'
        if value is None:
            terms.append(f"{quoted} IS NULL")
        else:
            values.append(value)
            terms.append(f"{quoted} = ${len(values)}")
    return " AND ".join(terms) or "true", values


AtLeast = Mapping[str, Offsets]
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """A reader's wish, and until when it waits."""

    keeper: ViewKeeper
    view: str
    began: float
    deadline: float

    def wait(self, at_least: AtLeast) -> None:
        own = self.keeper.maintained(self.view).spec.topic
        for topic, offsets in at_least.items():
            wanted = _checked(topic, offsets)
            if topic == own:
                self._until(topic, wanted, lambda: self.keeper.maintained(self.view).position.offsets)
            else:
                self._reflects(topic, wanted, self._sources, seen=frozenset({own}))

    def _sources(self) -> Sources:
        return self.keeper.maintained(self.view).position.sources

    def _reflects(self, topic: str, wanted: Offsets, sources: Callable[[], Sources], *, seen: frozenset[str]) -> None:
        """Wait until what `sources` tells of covers the offsets of the topic, directly or by what lies in between."""
        self._until_known(topic, wanted, sources, seen)
        if topic in sources():
            self._until(topic, wanted, lambda: sources().get(topic, {}))
            return
        for middle in self._between(topic, sources(), seen):
            self._reflects(topic, wanted, lambda m=middle: self._sources_of(m), seen=seen | {middle})  # type: ignore[misc]
            end = self.keeper.end_offsets(middle)
            self._until(middle, end, lambda m=middle: sources().get(m, {}))  # type: ignore[misc]

    def _until_known(self, topic: str, wanted: Offsets, sources: Callable[[], Sources], seen: frozenset[str]) -> None:
        """Wait until the query, and those before it, have said what they read; refuse a topic that is not among it."""

        def is_known() -> bool:
            now = sources()
            return bool(now) and (topic in now or bool(self._between(topic, now, seen)) or not self._is_open(now, seen))

        if not self.keeper.wait_for(is_known, deadline=self.deadline):
            raise self._behind(topic, wanted, {})
        now = sources()
        if topic not in now and not self._between(topic, now, seen):
            expected = f"topics that view {self.view!r} is made from: {', '.join(sorted(now))}"
            raise ArgumentInvalid(name="at_least", value=topic, expected=expected)

    def _between(self, topic: str, sources: Sources, seen: frozenset[str]) -> list[str]:
        """Those sources that are themselves made from the topic."""
        return [middle for middle in sources if middle not in seen and self._derives(middle, topic, seen | {middle})]

    def _is_open(self, sources: Sources, seen: frozenset[str]) -> bool:
        """Whether a query in between has not committed anything yet, so that it is not known what it reads."""
        return any(
            (middle in self.keeper.derived and not self._sources_of(middle))
            or self._is_open(self._sources_of(middle), seen | {middle})
            for middle in sources
            if middle not in seen
        )

    def _derives(self, middle: str, topic: str, seen: frozenset[str]) -> bool:
        sources = self._sources_of(middle)
        return topic in sources or any(
            self._derives(inner, topic, seen | {inner}) for inner in sources if inner not in seen
        )

    def _sources_of(self, topic: str) -> Sources:
        return self.keeper.sources_of_topic(topic) or {}

    def _until(self, topic: str, wanted: Offsets, now: Callable[[], Offsets]) -> None:
        def met() -> bool:
            if reached(now(), wanted):
                return True
            problem = self.keeper.maintained(self.view).problem
            if problem is not None:
                raise problem
            return False

        if not self.keeper.wait_for(met, deadline=self.deadline):
            raise self._behind(topic, wanted, now())

    def _behind(self, topic: str, wanted: Offsets, now: Offsets) -> ViewBehind:
        return ViewBehind(
            view=self.view,
            topic=topic,
            wanted=_shown(wanted),
            reached=_shown({partition: now.get(partition, 0) for partition in wanted}),
            waited=time.monotonic() - self.began,
        )


def wait_for_offsets(keeper: ViewKeeper, view: str, at_least: AtLeast | None, timeout: float | None) -> None:
    """Wait until a view reflects at least these next-offsets of topics, or raise `ViewBehind`."""
    if not at_least:
        return
    began = time.monotonic()
    seconds = TIMEOUT_SECONDS if timeout is None else timeout
    Requirement(keeper=keeper, view=view, began=began, deadline=began + seconds).wait(at_least)


# object: what a caller has given, before it is known to be right.
def _checked(topic: str, offsets: object) -> Offsets:
    if isinstance(offsets, Mapping) and all(
        isinstance(part, int) and isinstance(one, int) for part, one in offsets.items()
    ):
        return dict(offsets)
    raise ArgumentInvalid(name="at_least", value={topic: offsets}, expected="{topic: {partition: next offset}}")


def _shown(offsets: Offsets) -> str:
    return ", ".join(f"{offset} in partition {partition}" for partition, offset in sorted(offsets.items())) or "nothing"


def stored_views(*, log: Log, path: Path | str) -> ViewKeeper:
    """All views of a store, as they were left. Close its `store` when done; until then no process can run the app."""
    return ViewKeeper(log, DuckStore(path, read_only=True), read_only=True)


def stored_view(name: str, *, log: Log, path: Path | str) -> View:
    """One view of a store, as it was left."""
    if not Path(path).exists():
        raise NotFound(kind="view", name=name)
    return stored_views(log=log, path=path).view(name)
