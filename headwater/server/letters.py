"""Dead letters over HTTP: counted, looked at, put back to their topics, and set aside."""

from __future__ import annotations

import base64
from collections import Counter
from functools import partial
from itertools import islice
from typing import Any

from fastapi import APIRouter, Query, Request

from headwater.log import Topic
from headwater.log.deadletters import SUFFIX
from headwater.log.letters import STATES, Found, Selection, letter_topic, letter_topics, read_letters
from headwater.log.redrive import Outcome, park, redrive
from headwater.server.forms import Letters, Park, Redrive
from headwater.server.service import Service, caller_of
from headwater.server.tokens import Action

REFUSALS_MAX = 100


def router(service: Service) -> APIRouter:
    """The routes of dead letters."""
    routes = APIRouter(prefix="/dead-letters", tags=["dead letters"])
    log = service.log

    @routes.get("")
    def listed(request: Request) -> dict[str, list[str]]:
        """The dead-letter topics."""
        caller = caller_of(request)
        return {"topics": [name for name in letter_topics(log) if caller.may("read", name)]}

    def allowed(request: Request, topic: str, action: Action) -> Topic:
        """The letters that are meant. Whoever may not have them does not learn whether there are any."""
        caller_of(request).require(action, topic if topic.endswith(SUFFIX) else topic + SUFFIX)
        return letter_topic(log, topic)

    @routes.get("/{topic}/counts")
    def counts(request: Request, topic: str) -> dict[str, Any]:
        """Letters of a topic by the reason for which they were given up, and by what has become of them."""
        letters = allowed(request, topic, "read")
        found: dict[str, Counter[str]] = {}
        for some in read_letters(log, letters):
            for one in some:
                found.setdefault(one.letter.error, Counter())[one.state] += 1
        reasons = [
            {"reason": reason, "letters": states.total(), **{state: states[state] for state in STATES}}
            for reason, states in sorted(found.items())
        ]
        return {"topic": letters.name, "reasons": reasons}

    @routes.get("/{topic}")
    def show(
        request: Request,
        topic: str,
        reason: str | None = None,
        state: str | None = Query(default=None, pattern="^(open|redriven|parked)$"),
        text: str | None = None,
        skip: int = Query(default=0, ge=0, le=10**9),
        limit: int = Query(default=100, ge=1, le=1_000),
    ) -> dict[str, Any]:
        """Letters: where the row stood, why it was given up, and the row itself."""
        letters = allowed(request, topic, "read")
        selection = Selection(
            reasons=() if reason is None else (reason,),
            states=tuple(one for one in STATES if one == state),
            text=text,
        )
        chosen = (one for some in read_letters(log, letters) for one in some if selection.includes(one))
        return {"topic": letters.name, "letters": [_written(one) for one in islice(chosen, skip, skip + limit)]}

    @routes.post("/{topic}/redrive")
    def put_back(request: Request, topic: str, asked: Redrive) -> dict[str, Any]:
        """Put the rows of open letters back to their topic, each of them once; with `dry_run`, only say which."""
        caller, letters = caller_of(request), allowed(request, topic, "read" if asked.dry_run else "admin")
        if asked.to is not None:
            caller.require("write", asked.to)
        outcome = redrive(
            log,
            letters.name,
            _selection(asked),
            to=asked.to,
            attempts_max=asked.attempts_max,
            rate=asked.rate,
            dry_run=asked.dry_run,
            # Whoever may only look is shown what somebody with all rights would do.
            may_write=partial(caller.may, "write") if caller.may("admin", letters.name) else None,
        )
        return _told(outcome, done=not asked.dry_run)

    @routes.post("/{topic}/park")
    def set_aside(request: Request, topic: str, asked: Park) -> dict[str, Any]:
        """Set open letters aside, so that `redrive` leaves them alone; or take parked ones up again."""
        letters = allowed(request, topic, "read" if asked.dry_run else "admin")
        outcome = park(log, letters.name, _selection(asked), undo=asked.undo, dry_run=asked.dry_run)
        return _told(outcome, done=not asked.dry_run)

    return routes


def _selection(asked: Letters) -> Selection:
    return Selection(
        reasons=tuple(asked.reasons),
        query=asked.query,
        since_us=asked.since_us,
        until_us=asked.until_us,
        offsets=tuple(range(first, last + 1) for first, last in asked.offsets),
        partition=asked.partition,
        text=asked.text,
    )


# Any: JSON.
def _written(found: Found) -> dict[str, Any]:
    letter, status = found.letter, found.status
    return {
        "letter": {"partition": found.place.partition, "offset": found.place.offset},
        "state": found.state,
        "state_at_us": None if status is None else status.at_us,
        "to": None if status is None else status.to,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "error": letter.error,
        "message": letter.message,
        "attempt": letter.attempt,
        "query": letter.query,
        "at_us": letter.at_us,
        "key": _bytes(letter.key),
        "value": _bytes(letter.value),
        "row": letter.row,
        "headers": None if letter.headers is None else {name: _bytes(value) for name, value in letter.headers},
    }


def _bytes(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value or b"").decode()}


def _told(outcome: Outcome, *, done: bool) -> dict[str, Any]:
    refused = [
        {"letter": {"partition": one.place.partition, "offset": one.place.offset}, "why": one.why}
        for one in outcome.refused[:REFUSALS_MAX]
    ]
    return {
        "redriven": dict(outcome.redriven),
        "parked": dict(outcome.parked),
        "unparked": dict(outcome.unparked),
        "refused": refused,
        "refused_count": len(outcome.refused),
        "seen": outcome.seen,
        "done": done,
    }
