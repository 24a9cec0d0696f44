"""Three clocks."""

from __future__ import annotations

from tools.timelines import Timeline


def picture() -> Timeline:
    drawn = Timeline(
        'CorrectClock(occurred="occurred", sent="sent", received="received")',
        until=40,
        about="A device whose clock is twenty seconds slow sends an event that occurred at 2 and was sent at 7. The event was "
        "received at 27, so the clock is 20 seconds behind, and the event occurred at 22.",
    )
    drawn.lane("device's clock").event(2, "occurred").event(7, "sent").span(7, 27, "received − sent: the clock's error")
    drawn.lane("true time").event(22, "at").event(27, "received")
    drawn.link(0, 2, 1, 22)
    return drawn
