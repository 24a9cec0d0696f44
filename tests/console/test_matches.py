"""Matches: what was found, by which rule, and the events that made it, on a line of time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import headwater
from headwater.console.finding import Source, events_of, matches_of, sources_of
from headwater.log import EmbeddedLog
from headwater.operators.finding import Finder
from headwater.server.tokens import Tokens
from tests.console.bank import CARD, STOLEN, make_bank, payments_of
from tests.console.conftest import Running, Visit, serving
from tests.console.test_login import log_in

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedLog, str]]:
    with headwater.open(tmp_path_factory.mktemp("bank") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        make_bank(log)
        with serving(log.path) as address:
            yield log, address


def test_matches_come_with_their_rule_key_and_events(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = bank
    page = visit(address).open("/matches")
    row = page.locator("tbody tr").filter(has_text=str(CARD + 3)).filter(has_text="alerts")
    expect(row).to_contain_text("tries 2")
    expect(row.locator("svg circle")).to_have_count(len(payments_of(3)))
    chart = page.get_by_role("img", name="Matches by rule")
    for rule in ("alerts", "tried-out", "large"):
        expect(chart).to_contain_text(rule)
    expect(page.get_by_text(f"{2 * STOLEN} matches of 3 rules")).to_be_visible()
    page.get_by_label("Filter by key or value").fill(str(CARD + 8))
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Filter by key or value").fill("")
    page.get_by_label("Rule", exact=True).click()
    page.get_by_role("option", name="large").click()
    expect(page.locator("tbody tr")).to_have_count(5)
    assert log.describe("caught").rows == STOLEN


def test_one_match_shows_its_events_and_leads_to_them(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(bank[1])
    page = visitor.open("/matches")
    page.locator("tbody tr").filter(has_text=str(CARD + 2)).filter(has_text="alerts").click()
    events = payments_of(2)
    expect(page.get_by_role("heading", name=f"{len(events)} events in")).to_be_visible()
    line = page.locator("svg.timeline.large")
    expect(line.locator("circle")).to_have_count(len(events))
    expect(line).to_contain_text("700")
    expect(page.get_by_role("table", name="The events").locator("tbody tr")).to_have_count(len(events))
    expect(page.get_by_role("table", name="The events")).not_to_contain_text("Ferry")
    expect(page.get_by_text("PATTERN (small{2,} big)")).to_be_visible()
    visitor.picture("match-light")
    page.get_by_role("table", name="The events").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/console/topics/payments/\d/\d+"))


def test_a_topic_of_unknown_origin_is_known_by_its_columns(log: EmbeddedLog, visit: Visit) -> None:
    schema = {
        "url": "string",
        "query_id": "string",
        "score": "float64",
        "highlights": "list<struct<field: string, fragment: string>>",
    }
    log.create("mentioned", {**schema, "metadata": "map<string, string>", "queries_version": "int64"})
    fragment = {"field": "title", "fragment": "<em>Storm</em> <script>alert(1)</script>"}
    log.append(
        "mentioned",
        [
            {
                "url": "https://news.example/1",
                "query_id": "<i>weather</i>",
                "score": 1.5,
                "highlights": [fragment],
                "queries_version": 3,
            }
        ],
    )
    with serving(log.path) as address:
        page = visit(address).open("/matches")
        row = page.locator("tbody tr").first
        expect(row).to_contain_text("<i>weather</i>")
        expect(row.locator("mark")).to_have_text("Storm")
        expect(row).to_contain_text("<script>alert(1)</script>")
        row.click()
        expect(page.get_by_text("https://news.example/1")).to_be_visible()
        log.delete("mentioned")
        page.reload()
        expect(page.get_by_role("alert")).to_contain_text("mentioned")


def test_an_empty_log_says_what_looks_for_patterns(served: str, visit: Visit) -> None:
    expect(visit(served).open("/matches").get_by_text("Nothing was found yet")).to_be_visible()


def test_whoever_may_not_read_the_events_sees_the_match_alone(log: EmbeddedLog, visit: Visit) -> None:
    make_bank(log)
    token = Tokens(log.path).create("guest", ["read:alerts"])
    with serving(log.path) as address:
        page = visit(address).page
        log_in(page, address, token, to="/matches")
        expect(page.locator("tbody tr")).to_have_count(STOLEN)
        expect(page.locator("tbody svg circle")).to_have_count(0)


def test_the_page_in_light_dark_and_on_a_phone(bank: tuple[EmbeddedLog, str], visit: Visit) -> None:
    for dark in (False, True):
        visitor = visit(bank[1], dark=dark)
        page = visitor.open("/matches")
        expect(page.locator("tbody svg circle").first).to_be_visible()
        visitor.picture(f"matches-{'dark' if dark else 'light'}")
    phone = visit(bank[1], phone=True).open("/matches")
    expect(phone.locator("tbody svg").first).to_be_attached()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_matches_of_a_real_app_have_their_events(running: Running, visit: Visit) -> None:
    page = visit(running.address).open("/matches")
    row = page.locator("tbody tr").filter(has_text="alerts").first
    expect(row).to_contain_text("tries 2", timeout=60_000)
    expect(row.locator("svg circle")).to_have_count(3)


# Any: rows.
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 3)).map(
            lambda one: {"card": one[0], "at": EPOCH + timedelta(seconds=one[1]), "amount": float(one[2])}
        ),
        max_size=30,
    ),
    found=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=5),
)
def test_the_events_of_a_match_are_the_rows_of_its_key_between_its_times(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], found: list[tuple[int, int, int]]
) -> None:
    with headwater.open(tmp_path_factory.mktemp("law") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        log.create(
            "payments", {"card": "int64", "at": "timestamp", "amount": "float64"}, key="card", time="at", partitions=2
        )
        log.create("alerts", {"card": "int64", "first": "timestamp", "last": "timestamp"})
        for row in rows:  # a frame each, so that frames are passed over
            log.append("payments", [row])
        spans = [
            (card, EPOCH + timedelta(seconds=at), EPOCH + timedelta(seconds=at + length)) for card, at, length in found
        ]
        log.append("alerts", [{"card": card, "first": first, "last": last} for card, first, last in spans])
        finder = Finder(kind="pattern", operator="m", on="at", by=("card",))
        source = Source(topic="alerts", kind="pattern", query="alerts", reads=("payments",), finder=finder)
        matches = matches_of(log, source, rows=100)
        events = events_of(log, matches)
        for match in matches:
            card, first, last = spans[match.offset]
            wanted = sorted(
                (row["at"], row["amount"]) for row in rows if row["card"] == card and first <= row["at"] <= last
            )
            told = sorted((event.row["at"], event.row["amount"]) for event in events.get(match.place, []))
            assert told == wanted


def test_what_apps_write_down_comes_before_what_columns_say(bank: tuple[EmbeddedLog, str]) -> None:
    known = {one.topic: (one.kind, one.query, one.app) for one in sources_of(bank[0])}
    assert known["alerts"] == ("pattern", "alerts", "bank")
    assert known["caught"] == ("rules", "caught", "bank")
