"""Rules and stored searches: checked as they are written, tried on past events, and put live with a question before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

import headwater
from headwater.console.rules.rule_tables import StoredRule, stored_in, tables_of, write
from headwater.console.rules.trial import TrialInput, trial_input, try_text
from headwater.log import Log
from headwater.log.errors import KeyConflict
from headwater.services.audit import AUDIT_TOPIC as AUDIT
from headwater.services.tokens import Tokens
from tests.conditions import until
from tests.console.bank import CARD, STOLEN, TRIED_OUT, make_bank
from tests.console.conftest import PHONE, Served, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated
from tests.laws import costly

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def stored(log: Log, topic: str = "rules") -> dict[str, StoredRule]:
    [table] = [table for table in tables_of(log) if table.topic == topic]
    return stored_in(log, table)


@pytest.fixture
def console(log: Log) -> Iterator[SimulatedConsole]:
    """The console of a bank."""
    make_bank(log)
    with simulated(log) as made:
        yield made


def test_rules_are_listed_with_their_state_version_and_matches(console: SimulatedConsole) -> None:
    page = console.open("/rules")
    assert re.match(r"tried-out on MEASURES .* 0 7 ", page.sees_row("Rules", "tried-out"))
    assert "Did you mean amount?" in page.sees_row("Rules", "broken refused")
    assert page.links()["searches"] == "/console/rules/searches"
    assert "storm OR flood*" in page.open("/rules/searches").sees_row("Stored searches", "weather")


def test_a_rule_is_paused_resumed_and_removed_after_a_question(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/rules")
    page.act("Rules", "tried-out", "Pause").sees("It has matched 7 times so far.").press("Pause")
    page.sees_row("Rules", "tried-out paused")
    paused = stored(log)["tried-out"]
    assert not paused.enabled
    assert paused.row["owner"] == "fraud desk", "what the page does not show is kept"
    page.act("Rules", "tried-out", "Resume").sees("Resume tried-out?").press("Resume")
    page.sees_row("Rules", "tried-out on")
    page.act("Rules", "tried-out", "Remove").sees("Remove tried-out?").press("Cancel").sees_not("Remove tried-out?")
    assert "tried-out" in stored(log)
    page.act("Rules", "tried-out", "Remove").sees("Remove tried-out?").press("Remove").hears("tried-out is removed")
    until(lambda: not any(row.startswith("tried-out") for row in page.rows("Rules")), "it is gone")
    assert "tried-out" not in stored(log)
    noted = [row["action"] for row in log.read(AUDIT).rows()]
    assert [action for action in noted if action.startswith("rule.")] == ["rule.pause", "rule.resume", "rule.remove"]


def test_a_text_is_checked_as_it_is_written(console: SimulatedConsole) -> None:
    page = console.open("/rules/rules/edit?id=tried-out").sees("Understood.")
    assert page.is_enabled("Put it live")
    page.write("Text of the rule", TRIED_OUT.replace("amount < 5", "amout < 5")).sees("Did you mean amount?")
    page.underlines("amout")
    assert not page.is_enabled("Put it live")
    page.write("Text of the rule", "PATTERN (small{2,} big DEFINE small AS amount < 5, big AS amount > 500")
    page.sees("is never closed")
    page.underlines("(")


def test_a_rule_is_tried_on_past_events_and_then_put_live(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/rules/rules/edit?id=tried-out").sees("Understood.")
    page.press("Try it").sees(f"{STOLEN} matches")
    assert page.row_markup("Matches of the trial", f".* {CARD + 4} ").count("<circle") == 4
    larger = TRIED_OUT.replace("amount > 500", "amount > 1000")
    page.write("Text of the rule", larger).press("Try it").sees("3 matches")
    page.press("Put it live").sees("it found 3 matches", "amount > 500").press("Put it live")
    page.sees("Version 3 of a rule")
    now = stored(log)["tried-out"]
    assert (now.version, now.text, now.enabled) == (3, larger, True)
    assert [row["action"] for row in log.read(AUDIT).rows()][-1] == "rule.write"


def test_a_new_stored_search_is_tried_and_written(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/rules/searches").press("New stored search").sees("A new stored search")
    page.write("Text of the rule", "title:rates AND (").sees("here something is missing")
    page.write("Text of the rule", "title:flood*").sees("Understood.").press("Try it").sees("10 matches")
    assert page.rows("Matches of the trial")[0].endswith("Floods in <b>Lyon</b>")
    assert "<mark>Floods</mark>" in page.markup()
    page.write("Name of the rule", "floods").press("Put it live").sees("Put floods live?").press("Put it live")
    page.sees("Version 1 of a stored search")
    assert stored(log, "searches")["floods"].text == "title:flood*"


def test_a_change_made_meanwhile_is_not_overwritten(log: Log, console: SimulatedConsole) -> None:
    page = console.open("/rules/rules/edit?id=large").sees("Understood.")
    log.append("rules", [{"id": "large", "text": "PATTERN (a) DEFINE a AS amount > 1", "enabled": True}])
    page.press("Put it live").sees("Put large live?").press("Put it live").hears("was last written at offset 3")
    assert stored(log)["large"].text == "PATTERN (a) DEFINE a AS amount > 1"


def test_a_token_to_read_changes_nothing(log: Log, console: SimulatedConsole) -> None:
    token = Tokens(log.home).create("guest", ["read:*"])
    page = console.open("/rules", token)
    assert not re.search("Pause|Remove", page.sees_row("Rules", "tried-out"))
    assert not page.is_there("New rule")
    page.open("/rules/rules/edit?id=large").sees("Understood.")
    assert not page.is_there("Put it live")


def test_tables_that_are_not_there_are_told_in_a_sentence(log: Log) -> None:
    with simulated(log) as console:
        console.open("/rules").sees("No table of rules yet")
        for path in ("/rules/nothing", "/rules/nothing/edit"):
            console.open(path).sees("There is no topic 'nothing'")


# -- in a browser -----------------------------------------------------------------------------------------------------


def rewrite(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Text of the rule").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_a_rule_is_written_by_keys_in_light(shared_bank: Served, visit: Visit) -> None:
    visitor = visit(shared_bank.address)
    page = visitor.open("/rules")
    row = page.get_by_role("row", name=re.compile("tried-out"))
    expect(row).to_contain_text("on")
    visitor.picture("rules-light")
    row.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Tab")
    expect(row.get_by_role("button", name="Remove")).to_be_focused()
    expect(row.get_by_role("button", name="Remove")).to_have_css("outline-style", "solid")
    page = visitor.open("/rules/rules/edit?id=tried-out")
    expect(page.get_by_text("Understood.")).to_be_visible()
    rewrite(page, TRIED_OUT.replace("amount < 5", "amout < 5"))
    expect(page.get_by_text("Did you mean amount?")).to_be_visible()
    expect(page.locator(".editor .trouble")).to_have_text("amout")
    rewrite(page, TRIED_OUT)
    expect(page.get_by_text("Understood.")).to_be_visible()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name=f"{STOLEN} matches")).to_be_visible()
    visitor.picture("rule-light")


def test_a_rule_in_dark_and_on_a_phone(shared_bank: Served, visit: Visit) -> None:
    visitor = visit(shared_bank.address, dark=True)
    page = visitor.open("/rules")
    expect(page.get_by_role("row", name=re.compile("large"))).to_be_visible()
    visitor.picture("rules-dark")
    page = visitor.open("/rules/rules/edit?id=tried-out")
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name=f"{STOLEN} matches")).to_be_visible()
    visitor.picture("rule-dark")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)


# -- what is decided --------------------------------------------------------------------------------------------------


def test_a_rule_is_written_only_over_what_was_known(log: Log) -> None:
    make_bank(log)
    [table] = [table for table in tables_of(log) if table.topic == "rules"]
    known = stored_in(log, table)["large"]
    version = write(log, table, "large", "PATTERN (a) DEFINE a AS amount > 5", enabled=True, known=known)
    assert version == stored_in(log, table)["large"].version
    for stale in (known, None):
        with pytest.raises(KeyConflict):
            write(log, table, "large", "PATTERN (a) DEFINE a AS true", enabled=True, known=stale)


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, datetime]]:
    """The definition of `PATTERN (a b)`: two rows of a key that follow each other, and the next search begins behind them."""
    matches = []
    for card in sorted({row["card"] for row in rows}):
        own = sorted((row for row in rows if row["card"] == card), key=lambda row: row["at"])
        at = 0
        while at + 1 < len(own):
            if own[at]["amount"] < 5 and own[at + 1]["amount"] > 500:
                matches.append((card, own[at + 1]["at"]))
                at += 2
            else:
                at += 1
    return sorted(matches)


@costly(40)
@given(
    amounts=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 4.0, 50.0, 501.0, 900.0])), max_size=40),
    last=st.sampled_from([5, 20, 1_000]),
)
def test_a_trial_finds_what_the_definition_says_in_the_newest_rows(
    tmp_path_factory: pytest.TempPathFactory, amounts: list[tuple[int, float]], last: int
) -> None:
    rows = [
        {"card": card, "amount": amount, "at": EPOCH + timedelta(seconds=place)}
        for place, (card, amount) in enumerate(amounts)
    ]
    with headwater.open(tmp_path_factory.mktemp("law") / "log") as log:
        assert isinstance(log, Log)
        log.create("payments", {"card": "int64", "amount": "float64", "at": "timestamp"}, key="card", time="at")
        log.append("payments", rows)
        bench = TrialInput(kind="rules", topic="payments", schema=log.topic("payments").schema, time="at", by=("card",))
        trial = try_text(log, bench, "PATTERN (a b) DEFINE a AS amount < 5, b AS amount > 500", rows=last)
    wanted = pairs(rows[-last:])
    told = sorted(
        (match.key_values[0], EPOCH + timedelta(microseconds=(match.last_us or 0) - round(EPOCH.timestamp() * 1e6)))
        for match in trial.matches
    )
    assert (told, trial.count, trial.rows) == (wanted, len(wanted), min(last, len(rows)))
    assert all(len(trial.events[match.place]) == 2 for match in trial.matches)


def test_a_bench_takes_the_time_and_the_key_of_the_query(log: Log) -> None:
    make_bank(log)
    [table] = [table for table in tables_of(log) if table.topic == "rules"]
    bench = trial_input(log, table, "payments")
    assert (bench.time, bench.by) == ("at", ("card",))
