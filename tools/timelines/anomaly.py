"""Values outside of the usual bounds."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'Anomaly(of="vibration", warm_up=4)',
        until=25,
        about="Values around 1. The first four are not judged. The 9 at second 15 is far beyond the bounds of what was usual "
        "before it. The values after it are judged by the same bounds, since one anomaly hardly moves a median.",
    )
    rows = drawn.lane("vibration")
    for at, text in ((1, "1.0"), (4, "1.2"), (7, "1.1"), (10, "0.9"), (13, "1.1"), (18, "1.0"), (22, "1.2")):
        rows.event(at, text)
    rows.event(15, "9.0", late=True)
    bounds = drawn.lane("usual")
    bounds.span(1, 11.5, "warming up", kind="open").span(11.5, 25, "0.6 to 1.6")
    drawn.lane("anomaly").event(15, "score 53", late=True)
    return drawn
