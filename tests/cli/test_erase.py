"""`headwater erase` at the command line."""

from __future__ import annotations

import headwater
from tests.cli.conftest import Cli
from tests.sourcing.customer import CUSTOMER, Register


def test_an_erasure_is_confirmed_and_says_what_is_left(cli: Cli) -> None:
    with headwater.open("data") as log:
        with headwater.Entities(log, "customer", CUSTOMER) as people:
            people.send_many([("c-1", Register("Ada Lovelace")), ("c-2", Register("Grace Hopper"))])
        log.create("copies", {"name": "string"})
        log.append("copies", [{"name": "Grace Hopper"}])
    assert cli("erase", "c-3", "--yes").code == 3
    done = cli("erase", "c-1", "--yes", "--by", "clerk")
    assert done.code == 0
    assert done.out.splitlines()[1].split()[3:6] == ["complete", "1", "1"]
    left = cli("erase", "c-2", "--yes", "--json")
    assert left.code == 1
    [certificate] = left.json
    assert certificate["remaining"][0]["place"] == "topic copies"
    again = cli("erase", "c-2", "--yes", "--rewrite", "copies")
    assert again.code == 0


def test_certificates_are_shown(cli: Cli) -> None:
    with headwater.open("data") as log, headwater.Entities(log, "customer", CUSTOMER) as people:
        people.send_many([("c-1", Register("Ada Lovelace")), ("c-2", Register("Grace Hopper"))])
    assert cli("erase").code == 2
    assert cli("erase", "--show", "--json").json == []
    cli("erase", "c-1", "c-2", "--yes")
    [first, second] = cli("erase", "--show", "--json").json
    assert "c-1" not in str(first)
    [shown] = cli("erase", "--show", "c-2", "--json").json
    assert shown["id"] == second["id"]
    assert cli("erase", "--show", "c-3").code == 3
