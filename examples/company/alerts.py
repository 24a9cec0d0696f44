"""Three alert rules of the company. The console shows them, and they fire during a demo."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.alerts import AlertStore, Rule

if TYPE_CHECKING:
    from headwater.log import Log

#: By the query that must be at work first: before it there is nothing to look at.
RULES: dict[str | None, tuple[Rule, ...]] = {
    None: (
        Rule(
            name="query-down",
            kind="query_down",
            query="*",
            for_seconds=10,  # one that has to start again is back by then
            severity="critical",
            note="Stop a query on its own page, and see this one fire; start it again, and it is over.",
        ),
        Rule(
            name="dead-letters",
            kind="dead_letters",
            topic="*",
            threshold=5,
            note="Some trackers do not say whose page it was. Correct such a row among the dead letters, and redrive it.",
        ),
    ),
    "fraud_alerts": (
        Rule(
            name="large-fraud",
            kind="view",
            sql="select card, payment, shop, tries, amount as value from fraud_alerts\n"
            "where amount > 860 and _appended_at > now() - interval 1 minute",
            key=("card", "payment"),
            severity="critical",
            note="A stolen card that was tried out, and then paid more than 860: each for a minute.",
        ),
    ),
}


class Alerts:
    """Sets the rules in a log, each as soon as there is something that it can look at."""

    def __init__(self, log: Log) -> None:
        self._store = AlertStore(log)
        self._waiting = dict(RULES)
        self._set(None)

    def set_for(self, at_work: Iterable[str]) -> None:
        """Set the rules that these queries were waited for with."""
        for name in at_work:
            if name in self._waiting:
                self._set(name)

    def _set(self, name: str | None) -> None:
        for rule in self._waiting.pop(name):
            self._store.put(rule)
