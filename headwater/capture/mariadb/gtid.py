"""GTIDs of MariaDB: the last transaction of each domain, as text `domain-server-number`, with commas between."""

from __future__ import annotations

from collections.abc import Mapping

#: The server and the number of the last transaction, by domain.
Gtids = Mapping[int, tuple[int, int]]


def parse(text: str) -> dict[int, tuple[int, int]]:
    """Parse a list of GTIDs.

    >>> parse("0-7-12,1-7-3")
    {0: (7, 12), 1: (7, 3)}
    """
    found = {}
    for one in filter(None, text.split(",")):
        domain, server, number = map(int, one.split("-"))
        found[domain] = (server, number)
    return found


def shown(gtids: Gtids) -> str:
    """The text of a list of GTIDs.

    >>> shown({1: (7, 3), 0: (7, 12)})
    '0-7-12,1-7-3'
    """
    return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(gtids.items()))


def contains(gtids: Gtids, other: Gtids) -> bool:
    """Whether everything up to one place lies before another.

    >>> contains(parse("0-7-12"), parse("0-7-11")), contains(parse("0-7-12"), parse("0-7-12,1-7-1"))
    (True, False)
    """
    return all(domain in gtids and gtids[domain][1] >= number for domain, (_, number) in other.items())


def missing(gtids: Gtids, other: Gtids) -> int:
    """How many transactions of `other` are not in `gtids`, by their numbers.

    >>> missing(parse("0-7-12"), parse("0-7-15,1-7-1"))
    4
    """
    return sum(max(0, number - (gtids[domain][1] if domain in gtids else 0)) for domain, (_, number) in other.items())
