"""Letters on their way back: work that goes on in a thread, whoever looks, with its progress and a way to stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.log.letters import Selection
from headwater.log.redrive import Outcome, redrive

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What somebody wants to have done."""

    topic: str
    selection: Selection
    to: str | None = None
    attempts_max: int | None = 3
    rate: float | None = None
    may_write: Callable[[str], bool] | None = None
    """Which topics rows may be put back to; None for all."""

    def tried(self, log: EmbeddedLog) -> Outcome:
        """What would happen; nothing is changed."""
        return self.run(log, dry_run=True)

    def run(
        self,
        log: EmbeddedLog,
        *,
        dry_run: bool = False,
        tell: Callable[[Outcome], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> Outcome:
        return redrive(
            log,
            self.topic,
            self.selection,
            to=self.to,
            attempts_max=self.attempts_max,
            rate=self.rate,
            dry_run=dry_run,
            tell=tell,
            pause=pause,
            may_write=self.may_write,
        )


class Stopped(Exception):
    """Somebody wants the work to end. What was put back stays so, and the rest stays open."""


@dataclass(kw_only=True)
class Job:
    """A plan at work, or at its end."""

    plan: Plan
    total: int
    """How many letters the dry run meant to change."""
    caller: str
    done: int = 0
    refused: int = 0
    state: str = "running"
    error: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self, log: EmbeddedLog) -> None:
        threading.Thread(target=self._run, args=(log,), name="headwater-redrive", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def share(self) -> float:
        return 1.0 if not self.total else min(1.0, self.done / self.total)

    def _run(self, log: EmbeddedLog) -> None:
        try:
            self.plan.run(log, tell=self._told, pause=self._pause)
            self.state = "done"
        except Stopped:
            self.state = "stopped"
        except HeadwaterError as error:
            self.state, self.error = "failed", str(error)

    def _told(self, outcome: Outcome) -> None:
        self.done, self.refused = outcome.changed, len(outcome.refused)
        if self._stop.is_set():
            raise Stopped

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped


class Jobs:
    """The last job of each dead-letter topic; one runs at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def of(self, topic: str) -> Job | None:
        return self._jobs.get(topic)

    def begin(self, log: EmbeddedLog, job: Job) -> bool:
        """Whether it was begun: not while another of the same topic runs."""
        with self._lock:
            found = self._jobs.get(job.plan.topic)
            if found is not None and found.running:
                return False
            self._jobs[job.plan.topic] = job
        job.start(log)
        return True
