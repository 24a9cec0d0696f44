"""The watcher: evaluates all rules every few seconds, writes what has changed, and delivers notifications.

Of all processes that serve or run a log, one is the leader and does this. `look` evaluates all rules once, and
`deliver` tries all due deliveries once; the thread only calls them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.alerts.delivery import Channels, Delivery, Sender, deliveries_of
from headwater.alerts.measurements import Measures, Sample, measurements
from headwater.alerts.rule import Rule
from headwater.alerts.state import (
    WHOLE_RULE,
    AlertState,
    Change,
    Measurement,
    Summary,
    Transition,
    step,
    summary_of,
    tried,
    unknown,
)
from headwater.alerts.store import AlertStore, Listener
from headwater.alerts.time_limit import TimeLimit
from headwater.errors import HeadwaterError, Overdue
from headwater.faults import reach
from headwater.home import is_server
from headwater.log.leader import Leader, leader_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import Log

LOOK_SECONDS = 5.0
#: A statement that takes longer is an error of its rule, and delays no other rule.
STATEMENT_SECONDS_MAX = 10.0
#: A statement that was too slow is run again after this pause, since the evaluation waits for it in vain.
OVERDUE_PAUSE_SECONDS = 60.0
#: Deliveries that are sent at the same time.
SENDERS_MAX = 16
#: How long `close` waits for deliveries that are being sent.
END_SECONDS_MAX = 1.0

logger = logging.getLogger("headwater.alerts")


class Watcher:
    """Evaluates rules, and delivers notifications.

    >>> import tempfile, headwater
    >>> with tempfile.TemporaryDirectory() as folder, headwater.open(folder) as log:
    ...     _ = log.create("orders", "id int64")
    ...     _ = log.append("orders", [{"id": 1}, {"id": 2}])
    ...     log.commit_offsets("billing", "orders", {0: 0})
    ...     watcher = Watcher(log)
    ...     watcher.put(Rule(name="slow", kind="lag", group="billing", threshold=1))
    ...     [(change.state, change.message) for change in watcher.look()]
    [('firing', "Group 'billing' is 2 rows behind in topic 'orders', more than 1 row")]
    """

    def __init__(
        self,
        log: Log,
        measures: Measures | None = None,
        *,
        sender: Sender | None = None,
        look_seconds: float = LOOK_SECONDS,
        statement_seconds_max: float = STATEMENT_SECONDS_MAX,
    ) -> None:
        from headwater.alerts.log_measures import LogMeasures

        self._log = log
        self._measures: Measures = measures or LogMeasures(log)
        self._sender: Sender = sender or Channels.of(log.config)
        self._look_seconds = look_seconds
        self._statement_seconds_max = statement_seconds_max
        self._time_limit: TimeLimit[pa.Table] = TimeLimit()
        self.store = AlertStore(log)
        #: Measurements of the last evaluation by rule and subject, and why there are none.
        self._latest: dict[str, dict[str, Measurement]] = {}
        self._troubles: dict[str, str | None] = {}
        self._looked_us: int | None = None
        self._looking = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._leader: Leader = leader_of(log, "alerts", stopped=self._stopping.is_set)

    # -- rules --------------------------------------------------------------------------------------------------------

    def put(self, rule: Rule) -> None:
        """Add a rule or replace the one of its name. Raise if it cannot be evaluated."""
        if rule.enabled:
            self._found(rule, self._sample())
        self.store.put(rule)
        self._wake.set()

    def preview(self, rule: Rule, *, asker: Hashable = None) -> list[Measurement]:
        """The current measurements of a rule. Nothing is written, and no notification is sent.

        A form calls it while its user types: the earlier statement of the same `asker` is stopped.
        """
        return self._found(rule, self._sample(None if asker is None else ("preview", asker)))

    def remove(self, name: str) -> None:
        self.store.remove(name)
        self._wake.set()

    def pause(self, name: str, *, paused: bool = True) -> Rule:
        """Do not evaluate a rule any more, or evaluate it again."""
        return self._changed(name, enabled=not paused)

    def snooze(self, name: str, *, until_us: int | None) -> Rule:
        """Send no notifications of a rule until a time; None ends that. The rule is still evaluated."""
        return self._changed(name, snoozed_until_us=until_us)

    # Any: values of fields.
    def _changed(self, name: str, **fields: Any) -> Rule:
        self.store.refresh()
        rule = replace(self.store.rule(name), **fields)
        self.store.put(rule)  # without evaluation: a rule whose view was removed can be paused
        self._wake.set()
        return rule

    def rules(self) -> list[Rule]:
        self.store.refresh()
        return sorted(self.store.rules.values(), key=lambda rule: rule.name)

    # -- alert states -------------------------------------------------------------------------------------------------

    def states(self) -> list[Summary]:
        """The state of each rule, with its subjects."""
        self.store.refresh()
        now_us = self._measures.now_us()
        found = [self._summary(rule, now_us) for rule in self.rules()]
        broken = dict(self.store.broken)
        return found + [Summary(name=name, rule=None, state="unknown", error=why) for name, why in broken.items()]

    def state(self, name: str) -> Summary:
        self.store.refresh()
        return self._summary(self.store.rule(name), self._measures.now_us())

    def _summary(self, rule: Rule, now_us: int) -> Summary:
        evaluated = self.store.evaluations.periods(rule.name)
        return summary_of(rule, self._states(rule), now_us=now_us, evaluated=evaluated)

    def history(self, **filters: Any) -> list[Change]:
        """The changes of states, newest first; the filters are those of `AlertStore.history`."""
        return self.store.history(**filters)

    def listen(self, *, after: int | None = None) -> Listener:
        """A listener for changes that browsers show, from now on or from a position in the history."""
        return Listener(self.store, self.store.history_end() if after is None else after)

    @property
    def is_watching(self) -> bool:
        """Whether this process evaluates the rules."""
        return self._leader.is_mine

    def is_watched(self) -> bool:
        """Whether any process evaluates the rules of this log."""
        return is_server(self._log.address) or self._leader.is_held()

    @property
    def looked_us(self) -> int | None:
        """When this process last evaluated the rules."""
        return self._looked_us

    def _states(self, rule: Rule) -> list[AlertState]:
        """The states of a rule's subjects, with the values of this process's last evaluation."""
        known = dict(self.store.states)
        found = {subject: state for (name, subject), state in known.items() if name == rule.name}
        for subject, measurement in self._latest.get(rule.name, {}).items():
            fine = AlertState(rule=rule.name, subject=subject, state="ok", since_us=0, threshold=rule.threshold)
            found[subject] = replace(found.get(subject, fine), value=measurement.value, message=measurement.message)
        if WHOLE_RULE in found and (trouble := self._troubles.get(rule.name)) is not None:
            found[WHOLE_RULE] = replace(found[WHOLE_RULE], message=trouble)
        return [found[subject] for subject in sorted(found)]

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def look(self) -> list[Change]:
        """Evaluate all rules once, and write the changes in one transaction."""
        with self._looking:
            self.store.refresh()
            sample = self._sample(pause_seconds=OVERDUE_PAUSE_SECONDS)
            rules, states = dict(self.store.rules), dict(self.store.states)
            before: dict[str, dict[str, AlertState]] = {}
            for (name, subject), state in states.items():
                before.setdefault(name, {})[subject] = state
            steps = [one for name in sorted(rules) for one in self._steps(rules[name], before.pop(name, {}), sample)]
            for name in before.keys() - self.store.broken.keys():
                steps += self._ended(_stand_in(name), before[name], "The rule was removed.", sample)
            self._write(steps, rules)
            self._looked_us = sample.now_us
            self.store.evaluations.evaluated((name for name, rule in rules.items() if rule.enabled), sample.now_us)
            self.store.write_evaluations(now_us=sample.now_us)
            return [one.change for one in steps if one.change is not None]

    def _steps(self, rule: Rule, before: dict[str, AlertState], sample: Sample) -> list[Transition]:
        if not rule.enabled:
            return self._ended(rule, before, "The rule is paused.", sample)
        found, trouble = self._measurements(rule, sample)
        steps = [unknown(rule, before.get(WHOLE_RULE), trouble, now_us=sample.now_us)]
        if trouble is not None:
            return steps  # nothing was measured, so nothing changes
        gone = [
            Measurement(subject=subject, value=0.0, is_over=False, message="It is no longer found")
            for subject in before
            if subject not in found and subject != WHOLE_RULE
        ]
        for measurement in (*found.values(), *gone):
            steps.append(step(rule, before.get(measurement.subject), measurement, now_us=sample.now_us))
        return steps

    def _measurements(self, rule: Rule, sample: Sample) -> tuple[dict[str, Measurement], str | None]:
        trouble = None
        try:
            found = {measurement.subject: measurement for measurement in self._found(rule, sample)}
        except HeadwaterError as error:
            found, trouble = {}, str(error)
        # The error of one rule must not prevent the evaluation of others: it is shown with its rule.
        except Exception as error:
            found, trouble = {}, f"{type(error).__name__}: {error}"
        self._latest[rule.name], self._troubles[rule.name] = found, trouble
        return found, trouble

    def _found(self, rule: Rule, sample: Sample) -> list[Measurement]:
        try:
            return measurements(rule, sample)
        except TimeoutError:
            if rule.kind != "view":
                raise
            raise Overdue(
                what=f"The statement of rule {rule.name!r} was not done",
                seconds=self._statement_seconds_max,
                instead="Let it ask less: a view that is grouped already, or only the newest rows of a topic "
                "(`_appended_at > …`)",
            ) from None

    def _sample(self, asker: Hashable = None, *, pause_seconds: float = 0.0) -> Sample:
        """A sample of the current values, with a time limit for statements."""

        def run_sql(statement: str, *, rows_max: int) -> pa.Table:
            # By its text: rules with the same statement share its result.
            return self._time_limit.run(
                statement if asker is None else asker,
                lambda stoppable: self._measures.run_sql(statement, rows_max=rows_max, stoppable=stoppable),
                seconds=self._statement_seconds_max,
                pause_seconds=pause_seconds,
                restart=asker is not None,
            )

        return Sample(self._measures, run_sql=run_sql)

    def _ended(self, rule: Rule, before: dict[str, AlertState], why: str, sample: Sample) -> list[Transition]:
        """The transitions of subjects that are no longer evaluated."""
        self._latest.pop(rule.name, None)
        self._troubles.pop(rule.name, None)
        return [_over(rule, state, why, sample.now_us) for state in before.values()]

    def _write(self, steps: list[Transition], rules: dict[str, Rule]) -> None:
        states: list[AlertState | tuple[str, str]] = []
        deliveries: list[Delivery] = []
        changes = [one.change for one in steps if one.change is not None]
        for one in steps:
            if one.after is None and one.before is not None:
                states.append((one.before.rule, one.before.subject))
            elif one.after is not None and one.change is not None:
                states.append(one.after)
        for change in changes:
            if change.is_told:
                deliveries += deliveries_of(change, rules[change.rule])
        reach("alerts.decided")
        self.store.write(states=states, changes=changes, deliveries=deliveries)
        reach("alerts.written")

    # -- notifications ------------------------------------------------------------------------------------------------

    def deliver(self) -> int:
        """Attempt each delivery that is due once, one after the other; return how many attempts there were."""
        due = self.store.outbox.due(self._measures.now_us())
        for delivery in due:
            self._attempt(delivery)
        return len(due)

    def _attempt(self, delivery: Delivery) -> None:
        try:
            after = self._sender.send(delivery, now_us=self._measures.now_us())
            reach("alerts.sent")
            self.store.outbox.take(after)  # before it is written: if that fails, it is not sent again
        except Exception as error:  # logged here, since the thread has no caller
            logger.error("an alert could not be sent to %s: %s", delivery.target, error)
            return
        finally:
            self.store.outbox.release(delivery)  # otherwise its receiver would get nothing any more
        try:
            self.store.write(deliveries=[after])
        except Exception as error:
            logger.error("the delivery of an alert could not be written: %s", error)
        self._wake.set()  # the next notification for the same receiver can be sent

    def test(self, name: str) -> list[Delivery]:
        """Send a test notification to all receivers of a rule now; return the deliveries."""
        self.store.refresh()
        rule = self.store.rule(name)
        change = tried(rule, now_us=self._measures.now_us())
        with ThreadPoolExecutor(SENDERS_MAX) as senders:
            sent = list(
                senders.map(lambda one: self._sender.send(one, now_us=change.at_us), deliveries_of(change, rule))
            )
        # A test that fails is not retried: the caller gets its error.
        over = [one if one.state != "waiting" else one.refused(one.error or "") for one in sent]
        self.store.write(changes=[change], deliveries=over)
        return over

    # -- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Evaluate rules in a thread; while another process does so for this log, wait for its end.

        The rules of a remote log are evaluated by its own server.
        """
        if self._thread is None and not self._log.read_only and not is_server(self._log.address):
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="headwater-alerts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread. The process that evaluates rules next sends the open deliveries."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                self._evaluate_and_deliver()
                self._wake.wait(self._look_seconds)
        finally:
            with contextlib.suppress(HeadwaterError):  # for example a full disk: up to a minute is not known then
                if self._leader.is_mine:
                    self.store.write_evaluations(now_us=self._measures.now_us(), everything=True)
            # The next process sends what is not written as sent, so current attempts may finish first.
            self.store.outbox.wait_until_idle(seconds=END_SECONDS_MAX)
            with contextlib.suppress(
                HeadwaterError
            ):  # a log that does not answer: it frees the lease after its seconds
                self._leader.release()

    def _evaluate_and_deliver(self) -> None:
        try:
            if not self._leader.acquire():
                self.store.refresh()
                return
            self.look()
            if not self._leader.is_mine:  # the evaluation took longer than the lease: its next holder sends them
                return
            for delivery in self.store.outbox.begin(self._measures.now_us(), count_max=SENDERS_MAX):
                # A thread for each attempt: one that hangs delays neither the others nor `close`.
                name = f"headwater-alert-{delivery.id[:8]}"
                threading.Thread(target=self._attempt, args=[delivery], name=name, daemon=True).start()
        # For example a full disk, or a log that is being closed: the next evaluation may succeed.
        except Exception as error:
            if not self._stopping.is_set():
                logger.error("alerts could not be evaluated: %s", error)

    @contextlib.contextmanager
    def running(self) -> Iterator[Watcher]:
        """Run the thread while the block runs."""
        self.start()
        try:
            yield self
        finally:
            self.close()


def _over(rule: Rule, state: AlertState, why: str, now_us: int) -> Transition:
    if state.subject == WHOLE_RULE:
        return unknown(rule, state, None, now_us=now_us)
    measurement = Measurement(subject=state.subject, value=state.value, is_over=False, message=why)
    return step(rule, state, measurement, now_us=now_us, is_watched=False)


def _stand_in(name: str) -> Rule:
    """A rule in place of a removed one: only its name is needed to end it."""
    return Rule(name=name, kind="query_down", query="*")
