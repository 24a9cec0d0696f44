"""The demo without a terminal: a line each second, and one for each thing that happens."""

from __future__ import annotations

import sys

from headwater.cli.demo.watching import Scene
from headwater.cli.session import Session
from headwater.units import format_bytes

LINE_SECONDS = 1.0


class Teller:
    """Tells what the scene shows, once a second; to stderr, where stdout is for the result as JSON."""

    def __init__(self, session: Session, scene: Scene) -> None:
        self._session = session
        self._scene = scene
        self._told_events = 0
        self._told_at = -LINE_SECONDS

    def tell(self) -> None:
        scene = self._scene
        for event in scene.events[self._told_events :]:
            self._line(f"{event.at:5.1f} s  * {event.text}")
        self._told_events = len(scene.events)
        if not scene.events or scene.elapsed - self._told_at < LINE_SECONDS:
            return
        self._told_at = scene.elapsed
        lag = "  ".join(f"{one.name} lag {one.rows:,} rows {one.seconds:.1f} s" for one in scene.groups.values())
        self._line(
            f"{scene.elapsed:5.1f} s  orders {scene.appended:,} ({scene.rate:,.0f}/s)  {lag}  log {format_bytes(scene.bytes)}"
        )

    def _line(self, text: str) -> None:
        if self._session.output == "table":
            self._session.write(text)
            sys.stdout.flush()
        else:
            self._session.say(text)
