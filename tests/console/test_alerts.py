"""Alerts in the page: rules are created, tried, fired, tested, snoozed and removed; and every open page notifies."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from playwright.sync_api import Locator, Page, expect

import headwater
from headwater.alerts import Delivery, LogMeasures, Rule, Watcher
from headwater.apps.home import Home
from headwater.console.context import context
from headwater.log import Lag, Log
from headwater.services import app_services
from tests.conditions import until
from tests.console.conftest import PHONE, WANTS_PICTURES, Running, Served, Visit, Visitor, serving
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, SimulatedPage, simulated

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
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("alerts") / "log") as opened:
        assert isinstance(opened, Log)
        make_billing(opened)
        yield opened


def make_billing(log: Log, *, topic: str = "orders", group: str = "billing") -> None:
    """A group that is 12,500 rows behind."""
    log.create(topic, "customer string, amount long")
    log.append(topic, [{"customer": "ada", "amount": number} for number in range(12_500)])
    log.groups.seek(group, topic, {0: 0})


@pytest.fixture(scope="module")
def console(log: Log) -> Iterator[SimulatedConsole]:
    with simulated(log) as made:
        yield made


@pytest.fixture
def watcher(log: Log) -> Watcher:
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


# -- making rules -----------------------------------------------------------------------------------------------------

RULES = "Alert rules"
PREVIEW = "What it would say now"


def looked(page: SimulatedPage) -> SimulatedPage:
    """The page after the rules were looked at once."""
    context().host.watcher.look()
    return page.later()


def test_a_rule_is_tried_while_it_is_written_and_fires_when_it_is_saved(console: SimulatedConsole) -> None:
    page = looked(console.open("/alerts")).press("New rule").sees("not complete", within=PREVIEW)
    assert not page.is_enabled("Save rule")
    page.write("Name", "billing-is-slow").write("Group, or a pattern", "billing").write("More than", "20,000")
    page.sees("Now it would be: ok", within=PREVIEW)
    page.write("More than", "5000").sees("Now it would be: firing", within=PREVIEW)
    page.sees("Group 'billing' is 12,500 rows behind in topic 'orders', more than 5,000 rows", within=PREVIEW)
    page.sees("it would have fired once", within=PREVIEW)
    page.press("Save rule").hears("Rule billing-is-slow is saved.")
    assert "more than 5,000 rows" in looked(page).sees_row(RULES, "firing billing-is-slow")
    page.sees("1", within="1 firing")
    console.open("/").sees("billing-is-slow", within="Alerts that fire")


def test_what_could_never_be_looked_at_is_not_saved_and_says_why(console: SimulatedConsole) -> None:
    page = console.open("/alerts").press("New rule").write("Name", "wrong").write("More than", "1")
    page.write("Group, or a pattern", "biling").sees("Did you mean 'billing'?", within=PREVIEW)
    assert not page.is_enabled("Save rule")
    page.write("Name", "not a name").write("Group, or a pattern", "billing").sees("characters of A-Z", within=PREVIEW)
    page.write("Name", "wrong").write("More than", "many").sees("a number, 0 or more", within=PREVIEW)
    page.write("Watch", "view").write("SQL over views and topics", "SELEC 1").sees("not complete", within=PREVIEW)
    assert not page.is_enabled("Save rule")


def test_a_statement_watches_each_of_its_rows(console: SimulatedConsole) -> None:
    page = console.open("/alerts").press("New rule").write("Watch", "view").write("Name", "large")
    page.write("SQL over views and topics", "SELECT amount, amount AS value FROM orders WHERE amount >= 12498")
    page.write("Columns that tell rows apart", "amount").sees("amount 12499, value 12499", within=PREVIEW)
    page.press("Save rule").hears("Rule large is saved.")
    looked(page).sees_row(RULES, "firing large")
    page.open("/alerts/large")
    for amount in (12498, 12499):
        page.sees_row("What the rule watches", f"firing amount={amount}")


def test_a_rule_that_cannot_be_looked_at_shows_its_error_and_the_others_go_on(
    console: SimulatedConsole, watcher: Watcher
) -> None:
    watcher.store.put(Rule(name="gone", kind="lag", group="no-such-group", threshold=1))
    watcher.put(Rule(name="beside-it", kind="lag", group="bill*", threshold=1))
    page = looked(console.open("/alerts"))
    assert "no-such-group" in page.sees_row(RULES, "unknown gone")
    page.sees_row(RULES, "firing beside-it")


# -- what may be done to one ------------------------------------------------------------------------------------------


def test_a_test_is_sent_to_a_real_receiver_and_is_in_the_history(
    console: SimulatedConsole, watcher: Watcher, receiver: tuple[str, list[dict[str, object]]]
) -> None:
    hook, bodies = receiver
    watcher.put(Rule(name="tested", kind="lag", group="billing", threshold=1e9, webhooks=(hook,)))
    page = console.open("/alerts/tested").press("Send a test").sees(hook).press("Send")
    page.hears("The test is sent to 1 receivers.")
    assert [body["text"] for body in bodies] == ["[TEST] tested (warning): This is a test: nothing is wrong."]
    assert hook in page.sees_row("History of the rule", ".* test ")


def test_a_receiver_that_is_away_is_named(console: SimulatedConsole, watcher: Watcher) -> None:
    away = "http://127.0.0.1:9/"
    watcher.put(Rule(name="nobody-there", kind="lag", group="billing", threshold=1e9, webhooks=(away,)))
    page = console.open("/alerts/nobody-there").press("Send a test").sees(away).press("Send")
    page.hears("http://127.0.0.1:9/ was not notified")
    assert "failed" in page.sees_row("History of the rule", ".* test ")


def test_snooze_wake_pause_resume_and_remove(console: SimulatedConsole, watcher: Watcher) -> None:
    watcher.put(Rule(name="handled", kind="lag", group="billing", threshold=1))
    page = looked(console.open("/alerts/handled")).sees("firing", within="State")
    page.press("Snooze").press("for 1 hour").sees("snoozed until", within="Notifies")
    page.press("Wake up").sees("browsers", within="Notifies")
    page.press("Pause").sees("Pause handled?").press("Cancel").sees_not("Pause handled?").sees("firing", within="State")
    page.press("Pause").sees("Pause handled?").press("Pause").sees("paused", within="State")
    page.press("Resume").hears("The rule is watched again.")
    looked(page).sees("firing", within="State")
    page.press("Remove").sees("Remove handled?").press("Remove")
    until(lambda: page.address == "/alerts" and "Rules" in page.text(), "the list is opened")
    assert not any("handled" in row for row in page.rows(RULES))
    rows = watcher.store.log.read("__audit").rows()
    audit = [row["action"] for row in rows if row["target"].split()[0] == "handled"]
    assert audit == [f"alerts.{word}" for word in ("snooze", "snooze", "pause", "resume", "remove")]


def test_a_rule_is_changed_in_the_same_form(console: SimulatedConsole, watcher: Watcher) -> None:
    watcher.put(Rule(name="changed", kind="lag", group="billing", threshold=1, for_seconds=90, note="<b>call</b> ada"))
    page = looked(console.open("/alerts/changed")).sees("<b>call</b> ada").press("Edit").sees("Rule changed")
    assert page.value("For at least") == "1.5 min"
    page.write("More than", "50000").sees("Now it would be: ok").press("Save rule").hears("Rule changed is saved.")
    looked(page).sees("> 50,000 rows", within="Fires at").sees("ok", within="State")


def test_one_that_is_gone_is_said_in_one_sentence(console: SimulatedConsole, watcher: Watcher) -> None:
    watcher.put(Rule(name="removed", kind="lag", group="billing", threshold=1e9))
    page = console.open("/alerts/removed").sees("removed\n")
    watcher.remove("removed")
    page.later().hears("There is no ")
    assert "'removed'" in page.notices[-1]
    console.open("/alerts/removed").sees("There is no", "'removed'")


def test_what_fires_while_a_page_is_open_is_told_once_and_its_end_is_not(
    console: SimulatedConsole, watcher: Watcher, log: Log
) -> None:
    log.create("parcels", "id long")
    log.append("parcels", [{"id": 1}])
    log.groups.seek("couriers", "parcels", {0: 1})
    page = looked(console.open("/topics"))
    watcher.put(Rule(name="couriers-wait", kind="lag", group="couriers", threshold=0))
    log.append("parcels", [{"id": 2}])
    looked(looked(page))
    log.groups.seek("couriers", "parcels", {0: 2})
    looked(looked(page))
    assert [notice for notice in page.notices if "couriers-wait" in notice] == [
        "Firing: couriers-wait. Group 'couriers' is 1 row behind in topic 'parcels'",
    ]  # and nothing when it is over


# -- in a browser -----------------------------------------------------------------------------------------------------


def fill(page: Page, **values: str) -> None:
    names = {"name": "Name", "group": "Group, or a pattern", "limit": "More than"}
    for name, value in values.items():
        page.get_by_role("dialog").get_by_label(names[name]).fill(value)


def row(page: Page, name: str) -> Locator:
    return page.get_by_label("Alert rules").get_by_role("row", name=re.compile(name))


def test_a_rule_is_written_in_its_form(shared: Served, prefix: str, visit: Visit) -> None:
    make_billing(shared.log, topic=f"{prefix}orders", group=f"{prefix}billing")
    visitor = visit(shared.address)
    visitor.page.add_init_script(RECORDER.replace("PERMISSION", "default"))
    page = visitor.open("/alerts")
    page.get_by_role("button", name="New rule").click()
    assert page.evaluate("asked") == 0  # only a button asks the browser for leave
    fill(page, name=f"{prefix}slow", group=f"{prefix}billing", limit="5000")
    preview = page.get_by_label("What it would say now")
    expect(preview).to_contain_text("Now it would be: firing")
    while WANTS_PICTURES and "it would have fired once" not in preview.inner_text():  # it was not measured yet
        fill(page, limit=f"{5_000 + random.randrange(9)}")
    visitor.picture("alert-form-light")
    page.get_by_role("button", name="Save rule").click()
    expect(row(page, f"{prefix}slow")).to_contain_text("firing")
    page.get_by_role("button", name="Notify me in this browser").click()
    expect(page.get_by_text("This browser is notified")).to_be_visible()
    assert page.evaluate("asked") == 1
    Watcher(shared.log).remove(f"{prefix}slow")


def test_a_page_that_is_open_notifies_once_of_what_fires_and_of_its_end(
    shared: Served, prefix: str, visit: Visit
) -> None:
    log, parcels, couriers, name = shared.log, f"{prefix}parcels", f"{prefix}couriers", f"{prefix}wait"
    log.create(parcels, "id long")
    log.append(parcels, [{"id": 1}])
    log.groups.seek(couriers, parcels, {0: 1})
    visitor = visit(shared.address)
    visitor.page.add_init_script(RECORDER.replace("PERMISSION", "granted"))
    page = visitor.open("/topics")
    expect(page.locator("[aria-label$=' firing']")).to_be_attached()  # it has looked once, so that what comes is new
    Watcher(log).put(Rule(name=name, kind="lag", group=couriers, threshold=0))
    log.append(parcels, [{"id": 2}])
    page.wait_for_function("(name) => shown.some(([title]) => title === `Firing: ${name}`)", arg=name)
    log.groups.seek(couriers, parcels, {0: 2})
    page.wait_for_function("(name) => shown.some(([title]) => title === `Resolved: ${name}`)", arg=name)
    notifications = [notification for notification in page.evaluate("shown") if notification[0].endswith(name)]
    assert [notification[0] for notification in notifications] == [f"Firing: {name}", f"Resolved: {name}"]
    assert notifications[0][1] == f"Group '{couriers}' is 1 row behind in topic '{parcels}'"
    tags = {notification[2] for notification in notifications}
    assert len(tags) == 2  # tags of their own, so that the second does not hide behind the first
    Watcher(log).remove(name)


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
    with app_services(Home(running.home)) as services:
        try:
            services.queries.stop("archive")
            expect(row(page, "archive-is-down")).to_contain_text("firing")
        finally:
            services.queries.restart("archive")
    expect(row(page, "archive-is-down")).to_contain_text("resolved")


class _Sent:
    def send(self, delivery: Delivery, *, now_us: int) -> Delivery:  # noqa: ARG002
        return delivery.sent()


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
        assert isinstance(log, Log)
        for topic in ("orders", "payments"):
            log.create(topic, "customer string, amount long")
        log.append("orders", [{"customer": "ada", "amount": number} for number in range(12_500)])
        log.groups.seek("billing", "orders", {0: 0})
        log.groups.seek("shipping", "orders", {0: 12_100})
        _live_a_day(log)
    with serving(path) as address:
        yield address


def _live_a_day(log: Log) -> None:
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
    watcher.store.put(Rule(name="fraud-is-down", kind="query_down", query="fraud"))
    watcher.put(Rule(name="orders-stand-still", kind="lag", group="*", threshold=1, enabled=False))
    for step in range(100):
        day.left_seconds = 90_000 - step * 900
        day.at_seconds = end - day.left_seconds
        watcher.look()
        watcher.deliver()
        enabled = [rule.name for rule in watcher.rules() if rule.enabled]
        for minute in range(15):  # a look in a quarter of an hour is enough for this day, and stands for all of them
            watcher.store.evaluations.evaluated(enabled, round((day.at_seconds + minute * 60) * 1e6))
    watcher.store.write_evaluations(now_us=day.now_us(), everything=True)


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
    if not dark:
        _on_a_phone(visitor)


def _on_a_phone(visitor: Visitor) -> None:
    visitor.page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    page = visitor.open("/alerts")
    expect(page.get_by_text("billing-is-slow").first).to_be_visible()
    expect_to_fit(page)
    page.get_by_role("button", name="New rule").click()
    expect(page.get_by_role("button", name="Save rule")).to_be_in_viewport()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    visitor.picture("alerts-phone")
