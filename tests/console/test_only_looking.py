"""A token that only reads: it shows what concerns its topics, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headwater
from headwater.alerts import Delivery, Rule, Watcher
from headwater.console.context import context
from headwater.log import Log
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.services.tokens import Tokens
from tests.console.simulation import SimulatedConsole, SimulatedPage, simulated


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SimulatedConsole, str]]:
    """A console, and a token that reads what begins with `orders`."""
    with headwater.open(tmp_path_factory.mktemp("looking") / "log") as log:
        assert isinstance(log, Log)
        for topic in ("orders", "salaries"):
            log.create(topic, "id int64, amount int64")
            log.append(topic, [{"id": number, "amount": 1} for number in range(20)])
            log.groups.seek(f"{topic}-readers", topic, "earliest")
            letter = DeadLetter(topic=topic, partition=0, offset=1, error="Bad", message="no", row='{"id": 1}', at_us=1)
            append_dead_letters(log, topic, [letter])
        token = Tokens(log.home).create("reader", ["read:orders*"])
        with simulated(log) as console:
            yield console, token


@pytest.fixture
def page(shop: tuple[SimulatedConsole, str]) -> SimulatedPage:
    return shop[0].visit(shop[1])


def test_only_what_it_may_read_is_listed(page: SimulatedPage) -> None:
    for path in ("/topics", "/groups", "/dead-letters", "/schemas"):
        page.open(path).sees("orders").sees_not("salaries")
    for path in ("/groups/salaries-readers", "/dead-letters/salaries.dlq", "/schemas/salaries", "/topics/salaries"):
        page.open(path)
        first, *others = page.text("page").splitlines()
        assert first == "ScopeMissing" or first.startswith("There is no")
        assert others[1:] in ([], ["Home", "Topics", "Queries"])  # and nothing else


def test_home_tells_of_its_topics_only(page: SimulatedPage) -> None:
    page.open("/").sees("1\n", within="Dead letters").sees("orders-readers", within="Worst lag").sees_not("salaries")


def test_it_may_try_but_not_change(page: SimulatedPage) -> None:
    page.open("/groups/orders-readers").press("Reset").write("Where to", "end")
    page.sees("Passes 20 rows over. Resetting it needs admin rights")
    assert not page.is_enabled("Reset group")
    page.open("/dead-letters/orders.dlq").press("Redrive").sees("1 would be redriven")
    assert not page.is_enabled("Redrive 1")
    page.open("/schemas/orders").write(
        "Columns, as `name type [not null]`, or JSON", "id int64, amount int64, note string"
    )
    page.sees("one needs admin rights on orders")
    assert not page.is_enabled("Register")


def test_a_statement_needs_the_right_to_read_what_it_reads(page: SimulatedPage) -> None:
    page.open("/sql").sees("orders.dlq").sees_not("salaries")
    page.write("Statement", "SELECT * FROM log.salaries").press("Run").sees("read:salaries")
    page.write("Statement", "SELECT count(*) AS n FROM log.orders").press("Run").sees("1 row ·").sees_first(
        "Answer", "20"
    )


def test_rules_of_alerts_are_shown_to_those_who_may_read_everything_without_what_is_secret(
    shop: tuple[SimulatedConsole, str],
) -> None:
    console, narrow = shop
    log = context().log
    hook = "https://example.org/hooks/s3cret"
    Watcher(log).put(Rule(name="slow", kind="lag", group="orders-readers", threshold=5, webhooks=(hook,)))
    Watcher(log, sender=_Sent()).test("slow")
    page = console.open("/alerts", Tokens(log.home).create("all", ["read:*"])).sees("slow", "https://example.org/…")
    assert not page.is_there("New rule")
    page.open("/alerts/slow").sees("5 rows", within="Fires at")
    for name in ("Edit", "Remove", "Pause", "Snooze", "Send a test"):
        assert not page.is_there(name)
    assert "s3cret" not in page.text()
    console.open("/alerts", narrow).sees("ScopeMissing")


class _Sent:
    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:  # noqa: ARG002
        return delivery.sent()
