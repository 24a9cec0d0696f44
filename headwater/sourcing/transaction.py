"""Commands of several entities in one transaction, and decisions over the events of several entities."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.log import Log, Rows
from headwater.log.errors import TransactionFinished
from headwater.log.port import Offsets
from headwater.sourcing.draft import Draft
from headwater.sourcing.entity_store import EntityStore
from headwater.sourcing.event_rows import to_batch
from headwater.sourcing.request import CommandRequest, Decision

if TYPE_CHECKING:
    from headwater.sourcing.entities import Entities


class EntityTransaction:
    """Commands and rows that happen all at once or not at all; see `Entities.transaction`.

    The commands are decided at the commit, in the order in which they were sent, while no other process can append to
    the partitions of their entities.
    """

    def __init__(self, log: Log, entities: Entities[Any, Any, Any]) -> None:
        self._log, self._entities = log, entities
        self._requests: list[tuple[Entities[Any, Any, Any], CommandRequest]] = []
        self._rows: list[tuple[str, Rows]] = []
        self._offsets: list[tuple[str, str, Offsets]] = []
        self._outcome = ""
        #: The decisions after the commit, in the order of the commands.
        self.decisions: list[Decision] = []

    # Any: as in `Entities.send`.
    def send(self, id: str, command: Any, *, entities: Entities[Any, Any, Any] | None = None, **options: Any) -> None:
        """Add a command, also for other entities of the same log."""
        entities = entities or self._entities
        if entities.log is not self._log:
            raise ArgumentInvalid(name="entities", value=entities.name, expected="entities of the same log")
        self._requests.append((entities, CommandRequest(id=id, command=command, **options)))

    def append(self, topic: str, rows: Rows) -> None:
        """Add rows of another topic."""
        self._rows.append((topic, rows))

    def commit_offsets(self, group: str, topic: str, offsets: Offsets) -> None:
        """Commit offsets of a group with the commands."""
        self._offsets.append((group, topic, offsets))

    def commit(self) -> list[Decision]:
        """Do all of it, or raise the first error of a command and do nothing."""
        if self._outcome:
            raise TransactionFinished(transaction=self._entities.name, outcome=self._outcome)
        self._outcome = "rolled back"
        placed = [(entities.store_of(request.id), request) for entities, request in self._requests]
        with ExitStack() as held:
            stores = _hold([store for store, _ in placed], held)
            drafts = {store: store.draft() for store in stores}
            for store, request in placed:
                decision = drafts[store].add(request)
                if decision.error is not None:
                    raise decision.error
                self.decisions.append(decision)
            _commit(self._log, drafts, self._rows, self._offsets)
        self._outcome = "committed"
        return self.decisions

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and not self._outcome:
            self.commit()


def decide_over(
    log: Log, stores: Sequence[EntityStore], store: EntityStore, tags: Sequence[str], request: CommandRequest
) -> Decision:
    """Decide a command over all events with any of these tags, and append its events to one entity.

    All partitions are held meanwhile, so that no event with such a tag can come in between.
    """
    with ExitStack() as held:
        _hold(stores, held)
        draft = store.draft()
        rules = draft.rules
        rules.decider.command_types.check(request.command)
        done = None if request.command_id is None else draft.done(request.id, request.command_id)
        if done is not None:
            return done
        state = _boundary_state(stores, tags)
        events = rules.decide(request.id, state, request.command)
        known = store.known(request.id)
        draft.check_version(request, known)
        decision = draft.append(request, known, events)
        _commit(log, {store: draft})
    return decision


# Any: a state of the user's decider.
def read_boundary(stores: Sequence[EntityStore], tags: Sequence[str]) -> Any:
    """The state after all events with any of these tags, while no event can come in between."""
    with ExitStack() as held:
        _hold(stores, held)
        return _boundary_state(stores, tags)


# Any: a state of the user's decider.
def _boundary_state(stores: Sequence[EntityStore], tags: Sequence[str]) -> Any:
    """The state after all events with any of these tags, of all entities, in the order in which they were decided."""
    found = [(row.at_us, store.partition, row.offset, store, row) for store in stores for row in store.tagged(tags)]
    state = stores[0].rules.decider.initial
    for *_, store, row in sorted(found, key=lambda each: each[:3]):
        state = store.rules.evolve(row.entity, state, store.read(row))
    return state


def _hold(stores: Sequence[EntityStore], held: ExitStack) -> list[EntityStore]:
    """Hold partitions, in one order for all processes: no deadlock."""
    ordered = sorted(set(stores), key=lambda store: (store.topic, store.partition))
    for store in ordered:
        held.enter_context(store.exclusive())
    return ordered


def _commit(
    log: Log,
    drafts: dict[EntityStore, Draft],
    others: Sequence[tuple[str, Rows]] = (),
    positions: Sequence[tuple[str, str, Offsets]] = (),
) -> None:
    """Append the rows of drafts and other topics in one transaction. The caller holds the partitions."""
    changed = {store: draft for store, draft in drafts.items() if draft.rows}
    if not changed and not others and not positions:
        return
    for store in changed:
        store.save_keys()
    with log.transaction() as transaction:
        for store, draft in changed.items():
            transaction.append(store.topic, to_batch(draft.rows), partition=store.partition)
        for topic, rows in others:
            transaction.append(topic, rows)
        for group, topic, offsets in positions:
            transaction.commit_offsets(group, topic, offsets)
    reach("sourcing.committed")
    for store, draft in changed.items():
        store.applied(draft, durable=True)
