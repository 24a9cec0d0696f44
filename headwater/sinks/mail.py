"""The mail sink: rows become e-mails, at least once, and corrections become replies.

A server may take a mail although its answer is lost; it then goes out again under the same `Message-ID`, by which most
mailboxes know it. A new row of a key that a mail was sent about is a reply to the first mail.
"""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, ClassVar, Literal

import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.faults import reach
from headwater.sinks.changes import Changes, Refusal
from headwater.sinks.driver import DriverSink, Refusals
from headwater.sinks.errors import SinkRefused
from headwater.sinks.messages import Message, messages_of, opened
from headwater.sinks.port import Guarantee
from headwater.sinks.retry import RetryLater

Security = Literal["none", "starttls", "tls"]
SECURITIES: tuple[Security, ...] = ("none", "starttls", "tls")


@dataclass(frozen=True, kw_only=True)
class MailSink(DriverSink):
    """Rows as e-mails; at least once, each under a `Message-ID` that is made from its row.

    `to`, `subject` and `body` are templates: `{amount}` stands for the row's column, `{amount:.2f}` for its form. With
    a `key`, a change of what was written is a reply to the first mail with "Correction: " before its subject, and a
    deletion is one with "Withdrawn: ".

    >>> MailSink(host="localhost", sender="a@example.org", to="{owner}", subject="{n} left", body="…", key="id").name
    'mail:{owner}'
    """

    host: str
    sender: str
    to: str
    subject: str
    body: str
    port: int = 25
    security: Security = "none"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_seconds: float = 30.0

    guarantee: ClassVar[Guarantee] = "at least once"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.security not in SECURITIES:
            raise ArgumentInvalid(name="security", value=self.security, expected=" or ".join(map(repr, SECURITIES)))
        if "@" not in self.sender:
            raise ArgumentInvalid(name="sender", value=self.sender, expected="an address such as alerts@example.org")
        for template in (self.to, self.subject, self.body):
            _names(template)

    @property
    def name(self) -> str:
        return f"mail:{self.to}"

    def examine(self, columns: pa.Schema) -> None:
        """Refuse templates that name columns which are not there."""
        super().examine(columns)
        for template in (self.to, self.subject, self.body):
            for name in _names(template):
                if name not in columns.names:
                    raise ColumnMisfit(target=self.name, column=name, why="is in a template, but not among the columns")

    def begin(self, batch: MicroBatch) -> bool:
        with opened(self.state, self.name) as sent:
            before = sent.progress(batch.query)
            progress = before.admit(self.name, batch)
            if progress != before:
                sent.advance(batch.query, progress)
            return progress.has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        with opened(self.state, self.name) as sent:
            messages = messages_of(changes, batch, self.keys, sent)
            server = _Server(self)
            try:
                for message in messages:
                    why = server.send(message)
                    if why is not None:
                        refusals.add([Refusal(message.position, why)])
                        continue
                    reach("delivery.sent")
                    sent.record(batch, [message])
            finally:
                server.close()
            reach("delivery.written")
            refusals.post()
            sent.advance(batch.query, sent.progress(batch.query).admit(self.name, batch).after(batch))

    def mail(self, message: Message) -> EmailMessage:
        """The mail for a message; raises ValueError or KeyError where the row does not fill the templates."""
        values = _Values(message.values)
        mail = EmailMessage()
        mark = {"new": "", "correction": "Correction: ", "deletion": "Withdrawn: "}[message.kind]
        mail["From"] = self.sender
        mail["To"] = _line(self.to.format_map(values))
        mail["Subject"] = mark + _line(self.subject.format_map(values))
        mail["Date"] = formatdate(localtime=False)
        mail["Message-ID"] = self._message_id(message.id)
        if message.corrects is not None:
            mail["In-Reply-To"] = mail["References"] = self._message_id(message.corrects)
        mail.set_content(self.body.format_map(values))
        return mail

    def send(self, message: Message) -> str | None:
        """Send one mail outside of any batch; returns why it will never do, None where it was taken.

        Raises `RetryLater` where the server is away, and `SinkRefused` where it will take nothing as things are.
        """
        server = _Server(self)
        try:
            return server.send(message)
        finally:
            server.close()

    def _message_id(self, id: str) -> str:
        return f"<{id}@{self.sender.rpartition('@')[2].rstrip('>')}>"


class _Server:
    """A connection to the mail server, made when the first mail goes out."""

    def __init__(self, sink: MailSink) -> None:
        self._sink = sink
        self._link: smtplib.SMTP | None = None

    def send(self, message: Message) -> str | None:
        """Send a mail; returns why it will never do, None where it was taken."""
        try:
            mail = self._sink.mail(message)
        except (ValueError, KeyError, IndexError) as error:
            return f"the templates do not fit the row: {error}"
        try:
            self._connected().send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            return self._refused(*next(iter(error.recipients.values())))
        except smtplib.SMTPAuthenticationError as error:
            raise SinkRefused(
                sink=self._sink.name, why=_said(error.smtp_error), what="Correct `user` or `password`"
            ) from error
        except smtplib.SMTPResponseException as error:
            return self._refused(error.smtp_code, error.smtp_error)
        except (smtplib.SMTPException, OSError) as error:
            raise RetryLater(f"{type(error).__name__}: {error}") from error
        return None

    def _refused(self, code: int, words: bytes | str) -> str:
        said = f"the server answered {code} {_said(words)}"
        if code < 500:  # "not now", in the words of mail servers
            raise RetryLater(said)
        return said

    def _connected(self) -> smtplib.SMTP:
        if self._link is None:
            sink = self._sink
            if sink.security == "tls":
                context = ssl.create_default_context()
                self._link = smtplib.SMTP_SSL(sink.host, sink.port, timeout=sink.timeout_seconds, context=context)
            else:
                self._link = smtplib.SMTP(sink.host, sink.port, timeout=sink.timeout_seconds)
            if sink.security == "starttls":
                self._link.starttls(context=ssl.create_default_context())
            if sink.user is not None:
                self._link.login(sink.user, sink.password or "")
        return self._link

    def close(self) -> None:
        if self._link is not None:
            try:
                self._link.quit()
            except smtplib.SMTPException:
                self._link.close()


# Any: what JSON holds.
class _Values(dict[str, Any]):
    """A row for templates; of a deletion only the key is known, and the rest is said to be gone."""

    def __missing__(self, name: str) -> str:
        return "(gone)"


def _names(template: str) -> list[str]:
    from string import Formatter

    try:
        parsed = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ArgumentInvalid(name="template", value=template, expected=f"balanced braces ({error})") from error
    return [name.partition(".")[0].partition("[")[0] for name in parsed]


def _line(text: str) -> str:
    """Text that stays in its header: a row must not add headers of its own."""
    return " ".join(text.split())


def _said(words: bytes | str) -> str:
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else words
