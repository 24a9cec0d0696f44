"""Alerts: rules and their states, the history of what fired, and who was notified."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.alerts import Change, Delivery, Measurement, Rule, Summary
from headwater.errors import ArgumentInvalid
from headwater.services.callers import EVERY
from headwater.services.route import Service, route

if TYPE_CHECKING:
    pass

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
    """Changes that browsers show, and the place in the history to go on from."""

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
        """One rule and its state."""
        known = next((one for one in self.host.watcher.states() if one.name == name), None)
        # The watcher knows which names are near to one that no rule has.
        return self._shown(known or self.host.watcher.state(name))

    @route("PUT", "/alerts/rules/{name}", scope="admin:*")
    def set(self, rule: Rule) -> Summary:
        """Add a rule, or replace the one of its name. A rule that cannot be evaluated is an error."""
        self.host.watcher.put(rule)
        return self.rule(rule.name)

    @route("POST", "/alerts/preview", scope="admin:*", audited=False)
    def preview(self, rule: Rule, *, form: str = "") -> list[Measurement]:
        """What a rule would measure now. Nothing is written, and no notification is sent.

        A form asks again while its user writes: what the same `form` has asked before is stopped.
        """
        return self.host.watcher.preview(rule, asker=(self.caller.name, form) if form else None)

    @route("DELETE", "/alerts/rules/{name}", scope="admin:*")
    def remove(self, name: str) -> None:
        """Remove a rule. Its history stays."""
        self.host.watcher.remove(name)

    @route("POST", "/alerts/rules/{name}/pause", scope="admin:*")
    def pause(self, name: str) -> Summary:
        """Do not evaluate a rule until it is resumed."""
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
        """The changes of states, newest first, with the notifications of each."""
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

    @route("GET", "/alerts/changes", scope="read:*")
    def changes(self, after: int | None = None, *, wait_seconds: float = 0.0) -> NewChanges:
        """The changes that browsers show, from a place in the history on; waits for so long if there is none yet.

        Without `after` there are none: the answer only says where the history ends now.
        """
        listener = self.host.watcher.listen(after=after)
        changes = [] if after is None else listener.wait(seconds=self.host.seconds(wait_seconds))
        return NewChanges(changes=changes, next=listener.position)

    # -- inside -------------------------------------------------------------------------------------------------------

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
