"""Trying to get in: without a token, with a wrong one, with one for other topics, from other pages, and with too much."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator, MutableMapping
from typing import Any

import anyio
import pytest
from fastapi import FastAPI, Request, Response
from starlette.testclient import TestClient

from headwater import EventTime
from headwater.clock import ManualClock
from headwater.config import Config
from headwater.errors import ArgumentInvalid, NotFound, NotPossible
from headwater.http import Address, Settings, Tokens, application
from headwater.http.server import check
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.embedded import local_log
from headwater.log.errors import NameInvalid
from headwater.log.topic import Topic
from headwater.services.audit import AUDIT_SCHEMA, AUDIT_TOPIC, RETENTION, Audit
from headwater.services.callers import LOCAL
from headwater.services.tokens import TokenInvalid
from tests.http.conftest import Ask, clients

LINES = {"Content-Type": "application/x-ndjson"}


def with_topics(log: Log) -> Log:
    for name in ("orders.eu", "cards"):
        log.create(name, "id int64")
        log.append(name, [{"id": 1}])
    return log


@pytest.fixture
def log(log: Log) -> Log:
    return with_topics(log)


@pytest.fixture(scope="module")
def refused(shared_log: Log, shared_client_of: Ask) -> TestClient:
    """A client of a log without tokens, for requests that are refused and change nothing."""
    with_topics(shared_log)
    return shared_client_of()


@pytest.fixture(scope="module")
def refused_reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client that may read `orders.*`, and is refused everything else."""
    with open_log(tmp_path_factory.mktemp("reader") / "log", config=Config(maintenance="manual")) as log:
        with_topics(log)
        with clients(log) as make:
            yield make(token=Tokens(log.home).create("reader", ["read:orders.*"]))


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_kept_as_its_hash_in_a_file_for_its_user_alone(log: Log, tokens: Tokens) -> None:
    text = tokens.create("ci", ["read:orders.*"])
    file = log.home / "server" / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.read_text()
    assert text not in kept
    assert text.rpartition("_")[2] not in kept
    assert repr(tokens.list()[0]).find("hash=") == -1


def test_only_the_whole_right_token_is_good(tokens: Tokens) -> None:
    text = tokens.create("ci")
    assert tokens.check(text).name == "ci"
    other = Tokens(tokens._folder.parent)
    other.create("second")
    for wrong in (
        "",
        "hw_",
        text[:-1],
        text + "x",
        text.upper(),
        "hw__",
        text.removeprefix("hw_"),
        f"xx{text}",
        f" {text}",
        "hw_" + "0" * 60,
        "\udcff",
    ):
        with pytest.raises(TokenInvalid):
            tokens.check(wrong)


def test_a_token_ends_when_it_expires_and_when_it_is_revoked(log: Log) -> None:
    clock = ManualClock()
    tokens = Tokens(log.home, clock=clock)
    short, long = tokens.create("short", seconds=60), tokens.create("long")
    clock.advance(seconds=61)
    with pytest.raises(TokenInvalid, match="expired"):
        tokens.check(short)
    Tokens(log.home).revoke("long")  # by another process
    with pytest.raises(TokenInvalid):
        tokens.check(long)
    with pytest.raises(NotFound):
        tokens.revoke("long")


@pytest.mark.parametrize("scope", ["", "see:x", "read:", "Read:x", "admin orders"])
def test_a_scope_that_means_nothing_is_refused(tokens: Tokens, scope: str) -> None:
    with pytest.raises(ArgumentInvalid):
        tokens.create("ci", [scope])
    with pytest.raises(NameInvalid):
        tokens.create("../x")
    assert tokens.list() == []


# -- who asks ---------------------------------------------------------------------------------------------------------


def test_without_any_token_this_machine_is_let_in(client: TestClient) -> None:
    assert client.get("/api/v1/topics").status_code == 200


def test_from_the_first_token_on_everybody_needs_one(client_of: Ask, tokens: Tokens) -> None:
    client = client_of()
    text = tokens.create("ci")
    for headers in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer nope"},
        {"Authorization": f"Basic {text}"},
        {"Authorization": f"Bearer {text}x"},
        {"Authorization": f"Bearer xx{text}"},
        {"X-Api-Key": text},
        {"Cookie": f"token={text}"},
    ):
        answer = client.get("/api/v1/topics", headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (401, "TokenInvalid")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert client.get(f"/api/v1/topics?token={text}").status_code == 401
    assert client.get("/api/v1/topics", headers={"Authorization": f"bearer {text}"}).status_code == 200
    assert client.get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "scope"),
    [
        ("GET", "/api/v1/topics/cards/rows", None, "read:cards"),
        ("GET", "/api/v1/topics/cards", None, "read:cards"),
        ("GET", "/api/v1/topics/cards/tail", None, "read:cards"),
        ("GET", "/api/v1/topics/cards/positions", None, "read:cards"),
        ("GET", "/api/v1/topics/__offsets/rows", None, "read:__offsets"),
        ("GET", "/api/v1/topics/__audit/rows", None, "read:__audit"),
        ("POST", "/api/v1/topics/orders.eu/rows", {"id": 1}, "write:orders.eu"),
        ("POST", "/api/v1/topics", {"name": "orders.us"}, "admin:orders.us"),
        ("PATCH", "/api/v1/topics/orders.eu", {"partitions": 2}, "admin:orders.eu"),
        ("DELETE", "/api/v1/topics/orders.eu", None, "admin:orders.eu"),
        ("POST", "/api/v1/wait", {"topics": {"cards": {"0": 0}}, "seconds": 0}, "read:cards"),
        ("POST", "/api/v1/groups/g/offsets", {"topic": "cards", "offsets": {"0": 1}}, "read:cards"),
        ("POST", "/api/v1/groups/g/seek", {"topic": "orders.eu", "to": "earliest"}, "admin:orders.eu"),
        ("POST", "/api/v1/groups/g/members", {"topics": ["cards"]}, "read:cards"),
        ("POST", "/api/v1/transactions", {}, "write:*"),
        ("GET", "/api/v1/transactions/prepared", None, "admin:*"),
        ("GET", "/metrics", None, "read:*"),
    ],
)
def test_a_token_is_good_for_its_own_topics_and_no_others(
    refused_reader: TestClient, method: str, path: str, body: Any, scope: str
) -> None:
    answer = refused_reader.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (403, "ScopeMissing")
    assert answer.json()["facts"]["scope"] == scope


def test_what_a_token_may_not_see_is_not_listed(client_of: Ask, tokens: Tokens, log: Log) -> None:
    log.commit_offsets("g", "cards", {0: 1})
    client = client_of(token=tokens.create("reader", ["read:orders.*"]))
    assert client.get("/api/v1/topics", params={"internal": True}).json()["topics"] == ["orders.eu"]
    assert client.get("/api/v1/groups").json() == []
    assert client.get("/api/v1/groups/g/lag").status_code == 404
    assert client.get("/api/v1/groups/g").status_code == 404
    assert client.get("/api/v1/topics/orders.eu/rows").status_code == 200


def test_revoking_the_last_token_lets_nobody_in(client_of: Ask, tokens: Tokens) -> None:
    text = tokens.create("ci")
    client = client_of()
    assert client.get("/api/v1/topics", headers={"Authorization": f"Bearer {text}"}).status_code == 200
    tokens.revoke("ci")
    assert client.get("/api/v1/topics").status_code == 401
    assert client_of(guarded=True).get("/api/v1/topics").status_code == 401


@pytest.mark.parametrize("topic", ["payments", "__alerts"])
def test_a_forged_letter_takes_no_row_to_where_its_writer_may_not_write(
    client_of: Ask, tokens: Tokens, log: Log, topic: str
) -> None:
    from headwater.log.dead_letters import DeadLetter, append_dead_letters

    client = client_of(token=tokens.create("team", ["admin:x*"]))
    log.create("payments", "id int64")
    log.create("x", "id int64")
    letters = [
        DeadLetter(topic=name, partition=0, offset=0, row='{"id": 7}', error="Odd", message="m", at_us=0)
        for name in ("x", topic)
    ]
    append_dead_letters(log, "x", letters)
    told = client.post("/api/v1/dead-letters/x/redrive", json={}).json()["outcome"]
    assert told["redriven"] == {"Odd": 1}
    assert [topic in one["why"] for one in told["refused"]] == [True]
    assert [log.read(name).count() for name in ("x", "payments")] == [1, 0]


def test_the_transaction_of_another_caller_is_not_there(client_of: Ask, tokens: Tokens) -> None:
    ada = client_of(token=tokens.create("ada", ["write:*"]))
    eve = client_of(token=tokens.create("eve", ["write:*"]))
    begun = ada.post("/api/v1/transactions", json={}).json()["id"]
    sent = eve.post(f"/api/v1/transactions/{begun}/rows/cards", content=b'{"id": 1}', headers=LINES)
    assert sent.status_code == 404
    assert eve.post(f"/api/v1/transactions/{begun}/commit").status_code == 403
    assert eve.delete(f"/api/v1/transactions/{begun}").status_code == 403


def test_a_group_by_pattern_reads_only_what_its_token_may(client_of: Ask, tokens: Tokens) -> None:
    client = client_of(token=tokens.create("reader", ["read:orders.*"]))
    joined = client.post("/api/v1/groups/g/members", json={"topics": ["*"]}).json()
    assert joined["owned"] == {"orders.eu": [0]}


def test_pages_that_ask_by_themselves_are_let_through_with_no_rights(client_of: Ask, tokens: Tokens) -> None:
    tokens.create("ci")

    def add_page(app: FastAPI) -> None:
        @app.get("/console/login")
        def login(request: Request) -> dict[str, bool]:
            return {"sees": request.state.caller.sees("cards")}

        @app.get("/consoles")
        def other() -> str:
            return "secret"

    client = client_of(mount=[add_page], public=["/console"])
    assert client.get("/console/login").json() == {"sees": False}
    assert client.get("/consoles").status_code == 401
    assert client.get("/console/../api/v1/topics").status_code == 401
    assert client.get("/console/login", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("name", ["..", "%2e%2e", "../../../etc/passwd", "a/b", "x" * 300, "\x00", " "])
def test_no_name_leads_out_of_the_folder(refused: TestClient, shared_log: Log, name: str) -> None:
    client, folder = refused, shared_log.home
    before = sorted(path for path in folder.rglob("*") if "__audit" not in str(path))
    quoted = name.replace("/", "%2F").replace(".", "%2E").replace("\x00", "%00")
    answers = [
        client.delete(f"/api/v1/transactions/{quoted}"),
        client.post(f"/api/v1/transactions/{quoted}/commit"),
        client.post("/api/v1/topics/cards/punctuate", json={"time_us": 1, "producer": name}),
        client.post(f"/api/v1/producers/{quoted}/open"),
        client.post("/api/v1/transactions", json={"producer": name}),
        client.post("/api/v1/topics", json={"name": name}),
        client.delete(f"/api/v1/topics/{quoted}"),
        client.delete(f"/api/v1/groups/{quoted}"),
        client.post(f"/api/v1/groups/{quoted}/members", json={"topics": ["cards"]}),
        client.post("/api/v1/groups/g/members", json={"topics": ["cards"], "member": name}),
        client.post(f"/api/v1/groups/{quoted}/seek", json={"topic": "cards", "to": "earliest"}),
        client.post("/api/v1/wait", json={"group": name, "seconds": 0}),
        client.get(f"/api/v1/dead-letters/{quoted}"),
    ]
    assert {answer.status_code for answer in answers} <= {400, 404, 405}
    assert sorted(path for path in folder.rglob("*") if "__audit" not in str(path)) == before


# -- from where, how often, how much ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::2]:8080"])
def test_a_name_that_was_pointed_at_this_machine_is_refused(refused: TestClient, host: str) -> None:
    answer = refused.get("/api/v1/topics", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]) == (421, "HostUnknown")


def test_names_that_were_allowed_are_answered(client_of: Ask) -> None:
    client = client_of(settings=Settings(hosts=("log.example",)))
    for host in ("log.example", "LOG.example:443", "localhost:1", "[::1]:8080"):
        assert client.get("/livez", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:9", "x", "http://["]
)
def test_pages_of_other_sites_are_refused(refused: TestClient, origin: str) -> None:
    answer = refused.post("/api/v1/topics", json={"name": "x"}, headers={"Origin": origin})
    assert (answer.status_code, answer.json()["error"]) == (403, "OriginRefused")
    own = refused.get("/api/v1/topics", headers={"Origin": "http://127.0.0.1:8080"})
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers


def test_a_body_beyond_the_bound_is_refused_whether_it_says_so_or_not(client_of: Ask, log: Log) -> None:
    client = client_of(settings=Settings(body_bytes_max=1_000))
    path, body = "/api/v1/topics/cards/rows", b'{"id": 1}\n' * 200

    def chunks() -> Iterator[bytes]:
        yield body[:500]
        yield body[500:]

    for content in (body, chunks()):
        answer = client.post(path, content=content, headers=LINES)
        assert (answer.status_code, answer.json()["error"]) == (413, "BodyTooLarge")
    answer = client.post("/api/v1/topics", content=chunks(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert log.end_offsets("cards") == {0: 1}


@pytest.mark.parametrize("says_so", [True, False])
def test_a_body_beyond_the_bound_is_read_to_its_end_before_the_answer(log: Log, says_so: bool) -> None:
    """A client reads the answer when it has sent all; a connection that is closed under it would hide the answer."""
    app = application(log, settings=Settings(body_bytes_max=1_000))
    left = [b"x" * 600] * 5
    sent: list[tuple[str, int]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(), "more_body": bool(left)}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            sent.append((str(message["status"]), len(left)))

    length = [(b"content-length", b"3000")] if says_so else [(b"transfer-encoding", b"chunked")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/topics/cards/rows",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/x-ndjson"), *length],
    }
    anyio.run(app, scope, receive, send)
    assert sent == [("413", 0)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/topics", '{"name": "\\ud800"}'),
        ("/api/v1/topics", '{"name": "x", "schema": {"\\udfff": "int64"}}'),
        ("/api/v1/groups/g/offsets", '{"topic": "\\ud83d", "offsets": {}}'),
    ],
)
def test_a_lone_surrogate_is_no_text(refused: TestClient, path: str, body: str) -> None:
    answer = refused.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == (400, "ArgumentInvalid")


def test_a_lone_surrogate_is_refused_in_the_registrys_own_form(refused: TestClient) -> None:
    body, headers = '{"schema": "\\ud800"}', {"Content-Type": "application/json"}
    answer = refused.post("/subjects/x-value/versions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 422)


def test_a_character_of_two_surrogates_is_text(client: TestClient, log: Log) -> None:
    body = '{"topic": "cards", "offsets": {"0": 1}, "metadata": "\\ud83d\\ude00"}'
    answer = client.post("/api/v1/groups/g/offsets", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 204
    assert log.read("__offsets").rows()[0]["metadata"] == "\U0001f600"


def test_a_client_that_asks_too_often_must_wait(client_of: Ask) -> None:
    client = client_of(settings=Settings(requests_per_second_max=3))
    answers = [client.get("/api/v1/topics") for _ in range(20)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 10
    assert refused[0].json()["error"] == "TooManyRequests"
    assert int(refused[0].headers["retry-after"]) >= 1


def test_whoever_guesses_tokens_must_wait_and_others_need_not(client_of: Ask, tokens: Tokens) -> None:
    text = tokens.create("ci")
    client = client_of(settings=Settings(failures_per_minute_max=5))
    statuses = [client.get("/api/v1/topics", headers={"Authorization": "Bearer nope"}).status_code for _ in range(8)]
    assert statuses == [401] * 5 + [429] * 3
    assert client.get("/api/v1/topics", headers={"Authorization": f"Bearer {text}"}).status_code == 200


def test_neither_tokens_nor_questions_reach_the_servers_log(
    client_of: Ask, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = tokens.create("ci")
    client = client_of(token=text)
    client.get("/api/v1/topics?pattern=private-things")
    client.get("/api/v1/topics", headers={"Authorization": "Bearer hw_guess_guessed"})
    own = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("headwater"))
    assert "ci GET /api/v1/topics 200" in own
    for secret in (text, text.rpartition("_")[2], "guessed", "private-things"):
        assert secret not in own


def test_an_error_that_nobody_foresaw_tells_nothing_of_the_inside(
    client: TestClient, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret path /srv/x")

    monkeypatch.setattr(type(log), "describe", broken)
    answer = client.get("/api/v1/topics/cards/describe")
    assert answer.status_code == 500
    assert "secret" not in answer.text


# -- what was done ----------------------------------------------------------------------------------------------------


def test_changes_are_in_the_audit_topic_also_those_that_were_refused(client_of: Ask, tokens: Tokens, log: Log) -> None:
    admin = client_of(token=tokens.create("boss"))
    reader = client_of(token=tokens.create("reader", ["read:*"]))
    admin.post("/api/v1/topics", json={"name": "fresh"})
    reader.delete("/api/v1/topics/fresh")
    admin.post("/api/v1/topics/fresh/rows", content=b'{"value": "x"}', headers=LINES)
    admin.get("/api/v1/topics/fresh")
    admin.delete("/api/v1/topics/fresh")
    found = [(row["caller"], row["action"], row["target"], row["status"]) for row in log.read("__audit").rows()]
    assert found == [
        ("boss", "topics.create", "name=fresh", 200),
        ("reader", "topics.delete", "fresh", 403),
        ("boss", "topics.delete", "fresh", 200),
    ]


def test_whoever_has_no_token_writes_nothing_down(client_of: Ask, tokens: Tokens, log: Log) -> None:
    """They could fill the disk: what they are refused is counted."""
    admin = tokens.create("boss")

    def add_page(app: FastAPI) -> None:
        @app.post("/console/{status}")
        def page(status: int) -> Response:
            return Response(status_code=status)

    client = client_of(mount=[add_page], public=["/console"])
    for status in (401, 401, 429, 400, 303):
        client.post(f"/console/{status}", follow_redirects=False)
    found = [(row["caller"], row["target"], row["status"]) for row in log.read("__audit").rows()]
    assert found == [("anonymous", "/console/303", 303)]
    scraped = client.get("/metrics", headers={"Authorization": f"Bearer {admin}"}).text
    assert 'headwater_server_refused_anonymous_total{status="401"} 2' in scraped


@pytest.mark.parametrize("topic", ["__audit", "__offsets"])
def test_topics_of_the_log_itself_are_not_deleted(client: TestClient, log: Log, topic: str) -> None:
    client.post("/api/v1/topics", json={"name": "fresh"})
    log.commit_offsets("g", "cards", {0: 1})
    before = log.read(topic).count()
    answer = client.delete(f"/api/v1/topics/{topic}")
    assert (answer.status_code, answer.json()["error"]) == (400, "NotPossible")
    assert log.read(topic, stop=before).count() == before > 0


def test_what_is_done_is_written_down_also_after_the_audit_topic_was_removed(client: TestClient, log: Log) -> None:
    client.post("/api/v1/topics", json={"name": "first"})
    local_log(log)._catalogue.delete(AUDIT_TOPIC)  # as a program of an earlier version could
    client.post("/api/v1/topics", json={"name": "second"})
    assert [row["target"] for row in log.read(AUDIT_TOPIC).rows()] == ["name=second"]


def test_the_audit_topic_is_kept_for_a_while_and_not_without_end(client: TestClient, log: Log) -> None:
    old = Audit(log)
    log.create_internal(
        Topic(
            name=AUDIT_TOPIC,
            id="a0d17" + "0" * 27,
            schema=AUDIT_SCHEMA,
            time=EventTime("at"),
            created_us=log.clock.now_us(),
        )
    )
    old.record(caller=LOCAL, address="x", action="POST", target="/", status=200)
    assert log.topic(AUDIT_TOPIC).retention == RETENTION
    log.alter(AUDIT_TOPIC, retention="30 days")
    Audit(log).record(caller=LOCAL, address="x", action="POST", target="/", status=200)
    assert log.topic(AUDIT_TOPIC).retention.seconds_max == 30 * 86_400
    assert client.get("/livez").status_code == 200


# -- where it listens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_other_machines_are_not_served_without_tokens(tokens: Tokens, host: str) -> None:
    with pytest.raises(NotPossible, match="headwater token create"):
        check(Address(host=host), tokens)
    tokens.create("ci")
    check(Address(host=host), tokens)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.0.1"])
def test_this_machine_is_served_without_tokens(tokens: Tokens, host: str) -> None:
    check(Address(host=host), tokens)
