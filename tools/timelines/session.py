"""Live sessions."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Session(gap="10 seconds", emit="changes")',
        until=50,
        about="Rows at most ten seconds apart are one session. The row at 18 seconds comes last, and joins two sessions. Both "
        "are retracted, and one session with all rows replaces them.",
    )
    rows = drawn.lane("clicks")
    for at in (4, 9, 26, 31):
        rows.event(at, str(at))
    rows.event(18, "18: comes last")
    before = drawn.lane("pages before")
    before.span(4, 19, "2", kind="retracted").span(26, 41, "2", kind="retracted")
    after = drawn.lane("pages after")
    after.span(4, 41, "5", kind="open")
    return drawn
