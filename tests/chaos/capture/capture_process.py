"""`headwater capture run` as a child process that is killed and started again."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from headwater.capture.store import POSITIONS_TOPIC
from headwater.log import Log
from tests.chaos.kills import Order
from tests.chaos.process import EXIT_SECONDS_MAX, PROGRESS_SECONDS_MAX, Child, Stuck

CAPTURE = "shop"
#: A kill at a random moment comes at most so long after the start of the process: half of them while it starts.
MOMENT_SECONDS_MAX = 1.6


class CaptureProcess(Child):
    """The process of a capture, through all its lives."""

    def __init__(self, home: Path, log: Log) -> None:
        super().__init__(home, log)
        self.ended: list[str] = []
        """What the process said each time that it ended by itself."""

    def arguments(self) -> list[str]:
        words = ["--log", self.log.address, "capture", "run", CAPTURE]
        return ["-c", f"import sys; from headwater.cli import main; sys.argv[1:] = {words!r}; main()"]

    def progress(self) -> tuple[int, ...]:
        """How many pieces were appended."""
        if POSITIONS_TOPIC not in self.log.topics(internal=True):
            return (0,)
        return (sum(self.log.end_offsets(POSITIONS_TOPIC).values()),)

    @property
    def runs(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def kill_after(self, seconds: float) -> None:
        """Kill the process at a random moment."""
        self.start()
        assert self._child is not None
        time.sleep(seconds)
        self._child.kill()
        self._child.wait()

    def carry_out(self, order: Order, chance: random.Random) -> str:
        """Kill the process as ordered, and say how."""
        if order.point == "any moment":
            seconds = chance.random() * MOMENT_SECONDS_MAX
            self.kill_after(seconds)
            return f"{order.victim} after {seconds:.2f} s"
        return str(self.strike(order))

    def wait_for_pieces(self, count: int, *, after: int | None = None) -> None:
        """Wait until so many pieces more are in the log; a process that ended by itself is started again, as a supervisor would."""
        then = self.progress()[0] if after is None else after
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while self.progress()[0] < then + count:
            if not self.runs:
                if self._child is not None and self._child.returncode != -signal.SIGKILL:
                    self.ended.append(self._last_words())
                self.start()
            if time.monotonic() > deadline:
                raise Stuck(f"not within {PROGRESS_SECONDS_MAX:.0f} s: {count} more pieces; {self._last_words()}")
            time.sleep(self.poll_seconds)

    def stop(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGTERM)
        if self._child.wait(EXIT_SECONDS_MAX) != 0:
            raise Stuck(f"the capture ended with code {self._child.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        path = self.home / "driver.log"
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return lines[-1][:300] if lines else "it said nothing"
