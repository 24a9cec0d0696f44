"""Two tables that change, joined."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'TableJoin(customers, on=("customer", "id"), key="id")',
        until=50,
        about="The joined row is emitted when both sides exist. When either side changes, the old joined row is retracted "
        "and the new one is emitted. When either side is deleted, the joined row is deleted.",
    )
    drawn.lane("order 1").span(5, 30, "of customer a").span(30, 50, "of customer b")
    drawn.lane("customer a").span(12, 20, "Ann").span(20, 50, "Anna")
    drawn.lane("customer b").span(25, 43, "Bob").span(43, 50, "deleted", kind="retracted")
    joined = drawn.lane("joined rows")
    joined.span(12, 20, "1, a, Ann", kind="retracted").span(20, 30, "1, a, Anna", kind="retracted")
    joined.span(30, 43, "1, b, Bob", kind="retracted")
    return drawn
