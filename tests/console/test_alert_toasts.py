"""Messages about alerts in the corner of a page: one for all changes, and none for alerts that are over."""

from __future__ import annotations

from headwater.alerts import Change
from headwater.alerts.state import Event
from headwater.console.alerts.badge import toast_of


def change(rule: str, state: Event, offset: int = 0) -> Change:
    return Change(
        id=f"{rule}{offset}",
        at_us=0,
        rule=rule,
        subject="billing",
        state=state,
        value=1.0,
        threshold=0.0,
        severity="warning",
        message=f"{rule} is {state}",
    )


def test_one_change_is_told_with_its_message() -> None:
    assert toast_of([change("slow", "firing")]) == "Firing: slow. slow is firing"


def test_alerts_that_are_over_are_not_told() -> None:
    assert toast_of([change("slow", "resolved")]) == ""
    assert toast_of([change("slow", "resolved"), change("late", "firing")]).startswith("Firing: late.")


def test_several_changes_are_one_message() -> None:
    changes = [change(name, "firing", number) for number, name in enumerate("abcde")]
    assert toast_of(changes) == "5 alerts: a, b, c and 2 more."
