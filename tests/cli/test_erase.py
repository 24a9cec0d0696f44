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
    assert done.out.splitlines()[1].split()[:4] == ["c-1", "1", "1", "0"]
    left = cli("erase", "c-2", "--yes", "--json")
    assert left.code == 1
    [certificate] = left.json
    assert "copies" in certificate["remaining"][0]
