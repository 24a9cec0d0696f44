"""Groups: listed, described, moved, deleted; the same in this process and over HTTP."""

from __future__ import annotations

import pytest

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.log.clients.groups import SeekStep
from headwater.log.errors import GroupActive, OffsetAhead
from headwater.services import Services
from headwater.services.callers import ScopeMissing
from headwater.services.groups import GroupTopics, effect_of
from tests.services.conftest import Audited, ServicesOf


@pytest.fixture
def log(log: Log) -> Log:
    """Two topics, and a group that has committed in both."""
    for name in ("orders", "secret"):
        log.create(name, "id int64", partitions=2)
        for partition, rows in ((0, 50), (1, 7)):
            log.append(name, [{"id": number} for number in range(rows)], partition=partition)
    log.commit_offsets("billing", "orders", {0: 20, 1: 7})
    log.commit_offsets("billing", "secret", {0: 0})
    return log


def test_groups_are_listed_with_the_topics_that_the_caller_sees(services_of: ServicesOf, log: Log) -> None:
    log.commit_offsets("spies", "secret", {0: 0})
    with log.consumer("orders", "fresh", auto_commit=False) as reader:
        reader.poll(seconds=0)
        assert services_of("read:orders").groups.list_groups() == [
            GroupTopics(group="billing", topics=["orders"], committed=["orders"]),
            GroupTopics(group="fresh", topics=["orders"], committed=[]),
        ]
        assert [one.group for one in services_of().groups.list_groups()] == ["billing", "fresh", "spies"]
    with pytest.raises(ScopeMissing):
        services_of("write:orders").groups.list_groups()


def test_a_group_is_described_as_far_as_the_caller_sees_it(services_of: ServicesOf, log: Log) -> None:
    with log.consumer(["orders", "secret"], "billing", member="packer") as reader:
        reader.poll(seconds=0)
        whole = services_of().groups.describe("billing")
        assert whole.members == log.groups.describe("billing").members
        assert (whole.rows, whole.members[0].alive) == (30 + 57, True)
        part = services_of("read:orders").groups.describe("billing")
    assert {one.topic for one in part.partitions} == {"orders"}
    assert [(one.topics, list(one.assignment)) for one in part.members] == [(("orders",), ["orders"])]
    for scope in ("read:cards", "read:secre"):
        with pytest.raises(NotFound):
            services_of(scope).groups.describe("billing")


def test_the_lag_of_a_group_is_counted_in_what_the_caller_sees(services_of: ServicesOf) -> None:
    lags = services_of("read:orders").groups.lag("billing")
    assert [(one.topic, one.partition, one.rows) for one in lags] == [("orders", 0, 30), ("orders", 1, 0)]
    with pytest.raises(NotFound):
        services_of().groups.lag("nobody")
    with pytest.raises(NotFound):
        services_of("read:cards").groups.lag("billing")


POSITIONS = {
    "start": {0: 0, 1: 0},
    "latest": {0: 50, 1: 7},
    "10": {0: 10, 1: 7},
    "-3": {0: 50, 1: 4},
    "shift:-8": {0: 12, 1: 0},
    "shift:8": {0: 28, 1: 7},
    "@-1h": {0: 0, 1: 0},
    "@now": {0: 50, 1: 7},
    "0:5": {0: 5},
}


def test_a_group_goes_to_a_position(services: Services, log: Log) -> None:
    for to, new in POSITIONS.items():
        log.commit_offsets("billing", "orders", {0: 20, 1: 7})
        tried = services.groups.seek("billing", "orders", to, dry_run=True)
        assert log.committed("billing", "orders") == {0: 20, 1: 7}
        assert services.groups.seek("billing", "orders", to) == tried
        assert {step.partition: step.new for step in tried} == new
        assert services.groups.committed("billing", "orders") == {0: 20, 1: 7} | new


def test_some_partitions_of_a_group_are_moved(services: Services) -> None:
    steps = services.groups.seek("billing", "orders", "start", partitions=[0])
    assert [(step.partition, step.current, step.new, step.rows) for step in steps] == [(0, 20, 0, 20)]
    with pytest.raises(NotFound):
        services.groups.seek("billing", "orders", "start", partitions=[9])


def test_a_position_that_is_none_moves_nothing(services: Services, log: Log) -> None:
    refused = {"0:51": OffsetAhead, "soon": ArgumentInvalid, "0:-1": ArgumentInvalid, "@soon": ArgumentInvalid}
    for to, error in refused.items():
        with pytest.raises(error):
            services.groups.seek("billing", "orders", to)
    assert log.committed("billing", "orders") == {0: 20, 1: 7}


def test_a_move_is_audited_and_a_dry_run_is_not(services_of: ServicesOf, audited: Audited) -> None:
    services_of("read:orders").groups.seek("billing", "orders", "start", dry_run=True)
    with pytest.raises(ScopeMissing, match="admin:orders"):
        services_of("read:orders").groups.seek("billing", "orders", "start")
    services_of().groups.seek("billing", "orders", "0:3,1:4")
    assert audited() == [
        {"action": "groups.seek", "target": "billing topic=orders to=start", "status": 403},
        {"action": "groups.seek", "target": "billing topic=orders to=0:3,1:4", "status": 200},
    ]


def test_a_group_with_live_members_is_neither_moved_nor_deleted(services: Services, log: Log) -> None:
    with log.consumer("orders", "billing") as reader:
        reader.poll(seconds=0)
        with pytest.raises(GroupActive):
            services.groups.seek("billing", "orders", "start")
        with pytest.raises(GroupActive):
            services.groups.delete("billing")


def test_a_group_is_deleted_by_an_admin_of_all_its_topics(services_of: ServicesOf, log: Log, audited: Audited) -> None:
    with pytest.raises(NotFound):
        services_of("admin:cards").groups.delete("billing")
    with pytest.raises(ScopeMissing) as refused:
        services_of("admin:orders").groups.delete("billing")
    assert "secret" not in str(refused.value)
    services_of().groups.delete("billing")
    assert log.groups.names() == []
    assert [row["status"] for row in audited()] == [403, 200]


def test_offsets_are_committed_and_forgotten(services_of: ServicesOf, log: Log, audited: Audited) -> None:
    reader, admin = services_of("read:orders").groups, services_of("admin:orders").groups
    reader.commit("billing", "orders", {1: 3}, metadata="by hand")
    assert reader.committed("billing", "orders") == {0: 20, 1: 3}
    for offsets in ({2: 0}, {0: -1}):
        with pytest.raises(ArgumentInvalid):
            reader.commit("billing", "orders", offsets)
    with pytest.raises(ScopeMissing):
        reader.commit("billing", "secret", {0: 1})
    with pytest.raises(ScopeMissing):
        reader.committed("billing", "secret")
    with pytest.raises(ScopeMissing):
        admin.forget("billing")
    admin.forget("billing", topic="orders")
    assert log.committed_groups() == {"billing": {"secret"}}
    with pytest.raises(NotFound):
        services_of().groups.commit("billing", "cards", {0: 1})
    assert [row["action"] for row in audited()] == ["groups.forget", "groups.forget"]


def test_a_name_of_dots_is_no_group(services: Services) -> None:
    for name in ("..", ".", ""):
        with pytest.raises(NotFound):
            services.groups.describe(name)


def test_the_effect_of_a_seek_is_told() -> None:
    def step(current: int | None, new: int) -> SeekStep:
        return SeekStep(group="g", topic="t", partition=0, current=current, new=new)

    assert effect_of([step(4, 4)]) == "stays where it is"
    assert effect_of([step(None, 1)]) == "passes 1 row over"
    assert effect_of([step(1_000, 400), step(100, 400)]) == "reads 600 rows again and passes 300 rows over"
