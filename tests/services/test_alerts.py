"""Alerts as a service: rules, states, history, notifications, scopes and audit, on this machine and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.alerts import Rule, Watcher
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.services import Services
from headwater.services.callers import ScopeMissing
from tests.servers import Receiver, http_receiver
from tests.services.conftest import Audited, ServicesOf

SLOW = Rule(name="slow", kind="lag", group="billing", threshold=2, for_seconds=0, note="call Ada")
HOOK = "https://hooks.example.org/s3cret"


@pytest.fixture(autouse=True)
def orders(log: Log) -> Log:
    log.create("orders", "id int64, user string")
    log.append("orders", [{"id": number, "user": "ada"} for number in range(5)])
    log.commit_offsets("billing", "orders", {0: 0})
    return log


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_receiver() as started:
        yield started


def test_a_rule_is_set_read_paused_snoozed_and_removed(log: Log, services: Services, audited: Audited) -> None:
    alerts = services.alerts
    made = alerts.set(SLOW)
    assert (made.rule, made.state, made.subjects) == (SLOW, "ok", ())
    Watcher(log).look()
    [listed] = alerts.rules().rules
    assert listed == alerts.rule("slow")
    assert (listed.state, listed.subjects[0].value) == ("firing", 5.0)
    assert alerts.snooze("slow", 2**60).is_snoozed
    assert not alerts.snooze("slow").is_snoozed
    assert alerts.pause("slow").state == "paused"
    assert alerts.resume("slow").state == "firing"
    assert alerts.remove("slow") is None
    assert alerts.rules().rules == []
    with pytest.raises(NotFound):
        alerts.rule("slow")
    assert [(row["action"], row["target"]) for row in audited()] == [
        ("alerts.set", "slow"),
        ("alerts.snooze", f"slow until_us={2**60}"),
        ("alerts.snooze", "slow"),
        ("alerts.pause", "slow"),
        ("alerts.resume", "slow"),
        ("alerts.remove", "slow"),
    ]


def test_a_rule_that_cannot_be_evaluated_is_not_set(log: Log, services: Services) -> None:
    with pytest.raises(NotFound):
        services.alerts.set(Rule(name="wrong", kind="lag", group="biling"))
    with pytest.raises(ArgumentInvalid):
        services.alerts.snooze("slow", -1)
    assert services.alerts.rules().rules == []
    assert not log.topics("__alerts", internal=True)


def test_a_preview_measures_and_keeps_nothing(log: Log, services: Services) -> None:
    [found] = services.alerts.preview(SLOW, form="1")
    assert (found.subject, found.value, found.is_over) == ("billing/orders", 5.0, True)
    assert services.alerts.rules().rules == []
    assert not log.topics("__audit", internal=True)


def test_what_fired_is_in_the_history_and_followed_from_a_place(log: Log, services: Services) -> None:
    alerts = services.alerts
    alerts.set(SLOW)
    place = alerts.changes().next
    assert alerts.changes(place).changes == []
    Watcher(log).look()
    [entry] = alerts.history()
    assert (entry.rule, entry.state, entry.value, entry.deliveries) == ("slow", "firing", 5.0, [])
    assert alerts.history("slow", state=["firing"], since_us=entry.at_us) == [entry]
    assert alerts.history("other") == alerts.history(state=["resolved"]) == []
    new = alerts.changes(place, wait_seconds=5.0)
    assert [one.id for one in new.changes] == [entry.id]
    assert alerts.changes(new.next).changes == []
    with pytest.raises(ArgumentInvalid):
        alerts.history(limit=0)


def test_a_test_notifies_all_receivers_at_once(services: Services, receiver: Receiver) -> None:
    services.alerts.set(Rule(name="slow", kind="lag", group="billing", webhooks=(receiver.url,)))
    [delivery] = services.alerts.test("slow")
    assert (delivery.target, delivery.state, delivery.attempts) == (receiver.url, "sent", 1)
    assert len(receiver.requests) == 1
    [entry] = services.alerts.history()
    assert (entry.state, [one.id for one in entry.deliveries]) == ("test", [delivery.id])
    assert services.alerts.rules().deliveries_waiting == 0


def test_only_admins_change_rules_and_see_the_addresses_of_webhooks(
    log: Log, services_of: ServicesOf, audited: Audited
) -> None:
    admin, reader, other = (
        services_of("admin:*").alerts,
        services_of("read:*").alerts,
        services_of("read:orders").alerts,
    )
    rule = Rule(name="slow", kind="lag", group="billing", webhooks=(HOOK,))
    admin.set(rule)
    Watcher(log).look()
    for service, address in ((admin, HOOK), (reader, "https://hooks.example.org/…")):
        assert service.rule("slow").rule.webhooks == (address,)  # type: ignore[union-attr]
        assert service.rules().rules[0].rule.webhooks == (address,)  # type: ignore[union-attr]
        assert service.history()[0].deliveries[0].target == address
    for call in (other.rules, other.history, other.changes, lambda: other.rule("slow")):
        with pytest.raises(ScopeMissing):
            call()
    for act in (reader.set, reader.preview):
        with pytest.raises(ScopeMissing):
            act(rule)
    for change in (reader.remove, reader.pause, reader.resume, reader.snooze, reader.test):
        with pytest.raises(ScopeMissing):
            change("slow")
    refused = [row["action"] for row in audited() if row["status"] == 403]
    assert refused == [f"alerts.{name}" for name in ("set", "remove", "pause", "resume", "snooze", "test")]


def test_a_rule_that_cannot_be_read_is_shown_and_can_be_removed(log: Log, services: Services) -> None:
    services.alerts.set(SLOW)
    log.append("__alerts", [{"name": "new", "rule": '{"kind": "later"}', "at": 0}])
    assert [one.name for one in services.alerts.rules().rules] == ["slow", "new"]
    broken = services.alerts.rule("new")
    assert (broken.rule, broken.state) == (None, "unknown")
    services.alerts.remove("new")
    assert [one.name for one in services.alerts.rules().rules] == ["slow"]
