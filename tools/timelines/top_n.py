"""The first n rows of a table that changes."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'TopN(n=2, order=[("total", "desc")], key="symbol")',
        until=50,
        about="Only changes among the first two rows are emitted. A row with a lower rank is kept in the state, and moves up when "
        "one of the first two is deleted.",
    )
    drawn.lane("A").span(4, 36, "30").span(36, 50, "deleted", kind="retracted")
    drawn.lane("B").span(10, 24, "20").span(24, 50, "40")
    drawn.lane("C").span(17, 50, "10")
    drawn.lane("rank 1").span(4, 24, "A", kind="retracted").span(24, 50, "B")
    drawn.lane("rank 2").span(10, 24, "B", kind="retracted").span(24, 36, "A", kind="retracted").span(36, 50, "C")
    return drawn
