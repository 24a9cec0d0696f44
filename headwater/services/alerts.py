"""Alerts: rules and their states, the history of what fired, and who was notified."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from headwater.alerts import Change, Delivery, Measurement, Rule, Summary
from headwater.alerts.store import HISTORY_TOPIC
from headwater.errors import ArgumentInvalid
from headwater.services.callers import EVERY
from headwater.services.route import Service, route
from headwater.services.wait import LOOK_AGAIN_SECONDS

HISTORY_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All rules with their states, and whether they are evaluated."""

    watching: bool
    """Whether the process that answers evaluates the rules."""
    watched: bool
    """Whether any process does."""
    looked_at_us: int | None = None
    """When the process that answers last evaluated them."""
    deliveries_waiting: int = 0
    """Notifications that have not reached their receivers yet."""
    rules: list[Summary] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class HistoryEntry(Change):
    """One change of a state, and the notifications of it."""

    deliveries: list[Delivery] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class NewChanges:
    """Changes that browsers show, and the position in the history to go on from."""

    changes: list[Change] = field(default_factory=list)
    next: int = 0


class Alerts(Service):
    """What can be done with alert rules. The address of a webhook is shown only to callers who may change it."""

    @route("GET", "/alerts", scope="read:*")
    def rules(self) -> Rules:
        """List all rules with their states."""
        watcher = self.host.watcher
        rules = [self._shown(one) for one in watcher.states()]
        return Rules(
            watching=watcher.is_watching,
            watched=watcher.is_watched(),
            looked_at_us=watcher.looked_us,
            deliveries_waiting=len(watcher.store.outbox.open),
            rules=rules,
        )

    @route("GET", "/alerts/rules/{name}", scope="read:*")
    def rule(self, name: str) -> Summary:
        """Read one rule and its state."""
        known = next((one for one in self.host.watcher.states() if one.name == name), None)
        # The watcher raises, with a similar name.
        return self._shown(known or self.host.watcher.state(name))

    @route("PUT", "/alerts/rules/{name}", scope="admin:*")
    def set(self, rule: Rule) -> Summary:
        """Add a rule, or replace the one of its name. A rule that cannot be evaluated is an error."""
        self.host.watcher.put(rule)
        return self.rule(rule.name)

    @route("POST", "/alerts/preview", scope="admin:*", audited=False)
    def preview(self, rule: Rule, *, form: str = "") -> list[Measurement]:
        """Measure what a rule would measure now. Nothing is written, and no notification is sent.

        A form calls again while its user writes: a call of the same `form` before is stopped.
        """
        return self.host.watcher.preview(rule, asker=(self.caller.name, form) if form else None)

    @route("DELETE", "/alerts/rules/{name}", scope="admin:*")
    def remove(self, name: str) -> None:
        """Remove a rule. Its history stays."""
        self.host.watcher.remove(name)

    @route("POST", "/alerts/rules/{name}/pause", scope="admin:*")
    def pause(self, name: str) -> Summary:
        """Pause a rule: it is not evaluated until it is resumed."""
        self.host.watcher.pause(name)
        return self.rule(name)

    @route("POST", "/alerts/rules/{name}/resume", scope="admin:*")
    def resume(self, name: str) -> Summary:
        """Evaluate a paused rule again."""
        self.host.watcher.pause(name, paused=False)
        return self.rule(name)

    @route("POST", "/alerts/rules/{name}/snooze", scope="admin:*")
    def snooze(self, name: str, until_us: int | None = None) -> Summary:
        """Send no notifications of a rule until a moment; null ends that. The rule is evaluated all the while."""
        if until_us is not None and until_us < 0:
            raise ArgumentInvalid(name="until_us", value=until_us, expected="microseconds since 1970, or nothing")
        self.host.watcher.snooze(name, until_us=until_us)
        return self.rule(name)

    @route("POST", "/alerts/rules/{name}/test", scope="admin:*")
    def test(self, name: str) -> list[Delivery]:
        """Send a test notification to all receivers of a rule now, and answer how each delivery went."""
        return [self._delivery(one) for one in self.host.watcher.test(name)]

    # -- history ------------------------------------------------------------------------------------------------------

    @route("GET", "/alerts/history", scope="read:*")
    def history(
        self,
        rule: str | None = None,
        *,
        state: list[str] | None = None,
        since_us: int | None = None,
        limit: int = 100,
    ) -> list[HistoryEntry]:
        """Read the changes of states, newest first, with the notifications of each."""
        if not 1 <= limit <= HISTORY_MAX:
            raise ArgumentInvalid(name="limit", value=limit, expected=f"a number from 1 to {HISTORY_MAX:,}")
        watcher = self.host.watcher
        watcher.store.refresh()
        changes = watcher.history(rule=rule, since_us=since_us, limit=limit, states=state or ())
        deliveries = watcher.store.outbox.of(change.id for change in changes)
        return [
            HistoryEntry(**vars(change), deliveries=[self._delivery(one) for one in deliveries[change.id]])
            for change in changes
        ]

    @route("GET", "/alerts/changes", scope="read:*", served_by="changes_in_event_loop")
    def changes(self, after: int | None = None, *, wait_seconds: float = 0.0) -> NewChanges:
        """Read the changes that browsers show, from a position in the history on; wait for so long if there is none yet.

        Without `after` the answer has no changes: it only says where the history ends now.
        """
        if after is not None and after < 0:
            raise ArgumentInvalid(name="after", value=after, expected="0 or more")
        listener = self.host.watcher.listen(after=after)
        changes = [] if after is None else listener.wait(seconds=self.host.seconds(wait_seconds))
        return NewChanges(changes=changes, next=listener.position)

    async def changes_in_event_loop(self, after: int | None = None, *, wait_seconds: float = 0.0) -> NewChanges:
        """The same as `changes`, without a thread for each caller that waits."""
        deadline = time.monotonic() + self.host.seconds(wait_seconds)
        answer = await self.host.run(partial(self.changes, after))
        while after is not None and not answer.changes and not self.host.closing:
            left = min(deadline - time.monotonic(), LOOK_AGAIN_SECONDS)
            if left <= 0:
                break
            paths = await self.host.run(self._history_paths)
            with self.host.file_events.waiting(dict.fromkeys(paths, "rows")) as waiter:
                await waiter.wait(seconds=left)
            answer = await self.host.run(partial(self.changes, answer.next))
        return answer

    # -- inside -------------------------------------------------------------------------------------------------------

    def _history_paths(self) -> list[Path]:
        """The files that change with the history. Until there is a history, they cannot be watched."""
        known = self.log.topics(HISTORY_TOPIC, internal=True)
        return self.log.row_watch({name: {} for name in known}).paths

    def _shown(self, summary: Summary) -> Summary:
        if summary.rule is None or not summary.rule.webhooks or self.caller.may("admin", EVERY):
            return summary
        webhooks = tuple(_without_secret(url) for url in summary.rule.webhooks)
        return replace(summary, rule=replace(summary.rule, webhooks=webhooks))

    def _delivery(self, delivery: Delivery) -> Delivery:
        is_secret = delivery.channel == "webhook" and not self.caller.may("admin", EVERY)
        target = _without_secret(delivery.target) if is_secret else delivery.target
        return replace(delivery, target=target, body=None)


def _without_secret(url: str) -> str:
    """The address of a webhook without its path: the whole address is often enough to write there.

    >>> _without_secret("https://example.org/hooks/s3cret")
    'https://example.org/…'
    """
    return "/".join(url.split("/")[:3]) + "/…"
