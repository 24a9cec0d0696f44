"""Every partition has one owner, the assignment is balanced, and it is sticky."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.log.embedded.membership import assign
from headwater.log.port import Place

MEMBERS = st.sampled_from(["ada", "bob", "cyd", "dan", "eve"])
TOPICS = st.sampled_from(["clicks", "orders", "views"])
PARTITIONS = st.dictionaries(TOPICS, st.integers(1, 9), min_size=1)
SUBSCRIPTIONS = st.dictionaries(MEMBERS, st.frozensets(TOPICS, min_size=1))
OWNERS = st.dictionaries(st.builds(Place, TOPICS, st.integers(0, 9)), MEMBERS)


def sizes(assigned: dict[Place, str], members: dict[str, frozenset[str]]) -> dict[str, int]:
    return {member: sum(owner == member for owner in assigned.values()) for member in members}


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS, owners=OWNERS)
def test_each_partition_of_a_subscribed_topic_has_one_subscribed_owner(
    subscriptions: dict[str, frozenset[str]], partitions: dict[str, int], owners: dict[Place, str]
) -> None:
    assigned = assign(subscriptions, partitions, owners)
    wanted = {topic for topics in subscriptions.values() for topic in topics} & partitions.keys()
    assert assigned.keys() == {Place(topic, number) for topic in wanted for number in range(partitions[topic])}
    assert all(place.topic in subscriptions[member] for place, member in assigned.items())


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS, owners=OWNERS)
def test_no_partition_could_move_to_a_member_with_two_fewer(
    subscriptions: dict[str, frozenset[str]], partitions: dict[str, int], owners: dict[Place, str]
) -> None:
    assigned = assign(subscriptions, partitions, owners)
    count = sizes(assigned, subscriptions)
    for place, owner in assigned.items():
        for member, topics in subscriptions.items():
            assert place.topic not in topics or count[member] + 2 > count[owner]


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS, owners=OWNERS)
def test_a_balanced_assignment_stays(
    subscriptions: dict[str, frozenset[str]], partitions: dict[str, int], owners: dict[Place, str]
) -> None:
    assigned = assign(subscriptions, partitions, owners)
    assert assign(subscriptions, partitions, assigned) == assigned


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS, owners=OWNERS)
def test_the_order_of_the_facts_does_not_matter(
    subscriptions: dict[str, frozenset[str]], partitions: dict[str, int], owners: dict[Place, str]
) -> None:
    def turned(facts: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        return dict(reversed(facts.items()))

    again = assign(turned(subscriptions), dict(reversed(partitions.items())), dict(reversed(owners.items())))
    assert list(again.items()) == list(assign(subscriptions, partitions, owners).items())


@given(members=st.sets(MEMBERS, min_size=1), newcomer=MEMBERS, partitions=PARTITIONS)
def test_a_newcomer_takes_only_its_share(members: set[str], newcomer: str, partitions: dict[str, int]) -> None:
    before = assign({member: list(partitions) for member in members}, partitions, {})
    after = assign({member: list(partitions) for member in members | {newcomer}}, partitions, before)
    moved = {place for place in before if before[place] != after[place]}
    assert all(after[place] == newcomer for place in moved)
    assert len(moved) <= -(-sum(partitions.values()) // len(members | {newcomer}))


@given(members=st.sets(MEMBERS, min_size=2), partitions=PARTITIONS, data=st.data())
def test_when_one_leaves_only_its_partitions_move(
    members: set[str], partitions: dict[str, int], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(members)))
    before = assign({member: list(partitions) for member in members}, partitions, {})
    after = assign({member: list(partitions) for member in members - {gone}}, partitions, before)
    assert all(after[place] == owner for place, owner in before.items() if owner != gone)


def test_moves_are_as_few_as_balance_allows() -> None:
    owners = {Place("t", number): "ada" if number < 4 else "bob" for number in range(8)}
    assigned = assign({"ada": ["t"], "bob": ["t"], "cyd": ["t"]}, {"t": 8}, owners)
    assert sum(assigned[place] != owner for place, owner in owners.items()) == 2
