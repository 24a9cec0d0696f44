"""A message that is delivered again comes after later ones."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        "Worker 2 dies while it processes m3",
        until=24,
        axis="time",
        step=4,
        about="Worker 1 processes m1 and m4, worker 2 processes m2 and dies with m3. When worker 1 has done m4, it gets m3 again, and then m5. "
        "So the messages are done in the order m1, m2, m4, m3, m5.",
    )
    drawn.lane("worker 1").span(1, 6, "m1").span(8, 13, "m4").span(13, 18, "m3, again").span(18, 23, "m5")
    drawn.lane("worker 2").span(2, 7, "m2").span(8, 11, "m3", kind="retracted")
    done = drawn.lane("acknowledged").event(6, "m1").event(7.5, "m2").event(13, "m4").event(18, "m3", late=True)
    done.event(23, "m5")
    drawn.mark(11, "worker 2 dies")
    return drawn
