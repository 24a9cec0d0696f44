"""The webhook sink: rows become messages to an HTTP address, at least once.

A request may arrive although its answer is lost, so no sink can promise more than that it arrives at least once. It
then comes again under the same `Idempotency-Key`, by which the receiver can tell. Requests are signed as the Standard
Webhooks specification says, so that receivers can use a library for it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import orjson
import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid
from headwater.faults import reach
from headwater.gateways.http_post import check_url, post
from headwater.optional import require
from headwater.sinks.changes import Changes, Refusal
from headwater.sinks.driver import DriverSink, Refusals
from headwater.sinks.errors import SinkRefused
from headwater.sinks.messages import Message, Sent, messages_of, opened
from headwater.sinks.port import Guarantee
from headwater.sinks.retry import RetryLater

if TYPE_CHECKING:
    from httpx import Client


@dataclass(frozen=True, kw_only=True)
class WebhookSink(DriverSink):
    """Rows as messages to an HTTP address; at least once, with an idempotency key for each.

    The body is `{"messages": [{"id", "kind", "key", "row", "corrects"}]}` with up to `rows_per_request` messages. With a
    `key`, only what is new to the receiver goes out: `kind` is "new", or "correction" or "deletion" with the id of the
    first message about that key in `corrects`. With a `secret`, requests carry `webhook-signature` (HMAC-SHA256 over
    id, time and body).

    >>> WebhookSink(url="https://example.org/hook", key="order", secret="s3cret").name
    'webhook:https://example.org/hook'
    """

    url: str
    secret: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    rows_per_request: int = 100
    timeout_seconds: float = 30.0

    guarantee: ClassVar[Guarantee] = "at least once"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_url(self.url)
        if self.rows_per_request < 1:
            raise ArgumentInvalid(name="rows_per_request", value=self.rows_per_request, expected="at least 1")

    @property
    def name(self) -> str:
        return f"webhook:{self.url.partition('?')[0]}"

    def examine(self, columns: pa.Schema) -> None:
        super().examine(columns)
        require("httpx", extra="webhook")

    def begin(self, batch: MicroBatch) -> bool:
        with opened(self.state, self.name) as sent:
            before = sent.progress(batch.query)
            progress = before.admit(self.name, batch)
            if progress != before:
                sent.advance(batch.query, progress)
            return progress.has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        require("httpx", extra="webhook")
        import httpx

        with opened(self.state, self.name) as sent, httpx.Client(timeout=self.timeout_seconds) as client:
            messages = messages_of(changes, batch, self.keys, sent)
            for start in range(0, len(messages), self.rows_per_request):
                refusals.add(self._sent(client, sent, batch, messages[start : start + self.rows_per_request]))
            reach("delivery.written")
            refusals.post()
            sent.advance(batch.query, sent.progress(batch.query).admit(self.name, batch).after(batch))

    def _sent(self, client: Client, sent: Sent, batch: MicroBatch, messages: Sequence[Message]) -> list[Refusal]:
        """Send messages together; where they are refused, by halves, until the refused stand alone."""
        why = self._posted(client, messages)
        if why is None:
            reach("delivery.sent")
            sent.record(batch, messages)
            return []
        if len(messages) == 1:
            return [Refusal(messages[0].position, why)]
        half = len(messages) // 2
        return [
            *self._sent(client, sent, batch, messages[:half]),
            *self._sent(client, sent, batch, messages[half:]),
        ]

    def _posted(self, client: Client, messages: Sequence[Message]) -> str | None:
        """Post a request; returns why these messages will never do, None where they were taken."""
        body = orjson.dumps({"messages": [_as_json(message) for message in messages]})
        return self.post(client, id=messages[0].id if len(messages) == 1 else _joined(messages), body=body)

    def post(self, client: Client, *, id: str, body: bytes) -> str | None:
        """Post a body of one's own, signed; returns why it will never do, None where it was taken.

        Raises `RetryLater` where the receiver is away, and `SinkRefused` where it will take nothing as things are.
        """
        answer = post(client, self.url, id=id, body=body, secret=self.secret, headers=self.headers, now=time.time())
        if answer.meaning == "later":
            raise RetryLater(answer.why, after_seconds=answer.after_seconds)
        if answer.meaning == "misaddressed":
            raise SinkRefused(sink=self.name, why=answer.why, what=answer.remedy)
        return answer.why if answer.meaning == "refused" else None


def _as_json(message: Message) -> dict[str, object]:
    body: dict[str, object] = {"id": message.id, "kind": message.kind, "row": orjson.Fragment(message.row)}
    if message.keyed:
        body |= {"key": message.key, "corrects": message.corrects}
    if message.operation is not None:
        body["op"] = message.operation
    return body


def _joined(messages: Sequence[Message]) -> str:
    return hashlib.sha256("".join(message.id for message in messages).encode()).hexdigest()[:32]
