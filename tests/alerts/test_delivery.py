"""People who are told, over real HTTP and real mail: once each, signed, in order, and later where they were away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from headwater.alerts import Channels, Mail, Watcher
from headwater.config import Config
from headwater.errors import ArgumentInvalid
from headwater.gateways.signatures import signature
from headwater.log import Log
from tests.alerts.numbers import Numbers, opened, slow
from tests.servers import Mailbox, Receiver, free_port, http_receiver, smtp_server


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as started:
        yield started


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with smtp_server() as started:
        yield started


def told(watcher: Watcher, numbers: Numbers, rows: int) -> None:
    numbers.lags = {"spend": rows}
    numbers.clock.advance(seconds=5)
    watcher.look()
    watcher.deliver()


def test_a_webhook_is_signed_and_says_what_happened(log: Log, receiver: Receiver) -> None:
    numbers = Numbers(lags={"spend": 0})
    watcher = Watcher(log, numbers, sender=Channels(secret="s3cret"))
    watcher.put(slow(webhooks=[receiver.url], severity="critical", note="wake Ada"))
    for rows in (100, 200, 0, 0):
        told(watcher, numbers, rows)
    firing, resolved = receiver.requests
    headers = firing.headers
    expected = signature("s3cret", id=headers["webhook-id"], timestamp=headers["webhook-timestamp"], body=firing.body)
    assert headers["webhook-signature"] == expected
    body = orjson.loads(firing.body)
    assert body["text"] == "[FIRING] slow (critical): Query 'spend' is 100 rows behind, more than 10 rows"
    assert {name: body["alert"][name] for name in ("rule", "subject", "state", "value", "threshold", "note")} == {
        "rule": "slow",
        "subject": "spend",
        "state": "firing",
        "value": 100.0,
        "threshold": 10.0,
        "note": "wake Ada",
    }
    over = orjson.loads(resolved.body)
    assert over["text"] == "[RESOLVED] slow (critical): Query 'spend' is 0 rows behind"
    assert over["alert"]["firing_id"] == body["alert"]["id"] == headers["idempotency-key"]
    assert "s3cret" not in repr(watcher)


def test_a_webhook_that_is_down_gets_it_when_it_is_back(log: Log, receiver: Receiver) -> None:
    numbers, answers = Numbers(lags={"spend": 0}), [503, 429, 200]
    receiver.answer = lambda _request: (answers.pop(0), {"Retry-After": "7"})
    watcher = Watcher(log, numbers, sender=Channels())
    watcher.put(slow(webhooks=[receiver.url]))
    told(watcher, numbers, 100)
    [waiting] = watcher.store.outbox.open.values()
    assert waiting.error == "the receiver answered 503 Service Unavailable"
    assert waiting.next_us - numbers.now_us() == 7_000_000
    assert watcher.deliver() == 0
    for _ in range(2):
        numbers.clock.advance(seconds=7)
        watcher.deliver()
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    assert [one.state for one in watcher.store.outbox.finished.values()] == ["sent"]


def test_a_webhook_that_refuses_is_shown_with_what_to_do(log: Log, receiver: Receiver) -> None:
    receiver.answer = lambda _request: (404, {})
    watcher = Watcher(log, Numbers(lags={"spend": 0}), sender=Channels())
    watcher.put(slow(webhooks=[receiver.url, f"http://127.0.0.1:{free_port()}/"]))
    refused, away = watcher.test("slow")
    assert (refused.state, refused.error) == ("failed", "the receiver answered 404 Not Found. Correct the URL")
    assert (away.state, away.error is not None and away.error.startswith("ConnectError")) == ("failed", True)


def test_a_mail_says_what_happened_and_the_end_is_a_reply(log: Log, mailbox: Mailbox) -> None:
    numbers = Numbers(lags={"spend": 0})
    mail = Mail.parse(f"smtp://127.0.0.1:{mailbox.port}", sender="alerts@example.org")
    watcher = Watcher(log, numbers, sender=Channels(mail=mail))
    watcher.put(slow(webhooks=[], emails=["ada@example.org", "bob@example.org"], note="{braces} are fine"))
    for rows in (100, 0):
        told(watcher, numbers, rows)
    mails = [mail for mail in mailbox.messages if mail["To"] == "ada@example.org"]
    assert len(mailbox.messages) == 4
    firing, resolved = mails
    assert firing["Subject"].strip() == "[FIRING] slow (warning): Query 'spend' is 100 rows behind, more than 10 rows"
    assert resolved["In-Reply-To"] == firing["Message-ID"]
    text = firing.get_payload()
    assert "threshold: 10.0" in str(text)
    assert "{braces} are fine" in str(text)


def test_mail_without_a_server_says_what_to_set(log: Log) -> None:
    watcher = Watcher(log, Numbers(lags={"spend": 0}), sender=Channels())
    watcher.put(slow(webhooks=[], emails=["ada@example.org"]))
    [over] = watcher.test("slow")
    assert (over.state, "alert_mail_server" in (over.error or "")) == ("failed", True)


def test_channels_come_from_the_settings_and_their_secrets_are_not_shown() -> None:
    given = {"alert_webhook_secret": "s3cret", "alert_mail_server": "smtps://ada:p%40ss@mail.example.org"}
    config = Config.load(given, environ={})
    channels = Channels.of(config)
    assert channels.mail is not None
    assert (channels.mail.port, channels.mail.user, channels.mail.password) == (465, "ada", "p@ss")
    assert not any(secret in f"{config!r} {channels!r} {config.describe()}" for secret in ("s3cret", "p@ss", "p%40ss"))
    for wrong in ("mail.example.org", "http://mail.example.org", "smtp://"):
        with pytest.raises(ArgumentInvalid):
            Mail.parse(wrong, sender="alerts@example.org")
