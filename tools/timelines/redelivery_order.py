"""With order per key, later messages of a key wait for the one that is delivered again."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        "The same with ordered=True: m3 and m4 have one key",
        until=24,
        axis="time",
        step=4,
        about="Worker 2 dies with m3. Meanwhile m4, which has the key of m3, is blocked, and worker 1 gets m5 of another key. Then it gets m3 again, "
        "and m4 only when m3 is acknowledged.",
    )
    drawn.lane("worker 1").span(1, 6, "m1").span(8, 13, "m5").span(13, 18, "m3, again").span(18, 23, "m4")
    drawn.lane("worker 2").span(2, 7, "m2").span(8, 11, "m3", kind="retracted")
    drawn.lane("blocked").span(8, 18, "m4 waits for m3", kind="open")
    drawn.lane("acknowledged").event(6, "m1").event(7.5, "m2").event(13, "m5").event(18, "m3").event(23, "m4")
    drawn.mark(11, "worker 2 dies")
    return drawn
