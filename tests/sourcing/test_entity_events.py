"""Events of entities, read without their decider."""

from __future__ import annotations

import pytest

import headwater as hw
import headwater.log
from headwater.errors import NotFound
from headwater.log import Log
from headwater.log.errors import ReadOnly
from headwater.sourcing.entity_events import EntityEvents, kinds_of_entities
from tests.sourcing.account import DECIDER, Account, Accounts, Deposit, Open


def test_events_of_other_programs_are_followed(log: Log, accounts: Accounts) -> None:
    accounts.send("a", Open("Ada"))
    events = EntityEvents(log, "account")
    assert [row.event for row in events.history("a")] == ["Opened"]
    for amount in range(1, 8):
        accounts.send("a", Deposit(amount))
    assert [row.version for row in events.history("a", after=2, limit=3)] == [3, 4, 5]
    assert events.ids() == [("a", 8)]
    assert [row.version for row in events.history("a", after=7)] == [8]
    with pytest.raises(NotFound, match="'b'"):
        events.history("b")
    events.close()


def test_a_log_that_is_read_only_has_histories_and_states(log: Log, accounts: Accounts) -> None:
    accounts.send("a", Open("Ada"))
    accounts.close()
    with headwater.log.open(log.address, create=False, read_only=True) as reading:
        assert kinds_of_entities(reading) == ["account"]
        events = EntityEvents(reading, "account")
        assert [row.event for row in events.history("a")] == ["Opened"]
        events.close()
        with hw.Entities(reading, "account", DECIDER) as same:
            assert same.load("a").state == Account("Ada")
            assert same.try_command("a", Deposit(1)).version == 2
            with pytest.raises(ReadOnly):
                same.send("a", Deposit(1))
