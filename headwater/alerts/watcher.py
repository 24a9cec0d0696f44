"""The watcher: looks at all rules every few seconds, writes down what has changed, and has people told.

Of all processes that serve or run a log, one watches (see `turn`). A look is a plain call (`look`), and so is telling
(`deliver`); the thread only calls them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.alerts.book import Book
from headwater.alerts.channels import Channels, Sender
from headwater.alerts.deliveries import Delivery, deliveries_of
from headwater.alerts.judging import readings
from headwater.alerts.listening import Listener
from headwater.alerts.measures import Look, Measures
from headwater.alerts.patience import Patience
from headwater.alerts.rule import Rule
from headwater.alerts.standing import WHOLE_RULE, Change, Reading, Standing, Step, step, tried, unknown
from headwater.alerts.summary import Summary, summary_of
from headwater.alerts.turn import Turn
from headwater.errors import AlertOverdue, HeadwaterError
from headwater.faults import reach

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog

LOOK_SECONDS = 5.0
#: A statement that takes longer is shown to be too slow, and holds up no other rule.
STATEMENT_SECONDS_MAX = 10.0
#: One that was too slow is asked again after so long: the look waits for it, and the machine works for nothing.
OVERDUE_PAUSE_SECONDS = 60.0
#: Receivers that are told at once.
SENDERS_MAX = 16
#: How long the end waits for those that are being told.
END_SECONDS_MAX = 1.0

logger = logging.getLogger("headwater.alerts")


class Watcher:
    """Rules that are watched.

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
        log: EmbeddedLog,
        measures: Measures | None = None,
        *,
        sender: Sender | None = None,
        look_seconds: float = LOOK_SECONDS,
        statement_seconds_max: float = STATEMENT_SECONDS_MAX,
    ) -> None:
        from headwater.alerts.measuring import LogMeasures

        self._log = log
        self._measures: Measures = measures or LogMeasures(log)
        self._sender: Sender = sender or Channels.of(log.config)
        self._look_seconds = look_seconds
        self._statement_seconds_max = statement_seconds_max
        self._patience: Patience[pa.Table] = Patience()
        self.book = Book(log)
        #: What the last look has found, by rule and subject, and why it has found nothing.
        self._latest: dict[str, dict[str, Reading]] = {}
        self._troubles: dict[str, str | None] = {}
        self._looked_us: int | None = None
        self._looking = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._turn = Turn(log.path / "server" / "alerts.lock")

    # -- rules --------------------------------------------------------------------------------------------------------

    def put(self, rule: Rule) -> None:
        """Add a rule or replace the one of its name, after trying it: one that could never be looked at is refused."""
        if rule.enabled:
            self._found(rule, self._glance())
        self.book.put(rule)
        self._wake.set()

    def preview(self, rule: Rule, *, asker: Hashable = None) -> list[Reading]:
        """What a rule would find now: nothing is written down, and nobody is told.

        Somebody who is still writing asks again and again: a statement that the same `asker` has asked before is stopped.
        """
        return self._found(rule, self._glance(None if asker is None else ("preview", asker)))

    def remove(self, name: str) -> None:
        self.book.remove(name)
        self._wake.set()

    def pause(self, name: str, *, paused: bool = True) -> Rule:
        """Do not look at a rule until further notice, or look again."""
        return self._changed(name, enabled=not paused)

    def snooze(self, name: str, *, until_us: int | None) -> Rule:
        """Tell nobody of a rule until a moment; None tells again at once. It is looked at all the while."""
        return self._changed(name, snoozed_until_us=until_us)

    # Any: values of fields.
    def _changed(self, name: str, **fields: Any) -> Rule:
        self.book.refresh()
        rule = replace(self.book.rule(name), **fields)
        self.book.put(rule)  # as it is: pausing a rule whose view is gone must work
        self._wake.set()
        return rule

    def rules(self) -> list[Rule]:
        self.book.refresh()
        return sorted(self.book.rules.values(), key=lambda rule: rule.name)

    # -- how things stand ---------------------------------------------------------------------------------------------

    def states(self) -> list[Summary]:
        """How each rule stands, with its subjects."""
        self.book.refresh()
        now_us = self._measures.now_us()
        found = [summary_of(rule, self._standings(rule), now_us=now_us) for rule in self.rules()]
        broken = dict(self.book.broken)
        return found + [Summary(name=name, rule=None, state="unknown", error=why) for name, why in broken.items()]

    def state(self, name: str) -> Summary:
        self.book.refresh()
        rule = self.book.rule(name)
        return summary_of(rule, self._standings(rule), now_us=self._measures.now_us())

    def history(self, **filters: Any) -> list[Change]:
        """The changes of states, newest first; see `Book.history` for what can be asked for."""
        return self.book.history(**filters)

    def listen(self, *, after: int | None = None) -> Listener:
        """Hear of changes that browsers are to show, from now on or from a place in the history."""
        return Listener(self.book, self.book.history_end() if after is None else after)

    @property
    def is_watching(self) -> bool:
        """Whether it is this process that looks."""
        return self._turn.is_mine

    def is_watched(self) -> bool:
        """Whether any process looks at the rules of this log."""
        return self._turn.is_taken()

    @property
    def looked_us(self) -> int | None:
        """When this process last looked at the rules."""
        return self._looked_us

    def _standings(self, rule: Rule) -> list[Standing]:
        """How the subjects of a rule stand, with the values of the last look where they are known here."""
        known = dict(self.book.standings)
        found = {subject: standing for (name, subject), standing in known.items() if name == rule.name}
        for subject, reading in self._latest.get(rule.name, {}).items():
            fine = Standing(rule=rule.name, subject=subject, state="ok", since_us=0, threshold=rule.threshold)
            found[subject] = replace(found.get(subject, fine), value=reading.value, message=reading.message)
        if WHOLE_RULE in found and (trouble := self._troubles.get(rule.name)) is not None:
            found[WHOLE_RULE] = replace(found[WHOLE_RULE], message=trouble)
        return [found[subject] for subject in sorted(found)]

    # -- looking ------------------------------------------------------------------------------------------------------

    def look(self) -> list[Change]:
        """Look at all rules once, and write down what has changed, all at once or nothing."""
        with self._looking:
            self.book.refresh()
            look = self._glance(pause_seconds=OVERDUE_PAUSE_SECONDS)
            rules, standings = dict(self.book.rules), dict(self.book.standings)
            before: dict[str, dict[str, Standing]] = {}
            for (name, subject), standing in standings.items():
                before.setdefault(name, {})[subject] = standing
            steps = [one for name in sorted(rules) for one in self._steps(rules[name], before.pop(name, {}), look)]
            for name in before.keys() - self.book.broken.keys():
                steps += self._ended(_stand_in(name), before[name], "The rule was removed.", look)
            self._write(steps, rules)
            self._looked_us = look.now_us
            return [one.change for one in steps if one.change is not None]

    def _steps(self, rule: Rule, before: dict[str, Standing], look: Look) -> list[Step]:
        if not rule.enabled:
            return self._ended(rule, before, "The rule is paused.", look)
        found, trouble = self._readings(rule, look)
        steps = [unknown(rule, before.get(WHOLE_RULE), trouble, now_us=look.now_us)]
        if trouble is not None:
            return steps  # nothing is known, so that nothing changes
        gone = [
            Reading(subject=subject, value=0.0, is_over=False, message="It is no longer found")
            for subject in before
            if subject not in found and subject != WHOLE_RULE
        ]
        for reading in (*found.values(), *gone):
            steps.append(step(rule, before.get(reading.subject), reading, now_us=look.now_us))
        return steps

    def _readings(self, rule: Rule, look: Look) -> tuple[dict[str, Reading], str | None]:
        trouble = None
        try:
            found = {reading.subject: reading for reading in self._found(rule, look)}
        except HeadwaterError as error:
            found, trouble = {}, str(error)
        # One rule's trouble, whatever it is, must not keep the others from being looked at: it is shown with its rule.
        except Exception as error:
            found, trouble = {}, f"{type(error).__name__}: {error}"
        self._latest[rule.name], self._troubles[rule.name] = found, trouble
        return found, trouble

    def _found(self, rule: Rule, look: Look) -> list[Reading]:
        try:
            return readings(rule, look)
        except TimeoutError:
            if rule.kind != "view":
                raise
            raise AlertOverdue(rule=rule.name, seconds=self._statement_seconds_max) from None

    def _glance(self, asker: Hashable = None, *, pause_seconds: float = 0.0) -> Look:
        """A look at things as they are now, that waits only so long for statements and then stops them."""

        def run_sql(statement: str, *, rows_max: int) -> pa.Table:
            # By its text: whatever else is changed in a rule asks nothing new.
            return self._patience.run(
                statement if asker is None else asker,
                lambda stoppable: self._measures.run_sql(statement, rows_max=rows_max, stoppable=stoppable),
                seconds=self._statement_seconds_max,
                pause_seconds=pause_seconds,
                anew=asker is not None,
            )

        return Look(self._measures, run_sql=run_sql)

    def _ended(self, rule: Rule, before: dict[str, Standing], why: str, look: Look) -> list[Step]:
        """What becomes of subjects that nobody looks at any more."""
        self._latest.pop(rule.name, None)
        self._troubles.pop(rule.name, None)
        return [_over(rule, standing, why, look.now_us) for standing in before.values()]

    def _write(self, steps: list[Step], rules: dict[str, Rule]) -> None:
        standings: list[Standing | tuple[str, str]] = []
        deliveries: list[Delivery] = []
        changes = [one.change for one in steps if one.change is not None]
        for one in steps:
            if one.after is None and one.before is not None:
                standings.append((one.before.rule, one.before.subject))
            elif one.after is not None and one.change is not None:
                standings.append(one.after)
        for change in changes:
            if change.is_told:
                deliveries += deliveries_of(change, rules[change.rule])
        reach("alerts.decided")
        self.book.write(standings=standings, changes=changes, deliveries=deliveries)
        reach("alerts.written")

    # -- telling ------------------------------------------------------------------------------------------------------

    def deliver(self) -> int:
        """Try once to tell whatever is due, one after the other; returns how many attempts that were."""
        due = self.book.outbox.due(self._measures.now_us())
        for delivery in due:
            self._attempt(delivery)
        return len(due)

    def _attempt(self, delivery: Delivery) -> None:
        try:
            after = self._sender.send(delivery, now_us=self._measures.now_us())
            reach("alerts.sent")
            self.book.outbox.take(after)  # at once: where it cannot be written down, it is not sent again all the same
        except Exception as error:  # told here, for the thread that sends has nobody to tell
            logger.error("an alert could not be sent to %s: %s", delivery.target, error)
            return
        finally:
            self.book.outbox.let_go(delivery)  # whatever happens: a receiver that is held is told nothing any more
        try:
            self.book.write(deliveries=[after])
        except Exception as error:
            logger.error("the delivery of an alert could not be written down: %s", error)
        self._wake.set()  # the next thing for the same receiver may go out

    def test(self, name: str) -> list[Delivery]:
        """Tell everybody whom a rule would tell, now, that this is a test; returns how that went."""
        self.book.refresh()
        rule = self.book.rule(name)
        change = tried(rule, now_us=self._measures.now_us())
        with ThreadPoolExecutor(SENDERS_MAX) as senders:
            sent = list(
                senders.map(lambda one: self._sender.send(one, now_us=change.at_us), deliveries_of(change, rule))
            )
        # A test that fails is not tried again: whoever asked for it has been told.
        over = [one if one.state != "waiting" else one.refused(one.error or "") for one in sent]
        self.book.write(changes=[change], deliveries=over)
        return over

    # -- the thread ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Watch from now on, in a thread; while another process watches this log, wait for its end."""
        if self._thread is None and not self._log.read_only:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="headwater-alerts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop watching. What is still to be told is told by whoever watches next."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(10)
            self._thread = None

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                self._turn_once()
                self._wake.wait(self._look_seconds)
        finally:
            # Whoever watches next tells what is not written down as told, so that those at it may end first.
            self.book.outbox.wait_until_idle(seconds=END_SECONDS_MAX)
            self._turn.give_back()

    def _turn_once(self) -> None:
        try:
            if not self._turn.take():
                self.book.refresh()
                return
            self.look()
            for delivery in self.book.outbox.begin(self._measures.now_us(), count_max=SENDERS_MAX):
                # A thread for each, that ends with its attempt: one that hangs holds up neither the others nor the end.
                name = f"headwater-alert-{delivery.id[:8]}"
                threading.Thread(target=self._attempt, args=[delivery], name=name, daemon=True).start()
        # A full disk, a log that is being closed: the next look may go well, and until then it is told here.
        except Exception as error:
            if not self._stopping.is_set():
                logger.error("alerts could not be looked at: %s", error)

    @contextlib.contextmanager
    def running(self) -> Iterator[Watcher]:
        """Watch while the block runs."""
        self.start()
        try:
            yield self
        finally:
            self.close()


def _over(rule: Rule, standing: Standing, why: str, now_us: int) -> Step:
    if standing.subject == WHOLE_RULE:
        return unknown(rule, standing, None, now_us=now_us)
    reading = Reading(subject=standing.subject, value=standing.value, is_over=False, message=why)
    return step(rule, standing, reading, now_us=now_us, is_watched=False)


def _stand_in(name: str) -> Rule:
    """A rule in place of one that is gone: nothing but its name is needed to end it."""
    return Rule(name=name, kind="query_down", query="*")
