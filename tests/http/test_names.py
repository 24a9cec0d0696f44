"""Names of producers and members belong to who uses them: no other caller fences them, or takes their places."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from headwater.http import Tokens
from headwater.log import Log
from headwater.log.errors import NameInvalid
from headwater.services.callers import LOCAL, Caller, Scope
from tests.http.conftest import Ask

LINES = {"Content-Type": "application/x-ndjson"}
names = st.text(alphabet="ab.-0", min_size=1, max_size=4)


@given(names, names, names, names)
def test_two_callers_never_come_to_the_same_name(ada: str, eve: str, hers: str, other: str) -> None:
    ours, theirs = (Caller(name=one, scopes=(Scope.parse("write:*"),)) for one in (ada, eve))
    assert (ours.own(hers) == theirs.own(other)) == ((ada, hers) == (eve, other))
    # Not even by a name that another caller's is known by.
    assert (theirs.own(ours.own(hers)) == ours.own(hers)) is False
    assert LOCAL.own(hers) == hers


def test_a_name_is_shared_by_those_who_have_a_scope_for_it() -> None:
    caller = Caller(name="ada", scopes=(Scope.parse("name:load*"), Scope.parse("admin:orders.*")))
    assert caller.own("loader") == "loader"
    assert caller.own("orders.1") != "orders.1"
    assert not caller.sees("loader")
    assert Caller(name="ada", scopes=(Scope.parse("admin:*"),)).own("orders.1") == "orders.1"


@pytest.mark.parametrize("name", ["local", "anonymous"])
def test_no_token_is_called_as_those_who_have_none(tokens: Tokens, name: str) -> None:
    with pytest.raises(NameInvalid):
        tokens.create(name)


@pytest.fixture
def log(log: Log) -> Log:
    for name in ("orders", "scratch"):
        log.create(name, "id int64", partitions=2)
    return log


@pytest.fixture
def team(client_of: Ask, tokens: Tokens) -> TestClient:
    return client_of(token=tokens.create("team", ["write:orders", "read:orders"]))


@pytest.fixture
def eve(client_of: Ask, tokens: Tokens) -> TestClient:
    return client_of(token=tokens.create("eve", ["write:scratch", "read:scratch"]))


def commit(client: TestClient, topic: str, **about: Any) -> bool:
    """Commit a transaction with one row; whether it was new."""
    begun = client.post("/api/v1/transactions", json=about).json()
    client.post(f"/api/v1/transactions/{begun['id']}/rows/{topic}", content=b'{"id": 1}', headers=LINES)
    assert client.post(f"/api/v1/transactions/{begun['id']}/commit").status_code == 200
    return not begun["committed"]


def test_a_transaction_is_lost_by_no_other_callers_sequence(team: TestClient, eve: TestClient, log: Log) -> None:
    assert commit(team, "orders", producer="loader", sequence=1)
    assert commit(eve, "scratch", producer="loader", sequence=99)
    assert commit(team, "orders", producer="loader", sequence=2)
    assert not commit(team, "orders", producer="loader", sequence=2)
    assert log.read("orders").count() == 2
    told = [client.get("/api/v1/producers/loader").json() for client in (team, eve)]
    assert told == [{"producer": "loader", "sequence": 2}, {"producer": "loader", "sequence": 99}]


def test_a_producer_is_fenced_by_no_other_caller(team: TestClient, eve: TestClient, log: Log) -> None:
    epoch = team.post("/api/v1/producers/loader/open").json()["epoch"]
    eve.post("/api/v1/producers/loader/open")
    log.open_producer("loader")  # nor by a program on this machine

    def send(sequence: int) -> Any:
        about = {"producer": "loader", "epoch": epoch, "sequence": sequence}
        answer = team.post("/api/v1/topics/orders/rows", content=b'{"id": 1}', headers=LINES, params=about)
        return answer.status_code, answer.json().get("duplicate")

    assert [send(0), send(0), send(1)] == [(200, False), (200, True), (200, False)]
    assert team.get("/api/v1/topics/orders/producers/loader").json()["sequence"] == 1
    team.post("/api/v1/producers/loader/open")
    assert send(2)[0] == 409


def test_a_promise_about_time_is_made_for_the_callers_own_producer(
    team: TestClient, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(type(log), "punctuate", lambda *_, producer, **__: made.append(producer))
    team.post("/api/v1/topics/orders/punctuate", json={"time_us": 1, "producer": "loader"})
    assert made == [Caller(name="team", scopes=()).own("loader")]


def test_a_member_loses_its_place_to_no_other_caller(team: TestClient, eve: TestClient) -> None:
    def join(client: TestClient, topic: str) -> Any:
        return client.post("/api/v1/groups/billing/members", json={"topics": [topic], "member": "worker-1"}).json()

    joined = join(team, "orders")
    assert joined["member"] == "worker-1"
    other = join(eve, "scratch")
    path = "/api/v1/groups/billing/members/worker-1"
    assert team.post(f"{path}/refresh", params={"key": joined["key"]}).json()["owned"] == {"orders": [0, 1]}
    assert eve.post(f"{path}/refresh", params={"key": other["key"]}).json()["owned"] == {"scratch": [0, 1]}
    # Another caller is refused even with the member's key.
    assert eve.delete(path, params={"key": joined["key"]}).status_code == 409
    # A second one of the same caller takes the place, as on this machine.
    again = join(team, "orders")
    assert team.post(f"{path}/beat", params={"key": joined["key"]}).status_code == 409
    committed = team.post(f"{path}/commit", params={"key": again["key"]}, json={"offsets": {"orders": {"0": 0}}})
    assert committed.status_code == 204


def test_a_name_that_is_shared_is_the_one_on_this_machine(client_of: Ask, tokens: Tokens, log: Log) -> None:
    sharing = client_of(token=tokens.create("sharing", ["write:orders", "name:loader"]))
    assert commit(sharing, "orders", producer="loader", sequence=4)
    assert log.committed_sequence("loader") == 4
