"""Alerts on every page: how many fire, in the navigation; and a notification when one begins to fire or is over.

All pages share what is read of the rules, so that a hundred of them read the log no more often than one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from nicegui import ui

from headwater.alerts import Change, Summary
from headwater.console.context import context
from headwater.console.kit.live import every
from headwater.console.visit import Visit
from headwater.services.alerts import Alerts as AlertService
from headwater.services.alerts import Rules

LOOK_SECONDS = 2.0
HEARD_MAX = 200
#: Notifications of one look; more than that is told as a number.
TOLD_MAX = 3
TITLES = {"firing": "Firing", "reminder": "Still firing", "resolved": "Resolved", "test": "Test"}


@dataclass(frozen=True, kw_only=True)
class AlertStatus:
    """The rules and their states, and the latest changes that browsers show."""

    rules: Rules
    heard: Sequence[Change] = ()
    #: The place in the history up to which `heard` goes.
    position: int = 0

    @property
    def firing(self) -> list[Summary]:
        return [one for one in self.rules.rules if one.state == "firing"]


class SharedAlerts:
    """The rules for all pages, read at most every two seconds."""

    def __init__(self, service: AlertService) -> None:
        self._service = service
        self._position = service.changes().next
        self._heard: deque[Change] = deque(maxlen=HEARD_MAX)
        self._lock = threading.Lock()
        self._looked = 0.0
        self._now: AlertStatus | None = None

    def now(self) -> AlertStatus:
        """The present state; touches the disk, so not for the event loop."""
        with self._lock:
            if self._now is None or time.monotonic() - self._looked >= LOOK_SECONDS:
                new = self._service.changes(self._position)
                self._heard.extend(new.changes)
                self._position = new.next
                self._now = AlertStatus(rules=self._service.rules(), heard=tuple(self._heard), position=self._position)
                self._looked = time.monotonic()
            return self._now

    def forget(self) -> None:
        """Read the rules again at the next call, because one was just changed."""
        with self._lock:
            self._looked = 0.0


def alerts() -> SharedAlerts:
    """The rules for all pages. Only pages of callers with `read:*` show them, and none shows an address of a webhook."""
    return context().share("alerts", lambda: SharedAlerts(AlertService(context().host)))


def follow(visit: Visit, badge: ui.label) -> None:
    """Keep the number in the navigation, and tell of what fires, while this page is open."""
    badge.set_visibility(False)
    if not visit.caller.may("read", "*"):
        return
    position: int | None = None

    def show(now: AlertStatus) -> None:
        nonlocal position
        count = len(now.firing)
        badge.set_text(str(count))
        badge.props(f'aria-label="{count} firing"')
        badge.set_visibility(count > 0)
        new = [] if position is None else [one for one in now.heard if one.offset >= position]
        position = now.position
        _tell(new)

    every(LOOK_SECONDS, lambda: alerts().now(), show)


def _tell(changes: Sequence[Change]) -> None:
    for change in changes[:TOLD_MAX]:
        title = f"{TITLES.get(change.state, change.state)}: {change.rule}"
        given = (title, change.message, change.id, f"/console/alerts/{quote(change.rule, safe='')}")
        ui.run_javascript(f"headwater.notify({', '.join(json.dumps(one) for one in given)})")
        _toast(f"{title}. {change.message}", is_bad=change.state in ("firing", "reminder"))
    if len(changes) > TOLD_MAX:
        _toast(f"{len(changes) - TOLD_MAX} more alerts have changed.", is_bad=True)


def _toast(text: str, *, is_bad: bool) -> None:
    icon = "notifications_active" if is_bad else "notifications_none"
    ui.notify(text[:300], position="top-right", timeout=12_000, icon=icon, multi_line=True, close_button="Close")
