"""How a rule stands in one word, with its subjects: what a list of rules shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headwater.alerts.rule import Rule
from headwater.alerts.standing import WHOLE_RULE, Standing

RuleState = Literal["paused", "unknown", "firing", "pending", "resolved", "ok"]
#: From the worst to the best; the first that any subject is in is the rule's.
_ORDER: tuple[RuleState, ...] = ("firing", "unknown", "pending", "resolved", "ok")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One rule, and how it stands. `rule` is None where it cannot be read: then `error` says why."""

    name: str
    rule: Rule | None
    state: RuleState
    is_snoozed: bool = False
    since_us: int | None = None
    error: str | None = None
    subjects: tuple[Standing, ...] = ()

    # Any: JSON.
    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rule": None if self.rule is None else self.rule.as_dict(),
            "state": self.state,
            "is_snoozed": self.is_snoozed,
            "since_us": self.since_us,
            "error": self.error,
            "subjects": [asdict(one) for one in self.subjects],
        }


def summary_of(rule: Rule, standings: Sequence[Standing], *, now_us: int) -> Summary:
    """A rule in one word: the worst that any of its subjects is in, unless it is paused."""
    whole = next((one for one in standings if one.subject == WHOLE_RULE), None)
    subjects = tuple(one for one in standings if one.subject != WHOLE_RULE)
    states = {one.state for one in standings}
    state: RuleState = next((one for one in _ORDER if one in states), "ok") if rule.enabled else "paused"
    since = [one.since_us for one in standings if one.state == state]
    return Summary(
        name=rule.name,
        rule=rule,
        state=state,
        is_snoozed=rule.is_snoozed(now_us),
        since_us=min(since) if since and state != "ok" else None,
        error=None if whole is None or not rule.enabled else whole.message,
        subjects=subjects,
    )
