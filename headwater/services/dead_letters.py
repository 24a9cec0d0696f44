"""Dead letters: counted by reason, listed, redriven to their topics, and parked."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from headwater.errors import ArgumentInvalid, HeadwaterError, InUse, NotFound
from headwater.log.dead_letters import (
    SUFFIX,
    Selection,
    StoredDeadLetter,
    dead_letter_topic,
    dead_letter_topics,
    find_dead_letter_topic,
)
from headwater.log.redrive import Outcome, park, redrive
from headwater.log.topic import Topic
from headwater.services.callers import Action
from headwater.services.dead_letter_index import DeadLetterIndex, Reason, Timeline
from headwater.services.route import Service, route

if TYPE_CHECKING:
    from headwater.services.host import Host

PAGE_MAX = 1_000
WAIT_SECONDS_MAX = 60.0
ALL = Selection()


@dataclass(frozen=True, kw_only=True)
class DeadLetterPage:
    """Some dead letters of a topic, and how many the selection has in all."""

    topic: str
    total: int
    dead_letters: list[StoredDeadLetter] = field(default_factory=list)


@dataclass(kw_only=True)
class Redrive:
    """A redrive: its state, and what it has done so far, or would do."""

    topic: str
    to: str | None = None
    caller: str = ""
    state: str = "running"
    """`dry run`, `running`, `done`, `stopped` or `failed`."""
    total: int = 0
    """How many dead letters it is to change."""
    outcome: Outcome = field(default_factory=Outcome)
    error: str = ""

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def share(self) -> float:
        """The part that is done, from 0 to 1."""
        return 1.0 if not self.total else min(1.0, self.outcome.changed / self.total)


class DeadLetters(Service):
    """What can be done with dead letters. The name of a topic also means its dead-letter topic."""

    @route("GET", "/dead-letters")
    def topics(self) -> list[str]:
        """List the dead-letter topics that the caller may read."""
        return [name for name in dead_letter_topics(self.log) if self.caller.may("read", name)]

    @route("GET", "/dead-letters/{topic}")
    def page(
        self,
        topic: str,
        selection: Selection = ALL,
        *,
        order: Literal["newest", "oldest"] = "newest",
        skip: int = 0,
        limit: int = 100,
    ) -> DeadLetterPage:
        """Read dead letters of a topic: where the row stood, why it failed, and the row itself."""
        if skip < 0 or not 0 <= limit <= PAGE_MAX:
            raise ArgumentInvalid(name="limit", value=limit, expected=f"at most {PAGE_MAX:,}, and nothing negative")
        index = self._index(self._allowed(topic, "read"))
        places = index.places(selection)
        places = places if order == "newest" else places[::-1]
        return DeadLetterPage(
            topic=index.topic.name, total=len(places), dead_letters=index.read(places[skip : skip + limit])
        )

    @route("GET", "/dead-letters/{topic}/reasons")
    def reasons(self, topic: str) -> list[Reason]:
        """Count the dead letters of a topic by reason and state, those with the most open ones first."""
        return self._index(self._allowed(topic, "read")).reasons()

    @route("GET", "/dead-letters/{topic}/timeline")
    def timeline(self, topic: str) -> Timeline:
        """Count the dead letters of a topic over time, by reason."""
        return self._index(self._allowed(topic, "read")).timeline()

    @route("POST", "/dead-letters/{topic}/redrive")
    def redrive(
        self,
        topic: str,
        selection: Selection = ALL,
        *,
        to: str | None = None,
        attempts_max: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        wait_seconds: float = 20.0,
    ) -> Redrive:
        """Append the rows of open dead letters to their topic again, each of them once.

        The redrive runs in the background; the answer comes when it has ended, or after `wait_seconds`.
        """
        source = self._allowed(topic, "read" if dry_run else "admin")
        if to is not None:
            self.caller.require("write", to)
        work = partial(
            redrive,
            self.log,
            source.name,
            selection,
            to=to,
            attempts_max=attempts_max,
            rate=rate,
            # A caller who may only read is shown what an admin's redrive would do.
            may_write=partial(self.caller.may, "write") if self.caller.may("admin", source.name) else None,
        )
        tried = work(dry_run=True)
        made = Redrive(topic=source.name, to=to, caller=self.caller.name, total=tried.changed, outcome=tried)
        if dry_run:
            return replace(made, state="dry run")
        return self._jobs.begin(replace(made, outcome=Outcome()), work).waited(wait_seconds)

    @route("GET", "/dead-letters/{topic}/redrive")
    def redrive_progress(self, topic: str, *, wait_seconds: float = 0.0) -> Redrive | None:
        """Read the progress of the last redrive of a topic; null if there was none since the server started."""
        job = self._jobs.get(self._allowed(topic, "read").name)
        return None if job is None else job.waited(wait_seconds)

    @route("DELETE", "/dead-letters/{topic}/redrive")
    def stop_redrive(self, topic: str) -> None:
        """Stop a redrive after its current rows. Rows that were redriven stay redriven."""
        job = self._jobs.get(self._allowed(topic, "admin").name)
        if job is not None:
            job.stop.set()

    @route("POST", "/dead-letters/{topic}/park")
    def park(self, topic: str, selection: Selection = ALL, *, undo: bool = False, dry_run: bool = False) -> Outcome:
        """Park open dead letters, so that a redrive leaves them alone; with `undo`, open parked ones again."""
        source = self._allowed(topic, "read" if dry_run else "admin")
        return park(self.log, source.name, selection, undo=undo, dry_run=dry_run)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _allowed(self, topic: str, action: Action) -> Topic:
        """The dead-letter topic of a name. A caller without the scope does not learn whether it exists."""
        self.caller.require(action, topic if topic.endswith(SUFFIX) else topic + SUFFIX)
        try:
            return find_dead_letter_topic(self.log, topic)
        except NotFound:
            self.log.topic(topic)  # raises for a topic that does not exist, rather than for its dead-letter topic
            raise

    def _index(self, topic: Topic) -> DeadLetterIndex:
        return index_of(self.host, topic)

    @property
    def _jobs(self) -> _Jobs:
        return self.host.share("redrives", _Jobs)


def index_of(host: Host, topic: Topic) -> DeadLetterIndex:
    """The index of a dead-letter topic, which all callers share."""
    return host.share(f"dead letters {topic.id}", lambda: DeadLetterIndex(host.log, topic))


def open_dead_letters(host: Host, topic: str) -> int:
    """How many dead letters of a topic are open."""
    try:
        found = host.log.topic(dead_letter_topic(topic))
    except NotFound:  # there have been none
        return 0
    return sum(reason.open for reason in index_of(host, found).reasons())


class _Stopped(Exception):
    """A redrive was stopped."""


class _Job:
    """A redrive in a thread of its own."""

    def __init__(self, redrive: Redrive, work: partial[Outcome]) -> None:
        self.redrive = redrive
        self.stop = threading.Event()
        self._work = work
        self._thread = threading.Thread(target=self._run, name="headwater-redrive", daemon=True)
        self._thread.start()

    def waited(self, seconds: float) -> Redrive:
        """The redrive after so many seconds, or at its end."""
        if seconds > 0:
            self._thread.join(min(seconds, WAIT_SECONDS_MAX))
        return replace(self.redrive)

    def _run(self) -> None:
        try:
            self.redrive.outcome = self._work(on_progress=self._note, pause=self._pause)
            self.redrive.state = "done"
        except _Stopped:
            self.redrive.state = "stopped"
        except HeadwaterError as error:
            self.redrive.error, self.redrive.state = str(error), "failed"

    def _note(self, outcome: Outcome) -> None:
        self.redrive.outcome = outcome
        self._pause(0)

    def _pause(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise _Stopped


class _Jobs(dict[str, _Job]):
    """The last redrive of each dead-letter topic; one runs at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def begin(self, redrive: Redrive, work: partial[Outcome]) -> _Job:
        with self._lock:
            job = self.get(redrive.topic)
            if job is not None and job.redrive.running:
                instead = "Wait until that redrive ends, or stop it"
                raise InUse(what=f"The dead-letter topic {redrive.topic!r}", by="another redrive", instead=instead)
            self[redrive.topic] = _Job(redrive, work)
            return self[redrive.topic]
