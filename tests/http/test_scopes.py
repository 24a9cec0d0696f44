"""What a token reveals: the same by every way, whether a topic is asked for by its name or among all others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from headwater.config import Config
from headwater.http import Settings, Tokens
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.embedded.membership import GroupFolder
from headwater.services.callers import ACTIONS, EVERY, Caller, Scope
from tests.http.conftest import Ask, clients
from tests.laws import costly

TOPICS = ("orders", "orders.eu", "s", "secret")
OWN = ("__audit", "__offsets")
GROUPS = {"billing": {"orders", "orders.eu"}, "spies": {"secret"}, "auditors": {"__audit"}, "idle": set[str]()}

patterns = st.one_of(
    st.sampled_from(
        ["*", "?", "**", "[!s]*", "__*", "_*", "orders*", "orders.eu", "s*", "[*]", "secret", "__audit", "?*"]
    ),
    st.text(alphabet="*?[]!-_.so", min_size=1, max_size=5),
)
scopes = st.builds(lambda action, pattern: Scope(action=action, pattern=pattern), st.sampled_from(ACTIONS), patterns)
callers = st.builds(lambda some: Caller(name="any", scopes=tuple(some)), st.lists(scopes, max_size=3))


class GivenTokens(Tokens):
    """Tokens whose text is the scopes that they have."""

    def __bool__(self) -> bool:
        return True

    def check(self, text: str) -> Caller:
        return Caller(name="given", scopes=tuple(Scope.parse(one) for one in text.split()))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with (
        open_log(tmp_path_factory.mktemp("scopes") / "log", config=Config(maintenance="manual")) as log,
        clients(log) as make,
    ):
        fill(log)
        settings = Settings(kafka_names=True, requests_per_second_max=1e9)
        yield make(tokens=GivenTokens(log.home), settings=settings)


def fill(log: Log) -> None:
    for name in TOPICS:
        log.create(name, "id int64")
        log.append(name, [{"id": 1}])
    from headwater.services.audit import Audit

    Audit(log).record(caller=Caller(name="boss", scopes=()), address="x", action="POST", target="/", status=200)
    for group, topics in GROUPS.items():
        GroupFolder(log.home, group).make()
        for topic in topics:
            log.commit_offsets(group, topic, {0: 0})


@given(callers, st.sampled_from(ACTIONS), st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True))
def test_whoever_has_every_topic_has_each_of_them(caller: Caller, action: str, topic: str) -> None:
    for one in ACTIONS:
        if one == action and caller.may(one, EVERY):
            assert caller.may(one, topic)


@pytest.mark.parametrize("pattern", ["?", "[!s]*", "[*]", "s*", "*s", "__*", "?*"])
def test_a_pattern_that_leaves_some_topics_out_is_not_one_for_all(pattern: str) -> None:
    assert not Scope.parse(f"admin:{pattern}").allows("admin", EVERY)
    assert Scope.parse("admin:*").allows("read", EVERY)


@costly(5)
@given(caller=callers)
def test_every_way_reveals_what_the_routes_of_topics_do(asked: TestClient, caller: Caller) -> None:
    headers = {"Authorization": "Bearer " + " ".join(map(str, caller.scopes))}

    def ok(method: str, path: str, **body: object) -> bool:
        return asked.request(method, f"/api/v1{path}", json=body or None, headers=headers).status_code == 200

    read = {name for name in TOPICS + OWN if ok("GET", f"/topics/{name}/rows")}
    seen = {name for name in TOPICS + OWN if ok("GET", f"/topics/{name}")}
    # By their names, and among all others.
    listed = asked.get("/api/v1/topics", params={"internal": True}, headers=headers).json()["topics"]
    assert set(listed) == seen
    for name in TOPICS + OWN:
        if ok("POST", "/sql", sql=f'SELECT * FROM log."{name}"'):
            assert name in read
    everything = set(TOPICS)
    for path in ("/alerts", "/alerts/history", "/apps", "/graphs"):
        if ok("GET", path):
            assert everything <= read
    scraped = asked.get("/metrics", headers=headers)
    if scraped.status_code == 200:
        assert everything <= read
        assert set(re.findall(r'topic="([^"]+)"', scraped.text)) <= seen
    groups = asked.get("/api/v1/groups", headers=headers)
    if groups.status_code == 200:
        shown = {name for name, topics in GROUPS.items() if topics & seen or (not topics and caller.sees(EVERY))}
        assert {one["group"] for one in groups.json()} == shown
        assert all({*one["topics"], *one["committed"]} <= seen for one in groups.json())
        for name in GROUPS:
            assert ok("GET", f"/groups/{name}") == ok("GET", f"/groups/{name}/lag") == (name in shown)


def test_a_group_tells_of_its_members_what_the_caller_may_know(client_of: Ask, tokens: Tokens, log: Log) -> None:
    for name in ("orders", "secret"):
        log.create(name, "id int64")
    boss = client_of(token=tokens.create("boss"))
    boss.post("/api/v1/groups/g/members", json={"topics": ["orders", "secret", "sec*"]})
    reader = client_of(token=tokens.create("reader", ["read:orders"]))
    answer = reader.get("/api/v1/groups/g")
    assert [member["topics"] for member in answer.json()["members"]] == [["orders"]]
    assert "secret" not in answer.text
    refused = reader.delete("/api/v1/groups/g")
    assert (refused.status_code, "secret" in refused.text) == (403, False)


def test_names_that_are_near_are_told_to_those_who_may_see_them(client_of: Ask, tokens: Tokens, log: Log) -> None:
    log.create("secret", "id int64")
    log.commit_offsets("secrets", "secret", {0: 0})
    for scope, told in (("read:secre", False), ("read:*", True)):
        client = client_of(token=tokens.create(f"t{told}", [scope]))
        for path in ("/api/v1/topics/secre", "/api/v1/groups/secret"):
            answer = client.get(path)
            assert (answer.status_code, "Did you mean" in answer.text) == (404, told)


def test_whoever_may_not_have_dead_letters_does_not_learn_whether_there_are_any(
    client_of: Ask, tokens: Tokens, log: Log
) -> None:
    from headwater.log.dead_letters import DeadLetter, append_dead_letters

    log.create("secret", "id int64")
    letter = DeadLetter(topic="secret", partition=0, offset=0, row="{}", error="Odd", message="m", at_us=0)
    append_dead_letters(log, "secret", [letter])
    client = client_of(token=tokens.create("reader", ["read:orders"]))
    assert {client.get(f"/api/v1/dead-letters/{name}").status_code for name in ("secret", "nothing")} == {403}
