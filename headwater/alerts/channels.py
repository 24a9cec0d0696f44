"""How people are told: webhooks and e-mail, with the means of the sinks that do the same for rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import orjson

from headwater.alerts.deliveries import Delivery
from headwater.errors import ArgumentInvalid, HeadwaterError

if TYPE_CHECKING:
    from headwater.config import Config
    from headwater.sinks.mail import Security

TIMEOUT_SECONDS = 10.0
_SECURITY: dict[str, Security] = {"smtp": "none", "smtp+starttls": "starttls", "smtps": "tls"}
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}


class Sender(Protocol):
    """What takes a delivery to its receiver."""

    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:
        """The delivery as it stands after one attempt; it never raises."""
        ...


@dataclass(frozen=True, kw_only=True)
class Mail:
    """A mail server, and who writes.

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
        """One attempt. A receiver that is away is tried again later; one that refuses is not."""
        from headwater.sinks.retrying import NotNow

        try:
            why = self._posted(delivery) if delivery.channel == "webhook" else self._mailed(delivery)
        except NotNow as error:
            return delivery.postponed(str(error), now_us=now_us, after_seconds=error.after_seconds)
        except HeadwaterError as error:
            return delivery.refused(_why(error))
        # Whatever else goes wrong must stop neither the rules nor the other receivers: it is shown, and tried again.
        except Exception as error:
            return delivery.postponed(f"{type(error).__name__}: {error}", now_us=now_us)
        return delivery.sent() if why is None else delivery.refused(why)

    def _posted(self, delivery: Delivery) -> str | None:
        from headwater.sinks.extras import need
        from headwater.sinks.webhook import WebhookSink

        need("httpx", extra="webhook")
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
        row = {"to": delivery.target, "text": content["text"], "body": _letter(content)}
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
def _letter(content: dict[str, object]) -> str:
    alert = content["alert"]
    assert isinstance(alert, dict)
    shown = ("rule", "subject", "state", "severity", "value", "threshold", "note")
    facts = "\n".join(f"{name + ':':<11}{alert[name]}" for name in shown if alert[name] not in ("", None))
    return f"{alert['message']}\n\n{facts}\n"


def _why(error: HeadwaterError) -> str:
    """What a sink says, without its advice on queries."""
    facts = error.facts()
    return f"{facts['why']}. {facts['what']}" if {"why", "what"} <= facts.keys() else str(error)
