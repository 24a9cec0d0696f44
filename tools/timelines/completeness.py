"""How complete a window is."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'emit="changes", completeness=True',
        until=40,
        about="The result of a window has the share of its rows that have arrived, estimated from how late earlier rows were. "
        "Each change retracts the result and emits the new one. When the window closes, the result is complete.",
    )
    drawn.lane("readings").event(1).event(8).event(13).event(22).event(6, "after 13")
    told = drawn.lane("result of 0 to 10")
    told.span(8, 13, "2, 0.65", kind="retracted").span(13, 22, "3 rows, 0.93", kind="retracted")
    told.span(22, 40, "3 rows, 1.0: complete")
    drawn.mark(20, "closes")
    return drawn
