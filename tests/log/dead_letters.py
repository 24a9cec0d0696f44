"""All dead letters of a topic, as tests read them."""

from __future__ import annotations

from headwater.log import Log
from headwater.log.dead_letters import Statuses, StoredDeadLetter, find_dead_letter_topic, stored_dead_letters


def all_dead_letters(log: Log, topic: str) -> list[StoredDeadLetter]:
    """The dead letters of a topic in order, with their statuses."""
    stored = find_dead_letter_topic(log, topic)
    statuses = Statuses(log, stored).now()
    batches = log.read(stored.name).batches()
    return [one for batch in batches for one in stored_dead_letters(batch.data, batch.partition, statuses)]
