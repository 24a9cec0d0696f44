"""Replay: another version of a query runs beside the one in use, is compared with it, and takes its place without a gap.

The trial has a checkpoint and an output topic of its own (`spend.v2`). To switch, both versions are brought to the same
offsets of their inputs and stopped there. What a view says otherwise in the new version is then written into the view's
own topic, in one transaction, as ordinary changes: all readers of the view see corrections and never a gap. From there on the new version writes to that topic. A topic that is no view keeps its history, and goes on with
the rows of the new version.

A switch that was interrupted is finished at the next start: every step is idempotent.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.apps.app import found
from headwater.apps.declaration import Query
from headwater.apps.errors import QueryFailed
from headwater.apps.home import Version, trial_topic
from headwater.errors import ArgumentInvalid, NotFound
from headwater.faults import reach
from headwater.log import Log

if TYPE_CHECKING:
    from headwater.apps.runner import Runner
    from headwater.apps.supervision import SupervisedQuery

#: How long the two versions may take to come to the same offsets.
MEET_SECONDS_MAX = 600.0
SAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The comparison of two versions of a query."""

    query: str
    active: int
    trial: int
    state: str
    """`running` while the trial has rows to read, then `caught up`; `switched` and `dropped` at its end."""
    lag_rows: int | None = None
    same: int = 0
    changed: int = 0
    only_active: int = 0
    only_trial: int = 0
    # Any: rows, as they are.
    samples: Sequence[dict[str, Any]] = field(default=())


class Replays:
    """The trials of a running app."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def begin(self, name: str, *, start: str = "earliest", version: str | None = None) -> Comparison:
        """Run the query as it is declared now beside the version in use, from another place on."""
        return self._runner.ask(lambda: self._begin(name, start=start, version=version))

    def switch(self, name: str) -> Comparison:
        """Replace the active version by the trial. Readers see corrections, and no gap."""
        return self._runner.ask(lambda: self._switch(name))

    def drop(self, name: str) -> Comparison:
        """Drop the trial: its query, its version and its topic."""
        return self._runner.ask(lambda: self._drop(name))

    def _begin(self, name: str, *, start: str, version: str | None) -> Comparison:
        query = found(self._runner.queries, name)
        known = self._runner.home.versions(name, topic=query.output)
        if known.trial is not None:
            expected = f"nothing else: version {known.trial.number} is being tried already; switch to it or drop it"
            raise ArgumentInvalid(name="replay", value=name, expected=expected)
        if query.output is None:
            raise ArgumentInvalid(name="replay", value=name, expected="a query that writes a topic or a view")
        if version is not None and version.lstrip("v") != str(known.next_number):
            raise ArgumentInvalid(name="--as", value=version, expected=f"v{known.next_number}, the next version")
        known = self._runner.home.try_version(name, topic=query.output, start=start)
        if known.trial is not None:
            self._runner.supervise_version(query, known.trial)
        return self._comparison(query, state="running")

    def resume(self) -> None:
        """At a start: continue trials, and finish switches that a crash has interrupted."""
        for query in self._runner.queries:
            known = self._runner.home.versions(query.name, topic=query.output)
            if known.trial is None:
                self._delete_old_trial(query, known.active)
            elif known.switching:
                self._runner.forget_version(self._runner.active(query))
                self._take_over(query)
            else:
                self._runner.supervise_version(query, known.trial)

    def report(self, name: str) -> Comparison:
        """Compare the two versions now. While rows arrive they are rarely at the same offset."""
        query = found(self._runner.queries, name)
        trial = self._trial(query)
        status = trial.progress.status()
        counted = self._counted(query, trial.version)
        state = "caught up" if status.lag_rows == 0 and status.batch is not None else status.state
        return replace(counted, state=state, lag_rows=status.lag_rows)

    def _switch(self, name: str) -> Comparison:
        query = found(self._runner.queries, name)
        trial, active = self._trial(query), self._runner.active(query)
        active.stop()
        trial.stop()
        reach("replay.stopped")
        try:
            self._meet(query, active, trial)
        except Exception:
            for one in (active, trial):  # no switch then: both go on as before
                one.restart()
            raise
        reach("replay.met")
        differences = self._counted(query, trial.version)
        known = self._runner.home.versions(name, topic=query.output)
        self._runner.home.set_versions(name, replace(known, switching=True))
        reach("replay.switching")
        self._runner.forget_version(active)
        self._runner.forget_version(trial)
        number = self._take_over(query)
        return replace(differences, state="switched", trial=number)

    def _drop(self, name: str) -> Comparison:
        query = found(self._runner.queries, name)
        trial = self._trial(query)
        trial.stop()
        self._runner.forget_version(trial)
        known = self._runner.home.versions(name, topic=query.output)
        self._runner.home.set_versions(name, replace(known, trial=None))
        self._delete_topic(trial.version)
        return Comparison(query=name, active=known.active.number, trial=trial.version.number, state="dropped")

    # -- behind the calls ---------------------------------------------------------------------------------------------

    def _trial(self, query: Query) -> SupervisedQuery:
        known = self._runner.home.versions(query.name, topic=query.output)
        if known.trial is None:
            expected = "a query with a version to try; begin with `headwater replay QUERY --as v2`"
            raise ArgumentInvalid(name="query", value=query.name, expected=expected)
        return self._runner.version(query, known.trial)

    def _comparison(self, query: Query, *, state: str) -> Comparison:
        known = self._runner.home.versions(query.name, topic=query.output)
        trial = known.trial.number if known.trial is not None else known.active.number
        return Comparison(query=query.name, active=known.active.number, trial=trial, state=state)

    def _meet(self, query: Query, active: SupervisedQuery, trial: SupervisedQuery) -> None:
        """Bring both versions to the same offsets of their inputs: the furthest that either has come to.

        A view becomes what the new version says, whatever the old one has left out: one that cannot go on, because its
        code has changed and its state no longer fits, may be replaced where it stands. A topic would have a gap.
        """
        goal: dict[str, dict[str, int]] = {}
        # A batch that Spark has planned before is done as it was planned, and may lead past the goal: then there is
        # another one. Each such batch is done once, so that this comes to an end.
        while (furthest_now := furthest([self._sources(active), self._sources(trial)])) != goal:
            goal = furthest_now
            if self._sources(trial) != goal:
                self._run_to(trial, goal)
            if self._sources(active) != goal:
                try:
                    self._run_to(active, goal)
                except QueryFailed:
                    if query.kind != "view":
                        raise
                    return

    def _run_to(self, one: SupervisedQuery, goal: dict[str, dict[str, int]]) -> None:
        running = self._runner.start_version(one.query, one.version, stop=json.dumps(goal))
        deadline = time.monotonic() + MEET_SECONDS_MAX
        while running.is_active and time.monotonic() < deadline:
            time.sleep(0.02)
        error = running.error()
        running.stop()
        if error is not None:
            raise QueryFailed(query=one.query.name, why=str(error).splitlines()[0])

    def _sources(self, one: SupervisedQuery) -> dict[str, dict[str, int]]:
        identity = self._runner.home.query_id(one.query.name, one.version.number)
        told = self._runner.log.transaction_metadata(identity) if identity is not None else None
        return furthest([source.get("topics", {}) for source in (told or {}).get("sources", [])])

    def _take_over(self, query: Query) -> int:
        """Write the corrections of the new version, and make it the active one. Idempotent."""
        home, log = self._runner.home, self._runner.log
        known = home.versions(query.name, topic=query.output)
        trial = known.trial
        if trial is None or query.output is None:
            return known.active.number
        producer = f"switch-{query.name}-v{trial.number}"
        if query.kind == "view" and log.committed_sequence(producer) < 0:
            changes = corrections(log, query.output, str(trial.topic))
            with log.transaction(producer, sequence=0) as transaction:
                transaction.append(query.output, changes)
        reach("replay.corrected")
        taken = Version(number=trial.number, topic=query.output, start=trial.start)
        home.set_versions(query.name, replace(known, active=taken, trial=None, switching=False))
        reach("replay.switched")
        self._delete_topic(trial)
        self._runner.supervise_version(query, taken)
        return taken.number

    def _delete_old_trial(self, query: Query, active: Version) -> None:
        """Delete the topic that the active version had as a trial, if a crash right after the switch has left it."""
        if active.number > 1 and query.output is not None:
            self._delete_topic(replace(active, topic=trial_topic(query.output, active.number)))

    def _delete_topic(self, version: Version) -> None:
        try:
            self._runner.log.delete(str(version.topic))
        except NotFound:
            return

    def _counted(self, query: Query, trial: Version) -> Comparison:
        log, name = self._runner.log, str(query.output)
        bare = self._comparison(query, state="running")
        try:
            columns = [
                column for column in log.topic(name).schema.names if column in log.topic(str(trial.topic)).schema.names
            ]
        except NotFound:
            return bare
        old, new = (contents(log, topic, keyed=query.kind == "view") for topic in (name, str(trial.topic)))
        return replace(
            bare, **compared(old.select(columns), new.select(columns), key=query.key if query.kind == "view" else ())
        )


def furthest(positions: Sequence[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Return the furthest of several positions, for each partition of each topic.

    >>> furthest([{"a": {"0": 3}}, {"a": {"0": 2, "1": 7}}])
    {'a': {'0': 3, '1': 7}}
    """
    merged: dict[str, dict[str, int]] = {}
    for position in positions:
        for topic, offsets in position.items():
            known = merged.setdefault(topic, {})
            for partition, offset in offsets.items():
                known[partition] = max(offset, known.get(partition, 0))
    return merged


def contents(log: Log, topic: str, *, keyed: bool) -> pa.Table:
    """Return all rows of a topic; with `keyed`, the newest row of each key."""
    import duckdb

    declared = log.topic(topic)
    names = ", ".join(f'"{name}"' for name in declared.schema.names)
    rows = log.read(topic, columns=[*declared.schema.names, "_offset", *(["_tombstone"] if keyed else [])]).table()
    connection = duckdb.connect()
    connection.register("rows", rows)
    if not keyed:
        return _table(connection, f"select {names} from rows")
    key = ", ".join(f'"{name}"' for name in declared.key)
    newest = f"qualify row_number() over (partition by {key} order by _offset desc) = 1"
    kept = f"select * from (select * from rows {newest}) where not coalesce(_tombstone, false)"
    return _table(connection, f"select {names} from ({kept})")


def compared(old: pa.Table, new: pa.Table, *, key: Sequence[str]) -> dict[str, Any]:
    """Count the rows that two versions share, and sample the differences; by key if there is one."""
    import duckdb

    connection = duckdb.connect()
    connection.register("old", old)
    connection.register("new", new)
    if not key:
        gone = _table(connection, "select * from (from old except all from new)")
        more = _table(connection, "select * from (from new except all from old)")
        samples = [{"version": "active", **row} for row in gone.slice(0, SAMPLES).to_pylist()]
        samples += [{"version": "trial", **row} for row in more.slice(0, SAMPLES).to_pylist()]
        counts = {"only_active": gone.num_rows, "only_trial": more.num_rows, "same": old.num_rows - gone.num_rows}
        return {**counts, "changed": 0, "samples": samples}
    using = ", ".join(f'"{name}"' for name in key)
    first = f'"{key[0]}"'
    # Names that no column of a topic has: rows are compared whole, as values of these names.
    joined = (
        f"(select _old, _new, _old.{first} is null as _added, _new.{first} is null as _gone"
        f" from old _old full join new _new using ({using}))"
    )
    [found] = connection.execute(
        "select count(*) filter (not _added and not _gone and _old is not distinct from _new),"
        " count(*) filter (not _added and not _gone and _old is distinct from _new),"
        f" count(*) filter (_gone), count(*) filter (_added) from {joined}"
    ).fetchall()
    different = (
        f"select _old as active, _new as trial from {joined}"
        f" where _added or _gone or _old is distinct from _new limit {SAMPLES}"
    )
    samples = _table(connection, different).to_pylist()
    same, changed, only_active, only_trial = found
    return {"same": same, "changed": changed, "only_active": only_active, "only_trial": only_trial, "samples": samples}


def corrections(log: Log, old: str, new: str) -> pa.Table:
    """Return the changes that turn one keyed topic into another: new rows, and tombstones."""
    import duckdb

    key = log.topic(old).key
    names = [name for name in log.topic(old).schema.names if name in log.topic(new).schema.names]
    connection = duckdb.connect()
    connection.register("old", contents(log, old, keyed=True).select(names))
    connection.register("new", contents(log, new, keyed=True).select(names))
    same_key = " and ".join(f'o."{name}" = n."{name}"' for name in key)
    differs = " or ".join(f'o."{name}" is distinct from n."{name}"' for name in names)
    nothing = ", ".join(f'o."{name}"' if name in key else f'null as "{name}"' for name in names)
    sql = (
        f"select n.*, false as _tombstone from new n left join old o on {same_key} where {differs}"
        f" union all by name select {nothing}, true as _tombstone from old o anti join new n on {same_key}"
    )
    return _table(connection, sql)


# Any: DuckDB has no types.
def _table(connection: Any, statement: str) -> pa.Table:
    return connection.sql(statement).to_arrow_table()
