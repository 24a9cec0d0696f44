"""Webhooks out: rows of a topic as signed HTTP requests to endpoints, at least once and under a stable id.

Each endpoint has its own consumer group, retry schedule and circuit breaker, so that one that is down does not hold others back. A message
that an endpoint does not take up to the deadline, or refuses for good, becomes a dead letter; every attempt is a row of `<topic>.attempts`.
A crash after a request and before its commit sends the message again: its `webhook-id` tells the receiver, and a gateway `webhook-in`
appends it once.
"""

from __future__ import annotations

import base64
import hashlib
import os
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

import orjson
import pyarrow as pa

from headwater.errors import ArgumentInvalid, EncodingInvalid, NotFound
from headwater.faults import reach
from headwater.gateways.delivery_plan import Circuit, CircuitState, Delivery, Pending, Schedule
from headwater.gateways.earlier_attempts import earlier_attempts
from headwater.gateways.http_post import Answer, check_url, post
from headwater.gateways.outlet import Outgoing, Outlet, Start
from headwater.gateways.port import Counters, Direction
from headwater.gateways.signatures import check_secrets
from headwater.log.dead_letters import DeadLetter, dead_letter_topic, make_dead_letter_topic
from headwater.log.port import Log
from headwater.optional import require
from headwater.schema import cloudevents, parse_schema
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    import httpx

ATTEMPT_SCHEMA: pa.Schema = parse_schema(
    "at timestamp not null, id string not null, endpoint string not null, attempt int32 not null, status int32, "
    "milliseconds float not null, outcome string not null, error string"
)
_CLOUDEVENT_COLUMNS = frozenset(cloudevents.CLOUDEVENT_SCHEMA.names)
#: How long an attempt log is kept.
ATTEMPTS_RETENTION = "30 days"
ROWS_AT_ONCE = 500
WAIT_SECONDS = 0.1
# Any: values of a row.
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WebhookOut:
    """Rows of a topic as webhooks to one or more endpoints.

    A request has one row as `{"id", "type", "timestamp", "data"}`, or with `rows_per_request` up to so many as `{"messages": […]}`. With
    `key`, rows with the same value of that column go one after the other; the others do not wait for them. `secret_env` names the
    environment variable with the secret. With `cloudevents`, rows are CloudEvents 1.0 in the JSON format, one or a batch of them: the
    events of entities with the entity as subject, rows of `CLOUDEVENT_SCHEMA` as they are, and others as data of an event whose type is the
    topic. `source` is their source, by default `/entities/KIND` or `/topics/TOPIC`.

    A failed attempt is repeated after `retry_first`, with doubled pauses up to `retry_max`, until `deadline` after the first attempt; a gateway
    that is started again goes on with the schedule that the attempt log shows. After
    `circuit_failures` in a row the endpoint gets nothing for `circuit_pause`, then one message as a test. `Retry-After` is obeyed.

    >>> gateway = WebhookOut(topic="orders", endpoints=("https://example.org/hook",), secret="s3cret")
    >>> gateway.name, gateway.group("https://example.org/hook")
    ('webhook-out-orders', 'webhook-out-orders-554ec998')
    """

    topic: str = "webhooks"
    endpoints: tuple[str, ...] = ()
    secret: str | None = field(default=None, repr=False)
    secret_env: str | None = None
    rows_per_request: int = 1
    cloudevents: bool = False
    source: str = ""
    key: str = ""
    start: Start = "earliest"
    retry_first: Duration = "5 seconds"
    retry_max: Duration = "1 hour"
    deadline: Duration = "1 day"
    timeout: Duration = "30 seconds"
    concurrency: int = 8
    #: Rows that are read and not done, for each endpoint.
    pending_max: int = 1_000
    circuit_failures: int = 5
    circuit_pause: Duration = "30 seconds"

    kind: ClassVar[str] = "webhook-out"
    direction: ClassVar[Direction] = "out"

    def __post_init__(self) -> None:
        if not self.endpoints or len(set(self.endpoints)) < len(self.endpoints):
            expected = "one address or more, each once"
            raise ArgumentInvalid(name="endpoints", value=self.endpoints, expected=expected)
        for url in self.endpoints:
            check_url(url)
        for name in ("rows_per_request", "concurrency", "pending_max", "circuit_failures"):
            if getattr(self, name) < 1:
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected="at least 1")
        for name in ("retry_first", "retry_max", "deadline", "timeout", "circuit_pause"):
            parse_seconds(getattr(self, name), name=name)

    @property
    def name(self) -> str:
        return f"webhook-out-{self.topic}"

    def group(self, endpoint: str) -> str:
        """The consumer group of an endpoint; `headwater group seek` moves it, while no gateway runs, to send rows again."""
        return f"{self.name}-{hashlib.sha256(endpoint.encode()).hexdigest()[:8]}"

    @property
    def attempts_topic(self) -> str:
        return f"{self.topic}.attempts"

    def known_secret(self) -> str | None:
        """The secret given, or that of the environment variable; None if requests are not signed."""
        secret = os.environ.get(self.secret_env, "") if self.secret_env else self.secret
        if secret is not None:
            check_secrets("standard", [secret])
        return secret

    def create_topics(self, log: Log) -> None:
        log.create(self.attempts_topic, ATTEMPT_SCHEMA, time="at", retention=ATTEMPTS_RETENTION, exist_ok=True)
        make_dead_letter_topic(log, self.topic)

    def open(self, log: Log) -> WebhookOutSession:
        require("httpx", extra="webhook")
        log.topic(self.topic)
        self.create_topics(log)
        return WebhookOutSession(log, self)

    def replay(self, log: Log, id: str, *, endpoint: str | None = None) -> dict[str, int | None]:
        """Send one message again, by the id of one of its rows, to one endpoint or all; return the status of each answer.

        It goes out under its old id: a receiver that has it says so. Rows from an offset or a time on are replayed by
        `log.groups.seek(gateway.group(endpoint), topic, to)` while the gateway is stopped.
        """
        if endpoint is not None and endpoint not in self.endpoints:
            raise NotFound(kind="endpoint", name=endpoint, near="")
        session = self.open(log)
        try:
            return session.replay(id, [endpoint] if endpoint is not None else self.endpoints)
        finally:
            session.close()


class WebhookOutSession:
    """A thread for each endpoint."""

    def __init__(self, log: Log, gateway: WebhookOut, *, transport: httpx.BaseTransport | None = None) -> None:
        self._gateway = gateway
        self.counters = Counters()
        self.address = ", ".join(shown(url) for url in gateway.endpoints)
        self.endpoints: list[Endpoint] = []
        try:
            for url in gateway.endpoints:
                self.endpoints.append(Endpoint(log, gateway, url, self.counters, transport=transport))
        except BaseException:
            self.close()
            raise

    def run(self, stop: threading.Event) -> None:
        failures: list[BaseException] = []
        ended = threading.Event()

        def work(endpoint: Endpoint) -> None:
            try:
                while not (stop.is_set() or ended.is_set()):
                    endpoint.step(seconds=WAIT_SECONDS)
                endpoint.drain()
            except BaseException as error:
                failures.append(error)
                ended.set()

        threads = [
            threading.Thread(target=work, args=(one,), name=f"{self._gateway.name}-{number}", daemon=True)
            for number, one in enumerate(self.endpoints)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def replay(self, id: str, endpoints: list[str] | tuple[str, ...]) -> dict[str, int | None]:
        return {one.url: one.replay(id) for one in self.endpoints if one.url in endpoints}

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()


class Endpoint:
    """An endpoint, what is pending for it, and its circuit breaker. One thread calls it; requests run in a pool."""

    def __init__(
        self,
        log: Log,
        gateway: WebhookOut,
        url: str,
        counters: Counters,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        import httpx

        self.url = url
        self._log = log
        self._gateway = gateway
        self._counters = counters
        self._secret = gateway.known_secret()
        topic = log.topic(gateway.topic)
        self._topic_id, self._columns = topic.id, frozenset(topic.schema.names)
        is_of_entities = self._columns >= cloudevents.ENTITY_COLUMNS
        place = ("entities", gateway.topic.removesuffix(".events")) if is_of_entities else ("topics", gateway.topic)
        self._source = gateway.source or f"/{place[0]}/{quote(place[1], safe='')}"
        self._schedule = Schedule(
            first_seconds=parse_seconds(gateway.retry_first),
            pause_seconds_max=parse_seconds(gateway.retry_max),
            deadline_seconds=parse_seconds(gateway.deadline),
        )
        pause = parse_seconds(gateway.circuit_pause)
        self._circuit = Circuit(gateway.circuit_failures, pause, max(pause, parse_seconds(gateway.retry_max)))
        self._pending = Pending()
        shared = [other for other in gateway.endpoints if shown(other) == shown(url)]
        # Two endpoints that look alike in the log cannot be told from each other.
        self._earlier = earlier_attempts(log, gateway.attempts_topic, shown(url)) if len(shared) == 1 else {}
        self._flying: dict[Future[tuple[Answer, float]], Delivery] = {}
        self._outlet = Outlet(
            log,
            gateway.topic,
            template="",
            value="",
            start=gateway.start,
            rows_max=min(ROWS_AT_ONCE, gateway.pending_max),
            gateway=gateway.group(url),
            counters=counters,
        )
        self._client = httpx.Client(timeout=parse_seconds(gateway.timeout), transport=transport)
        self._pool = ThreadPoolExecutor(gateway.concurrency, thread_name_prefix=gateway.group(url))

    @property
    def circuit(self) -> CircuitState:
        return self._circuit.state(now_us=self._log.clock.now_us())

    def step(self, *, seconds: float) -> None:
        """Read rows if there is room, start requests that are due, wait up to so many seconds, and record the answers."""
        if self._pending.rows < self._gateway.pending_max:
            self._read(seconds=0.0 if self._pending.deliveries else seconds)
        now_us = self._log.clock.now_us()
        for delivery in self._pending.ready(
            now_us=now_us, circuit=self._circuit, concurrency=self._gateway.concurrency
        ):
            self._start(delivery, now_us)
        if self._flying:
            wait(self._flying, timeout=seconds, return_when=FIRST_COMPLETED)
            self._record()
        elif self._pending.deliveries:
            time.sleep(seconds)  # until one is due, or the circuit is closed

    def drain(self) -> None:
        """Wait for the answers to requests that are on their way."""
        if self._flying:
            wait(self._flying)
            self._record()

    def replay(self, id: str) -> int | None:
        """Send one row again, at once and once."""
        prefix, _, rest = id.partition(".")
        partition, _, offset = rest.partition(".")
        found = None
        ends = self._log.end_offsets(self._gateway.topic)
        if (
            prefix == self._topic_id[:8]
            and partition.isdigit()
            and offset.isdigit()
            and int(offset) < ends.get(int(partition), 0)
        ):
            found = next(iter(self._outlet.messages(int(partition), start=int(offset), stop=int(offset) + 1)), None)
        if found is None:
            raise NotFound(kind="message", name=id, near="")
        delivery = self._delivery([found])
        answer, milliseconds = self._post(delivery)
        self._log.append(self._gateway.attempts_topic, [self._attempt(delivery, answer, milliseconds, "replay")])
        return answer.status

    def close(self) -> None:
        self._pool.shutdown()
        self._outlet.close()
        self._client.close()

    def _read(self, *, seconds: float) -> None:
        rows = self._outlet.next(seconds=seconds)
        self._counters.add(received=len(rows))
        some: list[Outgoing] = []
        for row in rows:
            if some and (len(some) >= self._gateway.rows_per_request or row.partition != some[0].partition):
                self._pending.add(self._continued(self._delivery(some)))
                some = []
            some.append(row)
        if some:
            self._pending.add(self._continued(self._delivery(some)))

    def _continued(self, delivery: Delivery) -> Delivery:
        """A delivery, with its schedule where the attempts of an earlier process have left it."""
        earlier = self._earlier.pop(delivery.id, None)
        if earlier is not None:
            delivery.attempts, delivery.first_us = earlier.attempts, earlier.first_us
            next_us = self._schedule.next_us(earlier.attempts, first_us=earlier.first_us, now_us=earlier.last_us)
            delivery.due_us = next_us or earlier.last_us
        return delivery

    def _delivery(self, rows: list[Outgoing]) -> Delivery:
        messages = [self._message(row) for row in rows]
        id = messages[0]["id"] if len(rows) == 1 else f"{messages[0]['id']}-{rows[-1].offset}"
        body = self._body(messages, rows)
        keys: frozenset[str] = frozenset()
        if self._gateway.key:
            values = (orjson.loads(row.payload or b"{}").get(self._gateway.key) for row in rows)
            keys = frozenset(orjson.dumps(value).decode() for value in values if value is not None)
        return Delivery(id=id, rows=list(rows), body=body, keys=keys)

    @property
    def _content_type(self) -> str:
        if not self._gateway.cloudevents:
            return "application/json"
        is_single = self._gateway.rows_per_request == 1
        return cloudevents.CONTENT_TYPE if is_single else cloudevents.CONTENT_TYPE_BATCH

    def _body(self, messages: list[Row], rows: list[Outgoing]) -> bytes:
        is_single = self._gateway.rows_per_request == 1
        if self._gateway.cloudevents:
            events = [self._cloudevent(*each) for each in zip(messages, rows, strict=True)]
            return cloudevents.to_structured(events[0]) if is_single else cloudevents.to_structured_batch(events)
        return orjson.dumps(messages[0] if is_single else {"messages": messages})

    def _cloudevent(self, message: Row, row: Outgoing) -> Row:
        """A row as a CloudEvent. One that is no valid event by its columns or headers is the data of an event."""
        data = orjson.loads(row.payload) if row.payload else None
        made = {"id": message["id"], "source": self._source, "type": message["type"], "time": message["timestamp"]}
        try:
            if data and self._columns >= cloudevents.ENTITY_COLUMNS:
                return cloudevents.from_entity_event(data, source=self._source)
            if data and self._columns >= _CLOUDEVENT_COLUMNS:
                return cloudevents.from_row({**data, "data": _bytes_of(data["data"])})
            headers = dict(row.headers)
            own = {name: headers[f"ce_{name}"].decode() for name in made if f"ce_{name}" in headers}
            return cloudevents.to_event(data, **{**made, **own}, headers=headers)
        except (EncodingInvalid, UnicodeDecodeError):
            return cloudevents.to_event(data, **made)

    def _message(self, row: Outgoing) -> Row:
        at = datetime.fromtimestamp(row.appended_us / 1e6, tz=UTC).isoformat().replace("+00:00", "Z")
        return {
            "id": f"{self._topic_id[:8]}.{row.partition}.{row.offset}",
            "type": self._gateway.topic,
            "timestamp": at,
            "data": orjson.Fragment(row.payload) if row.payload else None,
        }

    def _start(self, delivery: Delivery, now_us: int) -> None:
        delivery.in_flight = True
        delivery.first_us = delivery.first_us or now_us
        self._flying[self._pool.submit(self._post, delivery)] = delivery

    def _post(self, delivery: Delivery) -> tuple[Answer, float]:
        began = time.perf_counter()
        answer = post(
            self._client,
            self.url,
            id=delivery.id,
            body=delivery.body,
            secret=self._secret,
            headers={},
            now=self._log.clock.now_us() / 1e6,
            content_type=self._content_type,
        )
        return answer, (time.perf_counter() - began) * 1e3

    def _record(self) -> None:
        """Append the attempts that have ended, and dead letters, in one transaction; then commit the position."""
        now_us = self._log.clock.now_us()
        attempts: list[Row] = []
        letters: list[DeadLetter] = []
        done: list[tuple[Delivery, bool]] = []
        for future in [one for one in self._flying if one.done()]:
            delivery = self._flying.pop(future)
            answer, milliseconds = future.result()
            delivery.in_flight = False
            delivery.attempts += 1
            outcome = self._decide(delivery, answer, now_us)
            attempts.append(self._attempt(delivery, answer, milliseconds, outcome))
            if outcome == "dead letter":
                letters += self._dead_letters(delivery, answer, now_us)
            if outcome != "retry":
                done.append((delivery, outcome == "delivered"))
        if not attempts:
            return
        reach("webhook.answered")
        with self._log.transaction() as transaction:
            transaction.append(self._gateway.attempts_topic, attempts)
            if letters:
                transaction.append(dead_letter_topic(self._gateway.topic), [letter.as_row() for letter in letters])
        reach("webhook.recorded")
        for delivery, delivered in done:
            self._pending.done(delivery)
            if delivered:
                self._counters.add(appended=len(delivery.rows), bytes=len(delivery.body))
        self._counters.add(rejected=len(letters))
        if done:
            self._outlet.commit(self._pending.committable())

    def _decide(self, delivery: Delivery, answer: Answer, now_us: int) -> str:
        """What follows from an answer: "delivered", "retry" or "dead letter"."""
        if answer.meaning in ("delivered", "refused"):
            self._circuit.succeeded()
            return "delivered" if answer.meaning == "delivered" else "dead letter"
        self._circuit.failed(now_us=now_us, after_seconds=answer.after_seconds)
        next_us = self._schedule.next_us(
            delivery.attempts, first_us=delivery.first_us, now_us=now_us, after_seconds=answer.after_seconds
        )
        if next_us is None:
            return "dead letter"
        delivery.due_us = next_us
        return "retry"

    def _attempt(self, delivery: Delivery, answer: Answer, milliseconds: float, outcome: str) -> Row:
        return {
            "at": self._log.clock.now_us(),
            "id": delivery.id,
            "endpoint": shown(self.url),
            "attempt": delivery.attempts,
            "status": answer.status,
            "milliseconds": milliseconds,
            "outcome": outcome,
            "error": answer.why or None,
        }

    def _dead_letters(self, delivery: Delivery, answer: Answer, now_us: int) -> list[DeadLetter]:
        return [
            DeadLetter(
                topic=self._gateway.topic,
                partition=row.partition,
                offset=row.offset,
                row=row.payload.decode(),
                query=self._gateway.group(self.url),
                error="DeliveryFailed",
                message=f"{shown(self.url)}: {answer.why}",
                attempt=delivery.attempts,
                at_us=now_us,
            )
            for row in delivery.rows
        ]


# Any: JSON, as rows have bytes in it.
def _bytes_of(value: Any) -> bytes | None:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else None if value is None else value.encode()


def shown(url: str) -> str:
    """An endpoint as logs show it: without a password and without a query, which may hold a token.

    >>> shown("https://user:pass@example.org:8443/hook?token=abc")
    'https://example.org:8443/hook'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
