"""Webhooks and mail against real servers: signatures, retries, refusals, and corrections that name the first message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.gateways.signatures import signature
from headwater.log import open as open_log
from headwater.sinks import MailSink, Retry, WebhookSink
from headwater.sinks.errors import RowRefused, SinkRefused
from tests.servers import Mailbox, Receiver, Request, http_receiver, smtp_server
from tests.sinks.places import micro


def rows(**columns: list[Any]) -> list[pa.RecordBatch]:
    return [pa.record_batch(columns)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as started:
        yield started


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with smtp_server() as started:
        yield started


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    return [message for request in receiver.requests for message in orjson.loads(request.body)["messages"]]


def test_a_request_is_signed_and_has_an_idempotency_key(receiver: Receiver, tmp_path: Path) -> None:
    sink = WebhookSink(url=receiver.url, key="id", secret="s3cret", state=tmp_path, headers={"X-Team": "blue"})
    sink.commit(rows(id=[1, 2], name=["one", "two"]), micro(0))
    (request,) = receiver.requests
    headers = request.headers
    expected = signature("s3cret", id=headers["webhook-id"], timestamp=headers["webhook-timestamp"], body=request.body)
    assert headers["webhook-signature"] == expected
    assert headers["idempotency-key"] == headers["webhook-id"]
    assert headers["x-team"] == "blue"
    assert "s3cret" not in repr(sink)
    assert [(message["kind"], message["key"], message["row"]) for message in bodies(receiver)] == [
        ("new", "1", {"id": 1, "name": "one"}),
        ("new", "2", {"id": 2, "name": "two"}),
    ]


def test_a_correction_names_the_first_message_and_an_equal_row_is_not_sent_again(
    receiver: Receiver, tmp_path: Path
) -> None:
    sink = WebhookSink(url=receiver.url, key="id", state=tmp_path)
    for number, name in enumerate(["first", "first", "second", "third"]):
        sink.commit(rows(id=[1], name=[name], _op=["+U"]), micro(number))
    sink.commit(rows(id=[1, 9], name=["third", "never"], _op=["-D", "-D"]), micro(4))
    sink.commit(rows(id=[1], name=["again"], _op=["+I"]), micro(5))
    told = bodies(receiver)
    first = told[0]["id"]
    assert [(one["kind"], one["corrects"]) for one in told] == [
        ("new", None),
        ("correction", first),
        ("correction", first),
        ("deletion", first),
        ("new", None),
    ]


def test_rows_without_a_key_are_all_sent_also_equal_ones(receiver: Receiver, tmp_path: Path) -> None:
    sink = WebhookSink(url=receiver.url, state=tmp_path)
    for number in (0, 0, 1):
        sink.commit(rows(v=["a", "a", "b"]), micro(number))
    told = bodies(receiver)
    assert [one["row"]["v"] for one in told] == ["a", "a", "b"] * 2
    assert len({one["id"] for one in told}) == 6


def test_a_receiver_that_asks_for_patience_gets_it(receiver: Receiver, tmp_path: Path) -> None:
    answers = iter([(429, {"Retry-After": "0"}), (503, {}), (200, {})])
    receiver.answer = lambda _request: next(answers)
    retry = Retry(seconds_max=30, first_seconds=0.01)
    WebhookSink(url=receiver.url, key="id", state=tmp_path, retry=retry).commit(rows(id=[1]), micro(0))
    assert len({request.headers["idempotency-key"] for request in receiver.requests}) == 1
    assert len(receiver.requests) == 3


def test_messages_that_were_taken_before_the_receiver_fell_over_are_not_sent_again(
    receiver: Receiver, tmp_path: Path
) -> None:
    answers = iter([200, 500, 200, 200])
    receiver.answer = lambda _request: (next(answers), {})
    retry = Retry(seconds_max=30, first_seconds=0.01)
    sink = WebhookSink(url=receiver.url, key="id", state=tmp_path, retry=retry, rows_per_request=1)
    sink.commit(rows(id=[1, 2, 3]), micro(0))
    assert [one["row"]["id"] for one in bodies(receiver)] == [1, 2, 2, 3]


def picky(request: Request) -> tuple[int, dict[str, str]]:
    bad = any(message["row"]["id"] % 10 == 3 for message in orjson.loads(request.body)["messages"])
    return (422 if bad else 200), {}


def test_rows_that_the_receiver_will_never_take_are_found_among_the_others(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answer = picky
    with pytest.raises(RowRefused, match=r"id=3: the receiver answered 422"):
        WebhookSink(url=receiver.url, key="id", state=tmp_path / "a").commit(rows(id=list(range(20))), micro(0))
    with open_log(tmp_path / "log") as log:
        sink = WebhookSink(
            url=receiver.url,
            key="id",
            state=tmp_path / "b",
            on_refused="dead_letter",
            log=log.home,
            dead_letters="hook",
        )
        sink.commit(rows(id=list(range(20))), micro(0))
        assert [orjson.loads(letter["row"])["id"] for letter in log.read("hook.dlq").rows()] == [3, 13]


@pytest.mark.parametrize(
    ("status", "what"), [(401, "Correct the secret"), (404, "Correct the URL"), (302, "new address")]
)
def test_a_receiver_that_refuses_us_is_not_waited_for(
    receiver: Receiver, tmp_path: Path, status: int, what: str
) -> None:
    receiver.answer = lambda _request: (status, {"Location": "https://example.org/new"})
    with pytest.raises(SinkRefused, match=what):
        WebhookSink(url=receiver.url, key="id", state=tmp_path).commit(rows(id=[1]), micro(0))


def test_without_a_place_to_remember_nothing_is_sent(receiver: Receiver) -> None:
    with pytest.raises(ArgumentInvalid, match="a folder in which to remember"):
        WebhookSink(url=receiver.url, key="id").commit(rows(id=[1]), micro(0))
    assert receiver.requests == []
    with pytest.raises(ArgumentInvalid, match="http"):
        WebhookSink(url="ftp://example.org")


def mail_sink(mailbox: Mailbox, state: Path, **options: Any) -> MailSink:
    given: dict[str, Any] = {
        "host": "127.0.0.1", "port": mailbox.port, "state": state, "key": "id", "sender": "a@example.org",
        "to": "{owner}", "subject": "{name} has {n}", "body": "Now {n:.1f}.",
    }  # fmt: skip
    return MailSink(**(given | options))


def test_a_mail_is_made_from_its_row_and_a_correction_is_a_reply(mailbox: Mailbox, tmp_path: Path) -> None:
    sink = mail_sink(mailbox, tmp_path)
    for number, n in enumerate([1.0, 2.0]):
        sink.commit(rows(id=[1], owner=["b@example.org"], name=["Zoë\r\nBcc: x@example.org"], n=[n]), micro(number))
    first, second = mailbox.messages
    assert first["Subject"] == "Zoë Bcc: x@example.org has 1.0", "a row cannot add headers"
    assert first["Bcc"] is None
    assert first["To"] == "b@example.org"
    assert second["Subject"].startswith("Correction: ")
    assert second["In-Reply-To"] == second["References"] == first["Message-ID"]
    assert "Now 2.0." in str(second)


def test_a_recipient_that_the_server_will_not_take_is_a_refused_row(mailbox: Mailbox, tmp_path: Path) -> None:
    mailbox.refuse = {"no@example.org": "550 no such user"}
    batch = rows(id=[1, 2], owner=["no@example.org", "b@example.org"], name=["x", "y"], n=[1.0, 2.0])
    with pytest.raises(RowRefused, match="550 no such user"):
        mail_sink(mailbox, tmp_path / "a").commit(batch, micro(0))
    with open_log(tmp_path / "log") as log:
        options = {"on_refused": "dead_letter", "log": log.home, "dead_letters": "mail"}
        mail_sink(mailbox, tmp_path / "b", **options).commit(batch, micro(0))
        assert len(log.read("mail.dlq").rows()) == 1
    assert [mail["To"] for mail in mailbox.messages] == ["b@example.org"]


def test_templates_are_checked_before_the_first_mail(mailbox: Mailbox, tmp_path: Path) -> None:
    with pytest.raises(ColumnMisfit, match=r"'owner' .*: it is in a template"):
        mail_sink(mailbox, tmp_path).check(pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.float64())]))
    with pytest.raises(ArgumentInvalid, match="balanced braces"):
        mail_sink(mailbox, tmp_path, body="{").check(pa.schema([("id", pa.int64())]))
    with pytest.raises(RowRefused, match="the templates do not fit the row"):
        mail_sink(mailbox, tmp_path).commit(rows(id=[1], owner=["b@example.org"], name=["x"], n=["text"]), micro(0))
