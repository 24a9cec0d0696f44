"""The alert store: rules, alert states, history, deliveries and evaluation periods, kept in five internal topics of the log.

    __alerts             compacted by name: the rules
    __alert_states       compacted by rule and subject: the state of each subject; a tombstone is ok
    __alert_history      one record for each change of a state
    __alert_deliveries   notifications, to whom, and how that went
    __alert_evaluations  compacted by rule and begin: the periods in which each rule was evaluated

An evaluation writes to states, history and deliveries in one transaction. So all processes have the same state: when a process dies, the
next one continues where it was.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.alerts.delivery import Delivery, Outbox
from headwater.alerts.evaluations import Evaluations
from headwater.alerts.rule import Rule
from headwater.alerts.state import AlertState, Change
from headwater.clock import time_us
from headwater.errors import HeadwaterError, NotFound, did_you_mean
from headwater.log import Retention, Topic
from headwater.schema import parse_schema
from headwater.units import DAY, MIB

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Log

RULES_TOPIC = "__alerts"
STATES_TOPIC = "__alert_states"
HISTORY_TOPIC = "__alert_history"
DELIVERIES_TOPIC = "__alert_deliveries"
EVALUATIONS_TOPIC = "__alert_evaluations"
HISTORY_SECONDS_MAX = 90 * DAY
#: Longer than a delivery is retried, so that no open delivery is ever forgotten.
DELIVERIES_SECONDS_MAX = 30 * DAY

_RULES: pa.Schema = parse_schema("name string not null, rule string not null, at timestamp not null")
_STATES: pa.Schema = parse_schema(
    "rule string not null, subject string not null, state string not null, since timestamp not null, "
    "value float64 not null, threshold float64 not null, message string not null, is_told bool not null, "
    "firing_id string not null"
)
_HISTORY: pa.Schema = parse_schema(
    "id string not null, at timestamp not null, rule string not null, subject string not null, "
    "state string not null, value float64 not null, threshold float64 not null, severity string not null, "
    "message string not null, is_told bool not null, browser bool not null, firing_id string not null"
)
_DELIVERIES: pa.Schema = parse_schema(
    "id string not null, at timestamp not null, change string not null, rule string not null, channel string not null, "
    "target string not null, state string not null, attempts int32 not null, next_at timestamp not null, "
    "error string, body string"
)
_EVALUATIONS: pa.Schema = parse_schema("rule string not null, begin timestamp not null, end timestamp")

# Any: a row, whose values are of any type.
Row = dict[str, Any]
T = TypeVar("T", AlertState, Change, Delivery)


class AlertStore:
    """Reads the alerts of a log up to the current end, and is the only writer of them."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.rules: dict[str, Rule] = {}
        self.states: dict[tuple[str, str], AlertState] = {}
        self.outbox = Outbox()
        self.evaluations = Evaluations()
        #: Rules that cannot be parsed: their names, and why.
        self.broken: dict[str, str] = {}
        self._next: dict[str, int] = {}
        self._lock = threading.RLock()

    def refresh(self) -> None:
        """Read the rows that were written since the last call."""
        with self._lock:
            for topic, take in (
                (RULES_TOPIC, self._take_rule),
                (STATES_TOPIC, self._take_state),
                (DELIVERIES_TOPIC, lambda row: self.outbox.take(_from_row(Delivery, _DELIVERIES, row))),
                (EVALUATIONS_TOPIC, self._take_evaluation),
            ):
                for rows in self._new_rows(topic):
                    for row in rows:
                        take(row)

    # -- writing ------------------------------------------------------------------------------------------------------

    def put(self, rule: Rule) -> None:
        """Add a rule, or replace the one of its name."""
        self._make()
        at_us = self.log.clock.now_us()
        self.log.append(RULES_TOPIC, [{"name": rule.name, "rule": rule.as_json(), "at": at_us}])
        self.refresh()

    def remove(self, name: str) -> Rule | None:
        """Remove a rule; raise `NotFound` if there is none. Return None for one that cannot be parsed."""
        self.refresh()
        found = None if name in self.broken else self.rule(name)
        self.log.append(RULES_TOPIC, [{"name": name, "_tombstone": True}])
        self.refresh()
        return found

    def rule(self, name: str) -> Rule:
        if name not in self.rules:
            raise NotFound(kind="alert rule", name=name, near=did_you_mean(name, self.rules))
        return self.rules[name]

    def write(
        self,
        *,
        states: Iterable[AlertState | tuple[str, str]] = (),
        changes: Sequence[Change] = (),
        deliveries: Sequence[Delivery] = (),
    ) -> None:
        """Write the changes of an evaluation in one transaction; a pair of rule and subject is ok again."""
        given = {
            STATES_TOPIC: [
                {"rule": one[0], "subject": one[1], "_tombstone": True} if isinstance(one, tuple) else _to_row(one)
                for one in states
            ],
            HISTORY_TOPIC: [_to_row(one) for one in changes],
            DELIVERIES_TOPIC: [_to_row(one) for one in deliveries],
        }
        if not any(given.values()):
            return
        self._make()
        with self.log.transaction() as transaction:
            for topic, rows in given.items():
                if rows:
                    transaction.append(topic, rows)
        self.refresh()

    def write_evaluations(self, *, now_us: int, everything: bool = False) -> None:
        """Write how long rules have been evaluated: once a minute for each rule, or now (`everything`)."""
        with self._lock:
            due = self.evaluations.due(now_us, everything=everything)
            if not due:
                return
            self._make()
            rows = [
                {"rule": rule, "begin": begin, **({"_tombstone": True} if end is None else {"end": end})}
                for rule, begin, end in due
            ]
            self.log.append(EVALUATIONS_TOPIC, rows)
            self.evaluations.written(due)

    # -- reading ------------------------------------------------------------------------------------------------------

    def history(
        self, *, rule: str | None = None, since_us: int | None = None, limit: int = 100, states: Sequence[str] = ()
    ) -> list[Change]:
        """The changes of states, newest first."""
        if not self._exists(HISTORY_TOPIC):
            return []
        found: list[Change] = []
        for batch in self._backwards(HISTORY_TOPIC):
            for row in reversed(batch):
                change = _change(row)
                if since_us is not None and change.at_us < since_us:
                    return found
                if (rule is None or change.rule == rule) and (not states or change.state in states):
                    found.append(change)
                if len(found) >= limit:
                    return found
        return found

    def changes(self, after: int, *, limit: int = 1_000) -> tuple[list[Change], int]:
        """The changes from a position of the history on, oldest first, and the position behind them."""
        if not self._exists(HISTORY_TOPIC):
            return [], 0
        start, end = self.log.start_offsets(HISTORY_TOPIC)[0], self.log.end_offsets(HISTORY_TOPIC)[0]
        begin = min(max(after, start), end)
        rows = self.log.read(HISTORY_TOPIC, start=begin, limit=limit).rows()
        return [_change(row) for row in rows], rows[-1]["_offset"] + 1 if rows else begin

    def wait(self, position: int, *, seconds: float) -> None:
        """Wait until the history has records behind a position, for so many seconds at most."""
        if self._exists(HISTORY_TOPIC):
            self.log.wait(HISTORY_TOPIC, after={0: position}, seconds=seconds)
        else:
            time.sleep(seconds)

    def history_end(self) -> int:
        return self.log.end_offsets(HISTORY_TOPIC)[0] if self._exists(HISTORY_TOPIC) else 0

    def _backwards(self, topic: str, *, chunk: int = 1_000) -> Iterator[list[Row]]:
        start, stop = self.log.start_offsets(topic)[0], self.log.end_offsets(topic)[0]
        while stop > start:
            begin = max(start, stop - chunk)
            with contextlib.suppress(HeadwaterError):  # retention has deleted the oldest
                yield self.log.read(topic, start=begin, stop={0: stop}).rows()
            stop = begin

    # -- following the log --------------------------------------------------------------------------------------------

    def _new_rows(self, topic: str) -> Iterator[list[Row]]:
        if not self._exists(topic):
            return
        start, end = self.log.start_offsets(topic)[0], self.log.end_offsets(topic)[0]
        begin = max(self._next.get(topic, 0), start)
        if begin > end:  # it was deleted and created again
            begin = start
        if begin == end:
            return
        for batch in self.log.read(topic, start=begin).batches():
            yield batch.rows()
            self._next[topic] = batch.offset_next

    def _take_rule(self, row: Row) -> None:
        name = row["name"]
        if row["_tombstone"]:
            self.rules.pop(name, None)
            self.broken.pop(name, None)
            return
        try:
            self.rules[name] = Rule.from_json(row["rule"])
            self.broken.pop(name, None)
        except (
            HeadwaterError,
            TypeError,
            ValueError,
        ) as error:  # written by another version; it must not stop the rest
            self.broken[name] = str(error)
            self.rules.pop(name, None)

    def _take_state(self, row: Row) -> None:
        place = (row["rule"], row["subject"])
        if row["_tombstone"]:
            self.states.pop(place, None)
        else:
            self.states[place] = _from_row(AlertState, _STATES, row)

    def _take_evaluation(self, row: Row) -> None:
        end_us = None if row["_tombstone"] else time_us(row["end"])
        self.evaluations.take(row["rule"], time_us(row["begin"]), end_us)

    def _exists(self, topic: str) -> bool:
        return bool(self.log.topics(topic, internal=True))

    def _make(self) -> None:
        for topic in _topics(self.log.clock.now_us()):
            self.log.create_internal(topic)


def _topics(now_us: int) -> list[Topic]:
    def one(number: int, name: str, schema: pa.Schema, **more: Any) -> Topic:
        id = f"a1e27{number:02}" + "0" * 25
        return Topic(name=name, id=id, schema=schema, created_us=now_us, segment_bytes_max=8 * MIB, **more)

    return [
        one(1, RULES_TOPIC, _RULES, key=("name",), compact=True),
        one(2, STATES_TOPIC, _STATES, key=("rule", "subject"), compact=True),
        one(3, HISTORY_TOPIC, _HISTORY, time="at", retention=Retention(seconds_max=HISTORY_SECONDS_MAX)),
        one(4, DELIVERIES_TOPIC, _DELIVERIES, time="at", retention=Retention(seconds_max=DELIVERIES_SECONDS_MAX)),
        one(5, EVALUATIONS_TOPIC, _EVALUATIONS, key=("rule", "begin"), compact=True, durability="os"),
    ]


# -- values as rows, and back -----------------------------------------------------------------------------------------


#: Fields that are times, and their columns.
_TIMES = {"since_us": "since", "at_us": "at", "next_us": "next_at"}
_FIELDS = {column: name for name, column in _TIMES.items()}


def _to_row(value: AlertState | Change | Delivery) -> Row:
    # The offset of a change is its place in the history.
    return {_TIMES.get(name, name): given for name, given in vars(value).items() if name != "offset"}


# Any: the offset of a change.
def _from_row(kind: type[T], schema: pa.Schema, row: Row, **more: Any) -> T:
    values: dict[str, Any] = {
        _FIELDS.get(name, name): time_us(row[name]) if name in _FIELDS else row[name] for name in schema.names
    }
    return kind(**values, **more)


def _change(row: Row) -> Change:
    return _from_row(Change, _HISTORY, row, offset=row["_offset"])


_CHECK_SECONDS = 1.0


class Listener:
    """A position in the history of alerts. It works in any process, whichever of them evaluates the rules."""

    def __init__(self, store: AlertStore, position: int) -> None:
        self._store = store
        #: The first record that was not returned yet.
        self.position = position

    def poll(self) -> list[Change]:
        """The changes since the last call that browsers show."""
        found, self.position = self._store.changes(self.position)
        return [change for change in found if change.browser]

    def wait(self, *, seconds: float) -> list[Change]:
        """Like `poll`, but wait until there are some, for so many seconds at most."""
        deadline = time.monotonic() + seconds
        while not (found := self.poll()) and (left := deadline - time.monotonic()) > 0:
            self._store.wait(self.position, seconds=min(left, _CHECK_SECONDS))
        return found
