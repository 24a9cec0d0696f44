"""What is to be told to whom: each thing once, in order for each receiver, again after a while where one is away.

A receiver that is away holds up nobody but itself: only the oldest thing that it has not been told is tried, and the
rest waits behind that. Nothing here sends, waits or looks at a clock.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import orjson

from headwater.alerts.rule import Rule
from headwater.alerts.standing import Change
from headwater.units import DAY

Channel = Literal["webhook", "mail"]
#: Pauses double from the first to the longest.
PAUSE_SECONDS_FIRST = 1.0
PAUSE_SECONDS_MAX = 300.0
#: After so long nobody wants to be told any more.
GIVE_UP_SECONDS = DAY
#: Deliveries that are over and still shown.
FINISHED_MAX = 2_000


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One thing to tell one receiver, and how that goes."""

    id: str
    at_us: int
    change: str
    rule: str
    channel: Channel
    target: str
    state: Literal["waiting", "sent", "failed"] = "waiting"
    attempts: int = 0
    next_us: int = 0
    error: str | None = None
    #: What is told, as JSON; None once it is over.
    body: str | None = None

    # Any: JSON.
    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self.body or "{}")
        return found

    def sent(self) -> Delivery:
        return replace(self, state="sent", attempts=self.attempts + 1, error=None, body=None)

    def refused(self, why: str) -> Delivery:
        """The receiver will never take it."""
        return replace(self, state="failed", attempts=self.attempts + 1, error=why, body=None)

    def postponed(self, why: str, *, now_us: int, after_seconds: float = 0.0) -> Delivery:
        """The receiver is away, or asks for patience. It is never left alone for longer than the longest pause.

        >>> first = Delivery(id="1", at_us=0, change="c", rule="r", channel="mail", target="a@b.c")
        >>> [first.postponed("away", now_us=0).next_us, first.postponed("busy", now_us=0, after_seconds=9).next_us]
        [1000000, 9000000]
        """
        if now_us - self.at_us >= GIVE_UP_SECONDS * 1e6:
            return self.refused(f"{why}; given up after {self.attempts + 1} attempts")
        pause = PAUSE_SECONDS_FIRST * 2 ** min(self.attempts, 20)
        if after_seconds > pause:
            pause = after_seconds
        pause = min(pause, PAUSE_SECONDS_MAX)
        return replace(self, attempts=self.attempts + 1, next_us=now_us + round(pause * 1e6), error=why)


def deliveries_of(change: Change, rule: Rule) -> list[Delivery]:
    """Who is to be told of a change."""
    targets: list[tuple[Channel, str]] = [
        *(("webhook", url) for url in rule.webhooks),
        *(("mail", address) for address in rule.emails),
    ]
    body = orjson.dumps(content_of(change, rule)).decode()
    return [
        Delivery(
            id=hashlib.sha256(f"{change.id}\n{channel}\n{target}".encode()).hexdigest()[:32],
            at_us=change.at_us,
            change=change.id,
            rule=rule.name,
            channel=channel,
            target=target,
            next_us=change.at_us,
            body=body,
        )
        for channel, target in dict.fromkeys(targets)
    ]


def content_of(change: Change, rule: Rule) -> dict[str, Any]:
    """What a receiver is told: a line for people, and the facts for programs."""
    mark = {"reminder": "FIRING", "ok": "OK"}.get(change.state, change.state.upper())
    facts = {name: value for name, value in asdict(change).items() if name not in ("is_told", "browser", "offset")}
    return {"text": f"[{mark}] {rule.name} ({rule.severity}): {change.message}", "alert": {**facts, "note": rule.note}}


class Outbox:
    """All deliveries that are known: those that are open, and some that are over."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Delivery] = OrderedDict()
        self.finished: OrderedDict[str, Delivery] = OrderedDict()
        self._in_hand: set[str] = set()
        self._lock = threading.Condition()

    def take(self, delivery: Delivery) -> None:
        """Learn how a delivery stands."""
        with self._lock:
            if delivery.state == "waiting":
                self.open[delivery.id] = delivery  # an update keeps its place in the order
                return
            self.open.pop(delivery.id, None)
            self.finished[delivery.id] = delivery
            while len(self.finished) > FINISHED_MAX:
                self.finished.popitem(last=False)

    def due(self, now_us: int) -> list[Delivery]:
        """What may be tried now: of each receiver the oldest, unless it is being tried or must wait."""
        heads: dict[tuple[str, str], Delivery] = {}
        with self._lock:
            for delivery in self.open.values():
                heads.setdefault((delivery.channel, delivery.target), delivery)
            return [one for one in heads.values() if one.next_us <= now_us and one.id not in self._in_hand]

    def begin(self, now_us: int, *, count_max: int) -> list[Delivery]:
        """What is tried from now on: those due, the least tried first, up to so many at once."""
        due = sorted(self.due(now_us), key=lambda one: one.attempts)
        with self._lock:
            chosen = due[: max(0, count_max - len(self._in_hand))]
            self._in_hand |= {one.id for one in chosen}
        return chosen

    def let_go(self, delivery: Delivery) -> None:
        """An attempt is over."""
        with self._lock:
            self._in_hand.discard(delivery.id)
            self._lock.notify_all()

    def wait_until_idle(self, *, seconds: float) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self._in_hand, timeout=seconds)

    def of(self, changes: Iterable[str]) -> dict[str, list[Delivery]]:
        """The deliveries of some changes, by the id of the change."""
        wanted: dict[str, list[Delivery]] = {id: [] for id in changes}
        with self._lock:
            for delivery in (*self.finished.values(), *self.open.values()):
                if delivery.change in wanted:
                    wanted[delivery.change].append(delivery)
        return wanted
