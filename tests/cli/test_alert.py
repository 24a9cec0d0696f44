"""`headwater alert`, and a server process that is killed while something fires."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import headwater
from tests.cli.conftest import Cli
from tests.cli.test_serve import serving
from tests.conditions import until
from tests.servers import http_receiver

SLOW = ("alert", "set", "slow", "--kind", "lag", "--group", "billing", "--threshold", "2")


@pytest.fixture
def billing(orders: Path) -> Path:
    with headwater.open(orders) as log:
        log.commit_offsets("billing", "orders", {0: 0, 1: 0, 2: 0})
    return orders


@pytest.mark.usefixtures("billing")
def test_a_rule_is_set_listed_changed_and_removed(cli: Cli) -> None:
    assert cli(*SLOW, "--for", "5 min", "--note", "call Ada").code == 0
    listed = cli("alert", "list")
    assert [line.split()[:3] for line in listed.out.splitlines()] == [["RULE", "STATE", "KIND"], ["slow", "ok", "lag"]]
    assert "no process evaluates these rules now" in listed.err
    changed = cli("alert", "set", "slow", "--threshold", "7", "--severity", "critical", "--json").json
    assert (changed["threshold"], changed["for_seconds"], changed["note"]) == (7.0, 300.0, "call Ada")
    assert cli("alert", "pause", "slow").code == 0
    assert cli("alert", "list", "--json").json[0]["state"] == "paused"
    assert cli("alert", "resume", "slow").code == 0
    assert cli("alert", "snooze", "slow", "2 hours").code == 0
    assert cli("alert", "list", "--json").json[0]["is_snoozed"]
    assert cli("alert", "snooze", "slow", "0").code == 0
    assert cli("alert", "remove", "slow").code == 2
    assert cli("alert", "remove", "slow", "--yes").code == 0
    assert cli("alert", "remove", "slow", "--yes").code == 3
    assert cli("alert", "list").err == "There are no rules; `headwater alert set` adds one.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--group", "billing"), 2, "`kind` is ''"),
        (("--kind", "lag", "--group", "biling"), 3, "Did you mean 'billing'?"),
        (("--kind", "view", "--sql", "SELECT * FROM nothing"), 2, "there is no topic or view 'nothing'"),
        (("--kind", "dead_letters", "--topic", "orders", "--for", "soon"), 2, "--for"),
    ],
)
@pytest.mark.usefixtures("billing")
def test_a_bad_rule_is_refused_in_one_line(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = cli("alert", "set", "wrong", *arguments)
    assert (done.code, said in done.err, done.err.count("\n")) == (code, True, 1), done.err


@pytest.mark.usefixtures("billing")
def test_a_test_says_who_would_hear_of_it(cli: Cli) -> None:
    with http_receiver() as receiver:
        assert cli(*SLOW, "--webhook", receiver.url).code == 0
        done = cli("alert", "test", "slow", "--json")
        assert (done.code, [one["state"] for one in done.json], len(receiver.requests)) == (0, ["sent"], 1)
        cli("alert", "set", "slow", "--email", "ada@example.org")
        failed = cli("alert", "test", "slow")
        assert (failed.code, "alert_mail_server" in failed.out) == (1, True)
    assert [one["state"] for one in cli("alert", "history", "--json").json] == ["test", "test"]


@pytest.mark.process
def test_a_server_that_is_killed_while_something_fires_goes_on_where_it_was(cli: Cli, billing: Path) -> None:
    with http_receiver() as receiver:
        assert cli(*SLOW, "--webhook", receiver.url).code == 0
        with serving() as (address, process):
            until(lambda: len(receiver.requests) == 1)
            until(lambda: [one["state"] for one in _deliveries(address)] == ["sent"])
            process.kill()
            process.wait()
        with serving() as (address, _):
            until(lambda: httpx.get(f"{address}/api/v1/alerts").json()["looked_at_us"] is not None)
            assert [rule["state"] for rule in httpx.get(f"{address}/api/v1/alerts").json()["rules"]] == ["firing"]
            with headwater.open(billing) as log:
                log.commit_offsets("billing", "orders", log.end_offsets("orders"))
            until(lambda: len(receiver.requests) == 2)
    assert [one["state"] for one in cli("alert", "history", "--json").json] == ["resolved", "firing"]


def _deliveries(address: str) -> list[dict[str, str]]:
    changes = httpx.get(f"{address}/api/v1/alerts/history").json()
    return [one for change in changes for one in change["deliveries"]]
