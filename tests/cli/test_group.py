"""Groups can be looked at, moved and forgotten; a move is shown before it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater
from tests.cli.conftest import Cli


@pytest.fixture
def billing(cli: Cli, orders: Path) -> Path:
    """A group that has read all six orders."""
    assert cli("consume", "orders", "-g", "billing", "-e", "-q").code == 0
    return orders


@pytest.mark.usefixtures("billing")
def test_the_list_of_groups_is_a_contract(cli: Cli) -> None:
    assert cli("group", "list", "--json").json == [
        {"group": "billing", "topics": ["orders"], "members": 0, "rows": 0, "seconds": 0.0}
    ]


@pytest.mark.usefixtures("billing")
def test_the_lag_of_a_partition_is_a_contract(cli: Cli) -> None:
    cli("produce", "orders", "--file", "orders.jsonl")
    record = cli("group", "lag", "billing", "--json").json[1]
    assert record.pop("seconds") > 0
    assert record == {
        "group": "billing",
        "topic": "orders",
        "partition": 1,
        "committed": 2,
        "offset_start": 0,
        "offset_next": 4,
        "rows": 2,
        "member": None,
        "expires_in_seconds": None,
    }


def test_a_description_names_the_members(cli: Cli, billing: Path) -> None:
    with headwater.open(billing) as log, log.consumer("orders", "billing") as consumer:
        consumer.poll(seconds=0)
        record = cli("group", "describe", "billing", "--json").json
        shown = cli("group", "describe", "billing").out
    [member] = record["members"]
    assert list(record) == ["group", "generation", "members", "partitions", "rows"]
    assert (member["id"], member["alive"]) == (consumer.member, True)
    assert member["assignment"] == {"orders": [0, 1, 2]}
    assert "orders[0,1,2]" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_group_with_readers_is_not_moved(cli: Cli, billing: Path) -> None:
    with headwater.open(billing) as log, log.consumer("orders", "billing") as consumer:
        consumer.poll(seconds=0)
        assert cli("group", "seek", "billing", "--to", "start", "--yes").code == 5
        assert cli("group", "delete", "billing", "--yes").code == 5


@pytest.mark.usefixtures("billing")
def test_a_move_is_shown_before_it_is_made(cli: Cli) -> None:
    shown = cli("group", "seek", "billing", "--to", "start", "--dry-run")
    assert shown.out.splitlines()[1] == "orders          0        2  →    0              2"
    assert "reads 6 rows again. Nothing was changed." in shown.err
    assert sum(one["rows"] for one in cli("group", "lag", "billing", "--json").json) == 0


@pytest.mark.usefixtures("billing")
def test_a_move_needs_a_yes_and_is_a_contract(cli: Cli) -> None:
    assert cli("group", "seek", "billing", "--to", "start").code == 2
    done = cli("group", "seek", "billing", "orders", "--to", "-1", "--yes", "--json")
    assert done.json[0].keys() == {"group", "topic", "partition", "current", "new", "offset_start", "rows", "moved"}
    assert sum(one["rows"] for one in done.json) == 1
    assert len(cli("consume", "orders", "-g", "billing", "-e", "--json").rows) == 1


@pytest.mark.usefixtures("billing")
def test_one_partition_can_be_moved_alone(cli: Cli) -> None:
    done = cli("group", "seek", "billing", "orders", "--to", "start", "-p", "2", "--yes", "--json")
    assert [(one["partition"], one["rows"]) for one in done.json] == [(2, 2)]


@pytest.mark.usefixtures("billing")
def test_a_deleted_group_begins_anew(cli: Cli) -> None:
    assert cli("group", "delete", "billing").code == 2
    assert cli("group", "rm", "billing", "--dry-run").code == 0
    assert cli("group", "delete", "billing", "--yes").code == 0
    assert cli("group", "list", "--json").json == []
    assert len(cli("consume", "orders", "-g", "billing", "-e", "--json").rows) == 6
