"""Replay: another version of a query runs beside the one in use, is compared with it, and takes its place without a gap.

The trial has a checkpoint and an output topic of its own (`spend.v2`). To switch, both versions are brought to the same
offsets of their inputs and stopped there. What a view says otherwise in the new version is then written into the view's
own topic, in one transaction, as ordinary changes: whoever reads the view, in whatever way, sees corrections and never
a gap. From there on the new version writes to that topic. A topic that is no view keeps its history, and goes on with
the rows of the new version.

A switch that was interrupted is finished at the next start: every step may be done again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import ArgumentInvalid, QueryFailed, TopicNotFound
from headwater.faults import reach
from headwater.runtime.app import found
from headwater.runtime.comparing import compared, contents, corrections
from headwater.runtime.declared import Query
from headwater.runtime.home import Version, trial_topic

if TYPE_CHECKING:
    from headwater.runtime.runner import Runner
    from headwater.runtime.supervising import Supervised

#: How long the two versions may take to come to the same offsets.
MEET_SECONDS_MAX = 600.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two versions of a query beside each other."""

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

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Replays:
    """The trials of a running app."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def begin(self, name: str, *, start: str = "earliest", version: str | None = None) -> Comparison:
        """Run the query as it is declared now beside the version in use, from another place on."""
        return self._runner.ask(lambda: self._begin(name, start=start, version=version))

    def switch(self, name: str) -> Comparison:
        """Let the trial take the place of the version in use. Readers see corrections, and no gap."""
        return self._runner.ask(lambda: self._switch(name))

    def drop(self, name: str) -> Comparison:
        """Give the trial up: its query, its checkpoint's place and its topic."""
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
        """At a start: go on with trials, and finish what a crash has interrupted."""
        for query in self._runner.queries:
            known = self._runner.home.versions(query.name, topic=query.output)
            if known.trial is None:
                self._bury_trial(query, known.active)
            elif known.switching:
                self._runner.forget_version(self._runner.active(query))
                self._take_over(query)
            else:
                self._runner.supervise_version(query, known.trial)

    def report(self, name: str) -> Comparison:
        """How the two versions compare now. While rows arrive they are seldom at the same offset."""
        query = found(self._runner.queries, name)
        trial = self._trial(query)
        status = trial.watch.status()
        caught_up = status.state == "caught up" or (status.lag_rows == 0 and status.batch is not None)
        counted = self._counted(query, trial.version)
        state = "caught up" if caught_up else status.state
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

    def _trial(self, query: Query) -> Supervised:
        known = self._runner.home.versions(query.name, topic=query.output)
        if known.trial is None:
            expected = "a query with a version to try; begin with `headwater replay QUERY --as v2`"
            raise ArgumentInvalid(name="query", value=query.name, expected=expected)
        return self._runner.version(query, known.trial)

    def _comparison(self, query: Query, *, state: str) -> Comparison:
        known = self._runner.home.versions(query.name, topic=query.output)
        trial = known.trial.number if known.trial is not None else known.active.number
        return Comparison(query=query.name, active=known.active.number, trial=trial, state=state)

    def _meet(self, query: Query, active: Supervised, trial: Supervised) -> None:
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

    def _run_to(self, one: Supervised, goal: dict[str, dict[str, int]]) -> None:
        running = self._runner.start_version(one.query, one.version, stop=json.dumps(goal))
        deadline = time.monotonic() + MEET_SECONDS_MAX
        while running.is_active and time.monotonic() < deadline:
            time.sleep(0.02)
        error = running.error()
        running.stop()
        if error is not None:
            raise QueryFailed(query=one.query.name, why=str(error).splitlines()[0])

    def _sources(self, one: Supervised) -> dict[str, dict[str, int]]:
        identity = self._runner.home.query_id(one.query.name, one.version.number)
        told = self._runner.log.transaction_metadata(identity) if identity is not None else None
        return furthest([source.get("topics", {}) for source in (told or {}).get("sources", [])])

    def _take_over(self, query: Query) -> int:
        """Write what the new version says otherwise, and make it the one in use. May be done again."""
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

    def _bury_trial(self, query: Query, active: Version) -> None:
        """Delete the topic that the version in use had as a trial, if a crash right after the switch has left it."""
        if active.number > 1 and query.output is not None:
            self._delete_topic(replace(active, topic=trial_topic(query.output, active.number)))

    def _delete_topic(self, version: Version) -> None:
        try:
            self._runner.log.delete(str(version.topic))
        except TopicNotFound:
            return

    def _counted(self, query: Query, trial: Version) -> Comparison:
        log, name = self._runner.log, str(query.output)
        bare = self._comparison(query, state="running")
        try:
            columns = [
                column for column in log.topic(name).schema.names if column in log.topic(str(trial.topic)).schema.names
            ]
        except TopicNotFound:
            return bare
        old, new = (contents(log, topic, keyed=query.kind == "view") for topic in (name, str(trial.topic)))
        return replace(
            bare, **compared(old.select(columns), new.select(columns), key=query.key if query.kind == "view" else ())
        )


def furthest(positions: Sequence[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """For each partition of each topic the furthest of several positions.

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
