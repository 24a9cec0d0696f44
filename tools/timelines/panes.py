"""Panes."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Panes(early=rows(2), allowed_lateness="1 minute") of windows of 20 seconds',
        until=40,
        about="A window of twenty seconds emits three panes: an early one after two rows; one on time, when the watermark "
        "passes the end of the window; and a late one, for a row that came after that. A discarding pane has the rows since "
        "the pane before, an accumulating pane all rows so far, and a retracting pane also retracts the pane before.",
    )
    arrived = drawn.lane("payments")
    for at, amount in ((3, "5"), (8, "3"), (13, "8"), (27, "1")):
        arrived.event(at, amount)
    arrived.event(17, "4", late=True)
    discarding = drawn.lane("discarding")
    discarding.span(0, 20, "0, early: 8").span(0, 20, "1, on time: 8").span(0, 20, "2, late: 4")
    accumulating = drawn.lane("accumulating")
    accumulating.span(0, 20, "0, early: 8").span(0, 20, "1, on time: 16").span(0, 20, "2, late: 20")
    retracting = drawn.lane("retracting")
    retracting.span(0, 20, "0, early: 8", kind="retracted").span(0, 20, "1, on time: 16", kind="retracted")
    retracting.span(0, 20, "2, late: 20")
    drawn.mark(27, "watermark")
    return drawn
