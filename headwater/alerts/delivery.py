"""Delivery of notifications over webhooks and e-mail: each once, in order for each receiver, retried with back-off.

An unreachable receiver delays no other: only its oldest notification is tried, and the others wait behind it. `Delivery`
and `Outbox` decide, without a clock; `Channels` sends, through the sinks for webhooks and mail.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import unquote, urlsplit

import orjson

from headwater.alerts.rule import Rule
from headwater.alerts.state import Change
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.sinks.retry import Retry, RetryLater
from headwater.units import DAY

if TYPE_CHECKING:
    from headwater.config import Config
    from headwater.sinks.mail import Security


Channel = Literal["webhook", "mail"]
#: A delivery that fails for a day is given up.
RETRY = Retry(seconds_max=DAY, first_seconds=1.0, pause_seconds_max=300.0)
#: Finished deliveries that are still shown.
FINISHED_MAX = 2_000


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One notification for one receiver, and the state of its delivery."""

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
    #: The notification as JSON; None once the delivery is over.
    body: str | None = None

    # Any: JSON.
    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self.body or "{}")
        return found

    def sent(self) -> Delivery:
        return replace(self, state="sent", attempts=self.attempts + 1, error=None, body=None)

    def refused(self, why: str) -> Delivery:
        """The receiver has refused it, or it is given up."""
        return replace(self, state="failed", attempts=self.attempts + 1, error=why, body=None)

    def postponed(self, why: str, *, now_us: int, after_seconds: float = 0.0) -> Delivery:
        """The receiver is unreachable, or asks to wait: retry with back-off, at the latest after the longest pause.

        >>> first = Delivery(id="1", at_us=0, change="c", rule="r", channel="mail", target="a@b.c")
        >>> [first.postponed("away", now_us=0).next_us, first.postponed("busy", now_us=0, after_seconds=9).next_us]
        [1000000, 9000000]
        """
        if now_us - self.at_us >= RETRY.seconds_max * 1e6:
            return self.refused(f"{why}; given up after {self.attempts + 1} attempts")
        pause = min(max(RETRY.pause_seconds(self.attempts), after_seconds), RETRY.pause_seconds_max)
        return replace(self, attempts=self.attempts + 1, next_us=now_us + round(pause * 1e6), error=why)


def deliveries_of(change: Change, rule: Rule) -> list[Delivery]:
    """The deliveries of a change: one for each receiver of its rule."""
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
    """A notification: a line of text, and the facts for programs."""
    mark = {"reminder": "FIRING", "ok": "OK"}.get(change.state, change.state.upper())
    facts = {name: value for name, value in asdict(change).items() if name not in ("is_told", "browser", "offset")}
    return {"text": f"[{mark}] {rule.name} ({rule.severity}): {change.message}", "alert": {**facts, "note": rule.note}}


class Outbox:
    """All open deliveries, and the last finished ones."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Delivery] = OrderedDict()
        self.finished: OrderedDict[str, Delivery] = OrderedDict()
        self._in_hand: set[str] = set()
        self._lock = threading.Condition()

    def take(self, delivery: Delivery) -> None:
        """Add or update a delivery."""
        with self._lock:
            if delivery.state == "waiting":
                self.open[delivery.id] = delivery  # an update keeps its place in the order
                return
            self.open.pop(delivery.id, None)
            self.finished[delivery.id] = delivery
            while len(self.finished) > FINISHED_MAX:
                self.finished.popitem(last=False)

    def due(self, now_us: int) -> list[Delivery]:
        """The deliveries to try now: the oldest of each receiver, unless it is being tried or must wait."""
        heads: dict[tuple[str, str], Delivery] = {}
        with self._lock:
            for delivery in self.open.values():
                heads.setdefault((delivery.channel, delivery.target), delivery)
            return [one for one in heads.values() if one.next_us <= now_us and one.id not in self._in_hand]

    def begin(self, now_us: int, *, count_max: int) -> list[Delivery]:
        """Take due deliveries to try them, those with the fewest attempts first, up to so many at once."""
        due = sorted(self.due(now_us), key=lambda one: one.attempts)
        with self._lock:
            chosen = due[: max(0, count_max - len(self._in_hand))]
            self._in_hand |= {one.id for one in chosen}
        return chosen

    def release(self, delivery: Delivery) -> None:
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


TIMEOUT_SECONDS = 10.0
_SECURITY: dict[str, Security] = {"smtp": "none", "smtp+starttls": "starttls", "smtps": "tls"}
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class Sender(Protocol):
    """Sends a delivery to its receiver."""

    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:
        """Attempt the delivery once and return it as it is afterwards; never raise."""
        ...


@dataclass(frozen=True, kw_only=True)
class Mail:
    """A mail server, and the sender of mails.

    >>> mail = Mail.parse("smtp+starttls://ada:s3cret@mail.example.org", sender="alerts@example.org")
    >>> mail.host, mail.port, mail.security, "s3cret" in repr(mail)
    ('mail.example.org', 587, 'starttls', False)
    """

    host: str
    port: int
    sender: str
    security: Security = "none"
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @staticmethod
    def parse(address: str, *, sender: str) -> Mail:
        parts = urlsplit(address)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ArgumentInvalid(
                name="alert_mail_server",
                value=f"{parts.scheme}://…",
                expected="smtp://HOST, smtp+starttls://USER:PASSWORD@HOST:587 or smtps://USER:PASSWORD@HOST",
            )
        return Mail(
            host=parts.hostname,
            port=parts.port or _PORTS[parts.scheme],
            sender=sender,
            security=_SECURITY[parts.scheme],
            user=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
        )


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Sends deliveries over the network; `secret` signs webhooks, and without `mail` no e-mail can be sent."""

    secret: str | None = field(default=None, repr=False)
    mail: Mail | None = None
    timeout_seconds: float = TIMEOUT_SECONDS

    @staticmethod
    def of(config: Config) -> Channels:
        """The channels that the settings describe."""
        server, sender = config.alert_mail_server, config.alert_mail_sender
        mail = None if server is None else Mail.parse(server, sender=sender)
        return Channels(secret=config.alert_webhook_secret, mail=mail)

    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:
        """Try once. An unreachable receiver is retried later; one that refuses is not."""
        try:
            why = self._posted(delivery) if delivery.channel == "webhook" else self._mailed(delivery)
        except RetryLater as error:
            return delivery.postponed(str(error), now_us=now_us, after_seconds=error.after_seconds)
        except HeadwaterError as error:
            return delivery.refused(_why(error))
        # Any other error must stop neither the rules nor the other receivers: it is shown and retried.
        except Exception as error:
            return delivery.postponed(f"{type(error).__name__}: {error}", now_us=now_us)
        return delivery.sent() if why is None else delivery.refused(why)

    def _posted(self, delivery: Delivery) -> str | None:
        from headwater.optional import require
        from headwater.sinks.webhook import WebhookSink

        require("httpx", extra="webhook")
        import httpx

        sink = WebhookSink(url=delivery.target, secret=self.secret)
        with httpx.Client(timeout=self.timeout_seconds) as client:
            return sink.post(client, id=delivery.change, body=orjson.dumps(delivery.content()))

    def _mailed(self, delivery: Delivery) -> str | None:
        from headwater.sinks.mail import MailSink
        from headwater.sinks.messages import Message

        if self.mail is None:
            return "there is no mail server: set `alert_mail_server` (HEADWATER_ALERT_MAIL_SERVER)"
        content = delivery.content()
        alert = content["alert"]
        sink = MailSink(
            **vars(self.mail), to="{to}", subject="{text}", body="{body}", timeout_seconds=self.timeout_seconds
        )
        row = {"to": delivery.target, "text": content["text"], "body": _mail_body(content)}
        firing = alert["firing_id"] if alert["firing_id"] != delivery.change else None
        message = Message(
            id=delivery.change,
            kind="new",
            key=delivery.change,
            row=orjson.dumps(row),
            position=0,
            corrects=firing or None,
        )
        return sink.send(message)


# Any: JSON.
def _mail_body(content: dict[str, object]) -> str:
    alert = content["alert"]
    assert isinstance(alert, dict)
    shown = ("rule", "subject", "state", "severity", "value", "threshold", "note")
    facts = "\n".join(f"{name + ':':<11}{alert[name]}" for name in shown if alert[name] not in ("", None))
    return f"{alert['message']}\n\n{facts}\n"


def _why(error: HeadwaterError) -> str:
    """The message of a sink's error, without its remedy for queries."""
    facts = error.facts()
    return f"{facts['why']}. {facts['what']}" if {"why", "what"} <= facts.keys() else str(error)
