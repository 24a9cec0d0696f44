"""Alerts in the page: rules made, tried, fired, tested, snoozed and removed; and told of in every open page."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import headwater
from headwater.alerts import Delivery, LogMeasures, Rule, Watcher
from headwater.log import EmbeddedLog, Lag
from headwater.runtime.client import Client
from headwater.server.tokens import Tokens
from tests.console import company
from tests.console.conftest import Running, Visit, serving

#: Keeps what would be shown, and how often the page has asked for leave.
RECORDER = """
window.shown = []; window.asked = 0;
window.Notification = class {
  static permission = "PERMISSION";
  static async requestPermission() { window.asked += 1; this.permission = "granted"; return "granted"; }
  constructor(title, options) { window.shown.push([title, options.body, options.tag]); }
  close() {}
};
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path_factory.mktemp("alerts") / "log") as opened:
        assert isinstance(opened, EmbeddedLog)
        opened.create("orders", "customer string, amount long")
        opened.append("orders", [{"customer": "ada", "amount": number} for number in range(12_500)])
        opened.groups.seek("billing", "orders", {0: 0})
        yield opened


@pytest.fixture(scope="module")
def address(log: EmbeddedLog) -> Iterator[str]:
    with serving(log.path) as found:
        yield found


@pytest.fixture
def watcher(log: EmbeddedLog) -> Watcher:
    """Rules written by another process than the one that is looked at."""
    return Watcher(log)


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A real webhook receiver; gives its address and what it was told."""
    bodies: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hooks/s3cret", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def fill(page: Page, **values: str) -> None:
    names = {
        "name": "Name",
        "group": "Group, or a pattern",
        "limit": "More than",
        "sql": "SQL over views and topics",
    }
    for name, value in values.items():
        page.get_by_role("dialog").get_by_label(names.get(name, name)).fill(value)


def row(page: Page, name: str) -> Locator:
    return page.get_by_label("Alert rules").get_by_role("row", name=re.compile(name))


# -- making rules -----------------------------------------------------------------------------------------------------


def test_a_rule_is_tried_while_it_is_written_and_fires_when_it_is_saved(address: str, visit: Visit) -> None:
    visitor = visit(address)
    page = visitor.open("/alerts")
    page.get_by_role("button", name="New rule").click()
    preview = page.get_by_label("What it would say now")
    expect(preview).to_contain_text("not complete")
    expect(page.get_by_role("button", name="Save rule")).to_be_disabled()
    fill(page, name="billing-is-slow", group="billing", limit="20,000")
    expect(preview).to_contain_text("Now it would be: ok")
    fill(page, limit="5000")
    expect(preview).to_contain_text("Now it would be: firing")
    expect(preview).to_contain_text("Group 'billing' is 12,500 rows behind in topic 'orders', more than 5,000 rows")
    expect(preview).to_contain_text("it would have fired once", timeout=30_000)
    visitor.picture("alert-form-light")
    page.get_by_role("button", name="Save rule").click()
    expect(row(page, "billing-is-slow")).to_contain_text("firing")
    expect(row(page, "billing-is-slow")).to_contain_text("more than 5,000 rows")
    expect(page.get_by_label("Screens").get_by_label("firing")).to_have_text("1")
    home = visit(address).open("/")
    expect(home.get_by_label("Alerts that fire")).to_contain_text("billing-is-slow")


def test_what_could_never_be_looked_at_is_not_saved_and_says_why(address: str, visit: Visit) -> None:
    page = visit(address).open("/alerts")
    page.get_by_role("button", name="New rule").click()
    preview, save = page.get_by_label("What it would say now"), page.get_by_role("button", name="Save rule")
    fill(page, name="wrong", group="biling", limit="1")
    expect(preview).to_contain_text("Did you mean 'billing'?")
    expect(save).to_be_disabled()
    fill(page, name="not a name", group="billing")
    expect(preview).to_contain_text("letters")
    fill(page, name="wrong", limit="many")
    expect(preview).to_contain_text("a number, 0 or more")
    page.get_by_role("combobox", name="Watch").click()
    page.get_by_role("option", name="A SQL condition").click()
    fill(page, sql="SELEC 1")
    expect(preview).not_to_contain_text("Now it would be")
    expect(save).to_be_disabled()


def test_a_statement_watches_each_of_its_rows(address: str, visit: Visit) -> None:
    page = visit(address).open("/alerts")
    page.get_by_role("button", name="New rule").click()
    page.get_by_role("combobox", name="Watch").click()
    page.get_by_role("option", name="A SQL condition").click()
    fill(page, name="large", sql="SELECT amount, amount AS value FROM orders WHERE amount >= 12498")
    page.get_by_label("Columns that tell rows apart").fill("amount")
    expect(page.get_by_label("What it would say now")).to_contain_text("amount 12499, value 12499")
    page.get_by_role("button", name="Save rule").click()
    expect(row(page, "large")).to_contain_text("firing")
    page.get_by_role("link", name="large").first.click()
    subjects = page.get_by_label("What the rule watches")
    expect(subjects.get_by_role("row", name=re.compile("amount=12498"))).to_contain_text("firing")
    expect(subjects.get_by_role("row", name=re.compile("amount=12499"))).to_contain_text("firing")


def test_a_rule_that_cannot_be_looked_at_shows_its_error_and_the_others_go_on(
    address: str, watcher: Watcher, visit: Visit
) -> None:
    watcher.book.put(Rule(name="gone", kind="lag", group="no-such-group", threshold=1))
    watcher.put(Rule(name="beside-it", kind="lag", group="bill*", threshold=1))
    page = visit(address).open("/alerts")
    expect(row(page, "gone")).to_contain_text("unknown")
    expect(row(page, "gone")).to_contain_text("no-such-group")
    expect(row(page, "beside-it")).to_contain_text("firing")


# -- what may be done to one ------------------------------------------------------------------------------------------


def test_a_test_is_sent_to_a_real_receiver_and_is_in_the_history(
    address: str, watcher: Watcher, receiver: tuple[str, list[dict[str, object]]], visit: Visit
) -> None:
    hook, bodies = receiver
    watcher.put(Rule(name="tested", kind="lag", group="billing", threshold=1e9, webhooks=(hook,)))
    page = visit(address).open("/alerts/tested")
    page.get_by_role("button", name="Send a test").click()
    expect(page.get_by_role("dialog")).to_contain_text(hook)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("The test is sent to 1 receivers.")).to_be_visible()
    assert [body["text"] for body in bodies] == ["[TEST] tested (warning): This is a test: nothing is wrong."]
    changes = page.get_by_label("History of the rule")
    expect(changes.get_by_role("row", name=re.compile("test"))).to_contain_text(hook)


def test_a_receiver_that_is_away_is_named(address: str, watcher: Watcher, visit: Visit) -> None:
    watcher.put(
        Rule(name="nobody-there", kind="lag", group="billing", threshold=1e9, webhooks=("http://127.0.0.1:9/",))
    )
    page = visit(address).open("/alerts/nobody-there")
    page.get_by_role("button", name="Send a test").click()
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text(re.compile("http://127.0.0.1:9/ was not told"))).to_be_visible()
    expect(page.get_by_label("History of the rule")).to_contain_text("failed")


def test_snooze_wake_pause_resume_and_remove(address: str, watcher: Watcher, visit: Visit) -> None:
    watcher.put(Rule(name="handled", kind="lag", group="billing", threshold=1))
    page = visit(address).open("/alerts/handled")
    state = page.get_by_role("group", name="State")
    expect(state).to_contain_text("firing")
    page.get_by_role("button", name="Snooze").click()
    page.get_by_text("for 1 hour").click()
    expect(page.get_by_role("group", name="Tells")).to_contain_text("snoozed until")
    page.get_by_role("button", name="Wake up").click()
    expect(page.get_by_role("group", name="Tells")).to_contain_text("browsers")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(state).to_contain_text("firing")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(state).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(state).to_contain_text("firing")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page).to_have_url(f"{address}/console/alerts")
    expect(row(page, "handled")).to_have_count(0)
    audit = [one["action"] for one in watcher.book.log.read("__audit").rows() if one["target"] == "handled"]
    assert audit == [f"{word} alert rule" for word in ("snooze", "wake", "pause", "resume", "remove")]


def test_a_rule_is_changed_in_the_same_form(address: str, watcher: Watcher, visit: Visit) -> None:
    watcher.put(Rule(name="changed", kind="lag", group="billing", threshold=1, for_seconds=90, note="<b>call</b> ada"))
    page = visit(address).open("/alerts/changed")
    expect(page.get_by_text("<b>call</b> ada", exact=True)).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("For at least")).to_have_value("1.5 min")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_disabled()
    fill(page, limit="50000")
    page.get_by_role("button", name="Save rule").click()
    expect(page.get_by_role("group", name="Fires at")).to_contain_text("> 50,000 rows")
    expect(page.get_by_role("group", name="State")).to_contain_text("ok")


def test_one_that_is_gone_is_said_in_one_sentence(address: str, watcher: Watcher, visit: Visit) -> None:
    watcher.put(Rule(name="removed", kind="lag", group="billing", threshold=1e9))
    page = visit(address).open("/alerts/removed")
    expect(page.get_by_role("heading", name="removed")).to_be_visible()
    watcher.remove("removed")
    expect(page.get_by_text(re.compile("There is no .*'removed'")).first).to_be_visible()
    again = visit(address).open("/alerts/removed")
    expect(again.get_by_role("alert")).to_contain_text("removed")


# -- being told -------------------------------------------------------------------------------------------------------


def test_a_page_that_is_open_notifies_once_of_what_fires_and_of_its_end(
    address: str, watcher: Watcher, log: EmbeddedLog, visit: Visit
) -> None:
    log.create("parcels", "id long")
    log.append("parcels", [{"id": 1}])
    log.groups.seek("couriers", "parcels", {0: 1})
    visitor = visit(address)
    visitor.page.add_init_script(RECORDER.replace("PERMISSION", "granted"))
    page = visitor.open("/topics")
    expect(page.get_by_role("row", name=re.compile("parcels"))).to_be_visible()
    page.wait_for_function("performance.now() > 2500")  # it has looked once, so that what comes is new
    watcher.put(Rule(name="couriers-wait", kind="lag", group="couriers", threshold=0))
    log.append("parcels", [{"id": 2}])
    page.wait_for_function("shown.some(([title]) => title === 'Firing: couriers-wait')", timeout=30_000)
    log.groups.seek("couriers", "parcels", {0: 2})
    page.wait_for_function("shown.some(([title]) => title === 'Resolved: couriers-wait')", timeout=30_000)
    told = [one for one in page.evaluate("shown") if one[0].endswith("couriers-wait")]
    assert [one[0] for one in told] == ["Firing: couriers-wait", "Resolved: couriers-wait"]
    assert told[0][1] == "Group 'couriers' is 1 row behind in topic 'parcels'"
    assert len({one[2] for one in told}) == 2  # tags of their own, so that the second does not hide behind the first


def test_the_browser_is_asked_only_by_a_button(address: str, visit: Visit) -> None:
    visitor = visit(address)
    visitor.page.add_init_script(RECORDER.replace("PERMISSION", "default"))
    page = visitor.open("/alerts")
    expect(page.get_by_role("button", name="New rule")).to_be_visible()
    assert page.evaluate("asked") == 0
    page.get_by_role("button", name="Notify me in this browser").click()
    expect(page.get_by_text("This browser is notified")).to_be_visible()
    assert page.evaluate("asked") == 1


def test_a_real_query_that_is_stopped_fires_and_is_over_when_it_runs_again(running: Running, visit: Visit) -> None:
    page = visit(running.address).open("/alerts")
    page.get_by_role("button", name="New rule").click()
    page.get_by_role("combobox", name="Watch").click()
    page.get_by_role("option", name="A query is down").click()
    fill(page, name="archive-is-down")
    page.get_by_role("dialog").get_by_label("Query, or a pattern").fill("archive")
    expect(page.get_by_label("What it would say now")).to_contain_text("Now it would be: ok")
    page.get_by_role("button", name="Save rule").click()
    expect(row(page, "archive-is-down")).to_contain_text("ok")
    client = Client(company.NAME, running.home)
    try:
        client.post("/queries/archive/stop")
        expect(row(page, "archive-is-down")).to_contain_text("firing", timeout=30_000)
    finally:
        client.post("/queries/archive/restart")
    expect(row(page, "archive-is-down")).to_contain_text("resolved", timeout=60_000)


# -- who may ----------------------------------------------------------------------------------------------------------


def test_a_token_to_read_sees_the_rules_and_can_change_nothing(tmp_path: Path, visit: Visit) -> None:
    with headwater.open(tmp_path / "log") as log:
        log.create("orders", "amount long")
        log.groups.seek("billing", "orders", {0: 0})
        hook = "https://example.org/hooks/s3cret"
        Watcher(log).put(Rule(name="slow", kind="lag", group="billing", threshold=5, webhooks=(hook,)))
        Watcher(log, sender=_Sent()).test("slow")
    tokens = Tokens(tmp_path / "log")
    read, narrow = tokens.create("reader", ["read:*"]), tokens.create("narrow", ["read:orders"])
    with serving(tmp_path / "log") as address:
        page = visit(address).page
        _log_in(page, address, read)
        expect(page.get_by_role("link", name="slow").first).to_be_visible()
        expect(page.get_by_text("https://example.org/…")).to_be_visible()
        expect(page.get_by_role("button", name="New rule")).to_have_count(0)
        page.get_by_role("link", name="slow").first.click()
        expect(page.get_by_role("group", name="Fires at")).to_contain_text("5 rows")
        for name in ("Edit", "Remove", "Pause", "Snooze", "Send a test"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        assert "s3cret" not in page.content()
        other = visit(address).page
        _log_in(other, address, narrow)
        expect(other.get_by_role("alert")).to_contain_text("ScopeMissing")


class _Sent:
    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:  # noqa: ARG002
        return delivery.sent()


def _log_in(page: Page, address: str, token: str) -> None:
    page.goto(f"{address}/console/alerts")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


# -- a day of alerts, for the pictures --------------------------------------------------------------------------------


class _Day(LogMeasures):
    """Lags as they might have been over a day; the clock is the test's."""

    at_seconds = 0.0
    left_seconds = 0.0

    def now_us(self) -> int:
        return round(self.at_seconds * 1e6)

    def group_lags(self) -> list[Lag]:
        quarter = int(self.left_seconds / 900)
        slow = {"billing": self.left_seconds < 2_400 or quarter % 17 in (3, 4), "shipping": quarter % 31 == 5}
        return [
            replace(lag, committed=lag.offset_next - int(lag.rows * (1.0 if slow.get(lag.group) else 0.02)))
            for lag in super().group_lags()
        ]


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("company") / "log"
    with headwater.open(path) as log:
        assert isinstance(log, EmbeddedLog)
        for topic in ("orders", "payments"):
            log.create(topic, "customer string, amount long")
        log.append("orders", [{"customer": "ada", "amount": number} for number in range(12_500)])
        log.groups.seek("billing", "orders", {0: 0})
        log.groups.seek("shipping", "orders", {0: 12_100})
        _live_a_day(log)
    with serving(path) as address:
        yield address


def _live_a_day(log: EmbeddedLog) -> None:
    day = _Day(log)
    end = time.time()
    day.at_seconds = end - 90_000
    watcher = Watcher(log, day, sender=_Sent())
    note = "Billing reads orders for the invoices. Call the team that owns it."
    told = {"emails": ("ada@example.org",), "webhooks": ("https://hooks.example.org/billing",)}
    watcher.put(
        Rule(
            name="billing-is-slow",
            kind="lag",
            group="billing",
            threshold=5_000,
            for_seconds=300,
            severity="critical",
            note=note,
            emails=told["emails"],
            webhooks=told["webhooks"],
        )
    )
    watcher.put(Rule(name="shipping-is-slow", kind="lag", group="shipping", threshold=450, for_seconds=60))
    watcher.put(Rule(name="dead-letters", kind="dead_letters", topic="*", threshold=10, emails=("ops@example.org",)))
    large = "SELECT customer, max(amount) AS value FROM payments WHERE amount > 10000 GROUP BY customer"
    watcher.put(Rule(name="large-payments", kind="view", sql=large, key=("customer",), severity="critical"))
    watcher.book.put(Rule(name="fraud-is-down", kind="query_down", query="fraud"))
    watcher.put(Rule(name="orders-stand-still", kind="lag", group="*", threshold=1, enabled=False))
    for step in range(300):
        day.left_seconds = 90_000 - step * 300
        day.at_seconds = end - day.left_seconds
        watcher.look()
        watcher.deliver()


@pytest.mark.parametrize("dark", [False, True])
def test_a_day_of_alerts_is_seen_at_a_glance(eventful: str, visit: Visit, dark: bool) -> None:
    visitor = visit(eventful, dark=dark)
    page = visitor.open("/alerts")
    expect(row(page, "billing-is-slow")).to_contain_text("firing")
    line = row(page, "billing-is-slow").get_by_role("img")
    expect(line).to_have_attribute("aria-label", re.compile("Last 24 hours: fired for"))
    visitor.picture("alerts-dark" if dark else "alerts-light")
    page.get_by_role("link", name="billing-is-slow").first.click()
    expect(page.get_by_role("group", name="Fired in 24 hours")).to_contain_text(re.compile("[2-9]"))
    page.get_by_role("button", name="7 days").click()
    expect(page.get_by_role("img", name=re.compile("Last 7 days"))).to_be_visible()
    page.get_by_role("button", name="24 hours").click()
    expect(page.get_by_role("img", name=re.compile("Last 24 hours"))).to_be_visible()
    visitor.picture("alert-dark" if dark else "alert-light")


def test_on_a_phone_the_page_does_not_scroll_sideways(eventful: str, visit: Visit) -> None:
    visitor = visit(eventful, phone=True)
    page = visitor.open("/alerts")
    expect(page.get_by_text("billing-is-slow").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="New rule").click()
    expect(page.get_by_role("button", name="Save rule")).to_be_in_viewport()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    visitor.picture("alerts-phone")
