"""Logs with a fault planted in them, to show that the checker would find it. Nothing of this is in the product."""

from __future__ import annotations

import random
import time
from typing import Any

from headwater.log import Appended
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.transactions import EmbeddedTransaction


class LostAppend(EmbeddedLog):
    """Acknowledges some appends without appending the rows."""

    def append(self, topic: str, rows: Any, **options: Any) -> Appended:
        # A conditional append would find its own lie at the next try.
        is_plain = not topic.startswith("__") and options.get("expected_offset") is None
        if is_plain and isinstance(rows, list) and random.random() < 0.05:
            partition = options.get("partition") or 0
            end = self.end_offsets(topic)[partition]
            return Appended(topic=topic, ranges={partition: (end, end + len(rows))})
        return super().append(topic, rows, **options)


class DoubleAppend(EmbeddedLog):
    """Appends some batches of idempotent producers twice."""

    def append(self, topic: str, rows: Any, **options: Any) -> Appended:
        if options.get("producer") is not None and options.get("expected_offset") is None and random.random() < 0.1:
            super().append(topic, rows, partition=options.get("partition"))
        return super().append(topic, rows, **options)


class TornTransaction(EmbeddedLog):
    """Makes some transactions visible in two parts, one a little after the other."""

    def transaction(self, *given: Any, **options: Any) -> EmbeddedTransaction:
        transaction = super().transaction(*given, **options)
        # Not those that may be retried: their second piece would be there twice, which is another fault.
        if options.get("sequence") is None and random.random() < 0.5:
            _tear(self, transaction)
        return transaction


class StaleCondition(EmbeddedLog):
    """Ignores the condition of some conditional appends."""

    def append(self, topic: str, rows: Any, **options: Any) -> Appended:
        if random.random() < 0.5:
            options["expected_offset"] = None
        return super().append(topic, rows, **options)


PLANTS: dict[str, type[EmbeddedLog]] = {
    "lost-append": LostAppend,
    "double-append": DoubleAppend,
    "torn-transaction": TornTransaction,
    "stale-condition": StaleCondition,
}


def _tear(log: EmbeddedLog, transaction: EmbeddedTransaction) -> None:
    whole = transaction.commit

    def commit() -> dict[str, Appended]:
        parts = transaction._parts
        topics = sorted({topic for topic, _ in parts})
        if len(topics) < 2 or transaction.outcome:
            return whole()
        rest = EmbeddedLog.transaction(log)
        rest._parts = {place: parts.pop(place) for place in list(parts) if place[0] == topics[-1]}
        first = whole()
        time.sleep(0.02)
        return {**first, **rest.commit()}

    transaction.commit = commit  # type: ignore[method-assign]
