"""Alerts on every page: how many fire, in the navigation, and a notification when one begins to fire or is over.

All pages share what is read of the rules, so that a hundred pages read the log as often as one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from nicegui import ui

from headwater.alerts import Change, Summary
from headwater.console.context import Visit, context
from headwater.console.kit.live import every
from headwater.console.pages import path_to
from headwater.services.alerts import Alerts, Rules

INTERVAL_SECONDS = 2.0
CHANGES_KEPT = 200
#: Notifications and names of rules that are shown at once; more are shown as a number.
NOTIFICATIONS_MAX = 3
TITLES = {"firing": "Firing", "reminder": "Still firing", "resolved": "Resolved", "test": "Test"}


@dataclass(frozen=True, kw_only=True)
class AlertStatus:
    """The rules and their states, and the latest changes that browsers show."""

    rules: Rules
    changes: Sequence[Change] = ()
    #: The position in the history up to which `changes` goes.
    position: int = 0

    @property
    def firing(self) -> list[Summary]:
        return [rule for rule in self.rules.rules if rule.state == "firing"]


class SharedAlerts:
    """The rules for all pages, read at most every two seconds."""

    def __init__(self, service: Alerts) -> None:
        self._service = service
        self._position = service.changes().next
        self._changes: deque[Change] = deque(maxlen=CHANGES_KEPT)
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._status: AlertStatus | None = None

    def status(self) -> AlertStatus:
        """The present state; touches the disk, so not for the event loop."""
        with self._lock:
            if self._status is None or time.monotonic() - self._read_at >= INTERVAL_SECONDS:
                new = self._service.changes(self._position)
                self._changes.extend(new.changes)
                self._position = new.next
                changes = tuple(self._changes)
                self._status = AlertStatus(rules=self._service.rules(), changes=changes, position=self._position)
                self._read_at = time.monotonic()
            return self._status

    def forget(self) -> None:
        """Read the rules again at the next call, because one was just changed."""
        with self._lock:
            self._read_at = 0.0


def shared_alerts() -> SharedAlerts:
    """The rules for all pages. Only pages of callers with `read:*` show them, and none shows the address of a webhook."""
    return context().share("alerts", lambda: SharedAlerts(Alerts(context().host)))


def follow_alerts(visit: Visit, badge: ui.label) -> None:
    """Keep the number in the navigation current, and notify of changes, while this page is open."""
    badge.set_visibility(False)
    if not visit.caller.may("read", "*"):
        return
    position: int | None = None

    def show(status: AlertStatus) -> None:
        nonlocal position
        count = len(status.firing)
        badge.set_text(str(count))
        badge.props(f'aria-label="{count} firing"')
        badge.set_visibility(count > 0)
        new = [] if position is None else [change for change in status.changes if change.offset >= position]
        position = status.position
        _notify(new)

    every(INTERVAL_SECONDS, lambda: shared_alerts().status(), show)


def _notify(changes: Sequence[Change]) -> None:
    for change in changes[:NOTIFICATIONS_MAX]:
        arguments = (_title(change), change.message, change.id, path_to("alerts", change.rule))
        ui.run_javascript(f"headwater.notify({', '.join(json.dumps(text) for text in arguments)})")
    if text := toast_of(changes):
        icon = "notifications_active"
        ui.notify(text, position="bottom-right", timeout=12_000, icon=icon, multi_line=True, close_button="Close")


def toast_of(changes: Sequence[Change]) -> str:
    """What one message in the corner of the page says of all changes at once; nothing of alerts that are over."""
    shown = [change for change in changes if change.state != "resolved"]
    if len(shown) == 1:
        return f"{_title(shown[0])}. {shown[0].message}"[:300]
    rules = list(dict.fromkeys(change.rule for change in shown))
    more = f" and {len(rules) - NOTIFICATIONS_MAX} more" if len(rules) > NOTIFICATIONS_MAX else ""
    return f"{len(shown)} alerts: {', '.join(rules[:NOTIFICATIONS_MAX])}{more}." if shown else ""


def _title(change: Change) -> str:
    return f"{TITLES.get(change.state, change.state)}: {change.rule}"
