"""Who reads which partition: a pure function that every member of a group computes alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Place(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def assign(
    subscriptions: Mapping[str, Collection[str]], partitions: Mapping[str, int], owners: Mapping[Place, str]
) -> dict[Place, str]:
    """Give every partition that somebody subscribes to one owner.

    Balanced: no partition could move to a member that has at least two fewer. Sticky: owners keep what they have
    unless balance needs it. The result depends on nothing else, so all members find the same.

    >>> assign({"a": ["t"], "b": ["t"]}, {"t": 3}, {Place("t", 0): "a", Place("t", 1): "a", Place("t", 2): "a"})
    {Place(topic='t', partition=0): 'a', Place(topic='t', partition=1): 'a', Place(topic='t', partition=2): 'b'}
    """
    readers = {topic: sorted(m for m, topics in subscriptions.items() if topic in topics) for topic in partitions}
    places = [Place(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])]
    held: dict[str, set[Place]] = {member: set() for member in subscriptions}
    homeless = []
    for place in places:
        owner = owners.get(place)
        if owner is not None and owner in readers[place.topic]:
            held[owner].add(place)
        elif readers[place.topic]:
            homeless.append(place)
    # Those with the least choice first: they would otherwise find their few readers full.
    for place in sorted(homeless, key=lambda place: (len(readers[place.topic]), place)):
        held[_emptiest(readers[place.topic], held)].add(place)
    _level(held, readers)
    result = {place: member for member, own in held.items() for place in own}
    return dict(sorted(result.items()))


def _emptiest(members: Collection[str], held: Mapping[str, Collection[Place]]) -> str:
    return min(members, key=lambda member: (len(held[member]), member))


def _level(held: dict[str, set[Place]], readers: Mapping[str, list[str]]) -> None:
    """Move single partitions from fuller to emptier members until no move helps."""
    # The fullest gives first, one at a time; each move lowers the sum of the squares, so this ends.
    while any(_give(giver, held, readers) for giver in sorted(held, key=lambda member: (-len(held[member]), member))):
        pass


def _give(giver: str, held: dict[str, set[Place]], readers: Mapping[str, list[str]]) -> bool:
    takers = {topic: _emptiest(readers[topic], held) for topic in {place.topic for place in held[giver]}}
    able = [place for place in held[giver] if len(held[takers[place.topic]]) + 2 <= len(held[giver])]
    if not able:
        return False
    place = max(able)
    held[giver].remove(place)
    held[takers[place.topic]].add(place)
    return True
