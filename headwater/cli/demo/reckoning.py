"""What must hold at the end of the demo, counted from the log: nothing lost, nothing doubled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.demo.shop import INVOICES, LEDGER, ORDERS

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog


@dataclass(frozen=True, kw_only=True)
class Reckoning:
    """The counts of all orders; `lost` and `doubled` add up over both groups, the ledger and the log itself."""

    sent: int
    appended: int
    billed: int
    audited: int
    lost: int
    doubled: int

    @property
    def holds(self) -> bool:
        return self.lost == 0 and self.doubled == 0 and self.sent == self.appended == self.billed == self.audited

    def __str__(self) -> str:
        return f"appended {self.appended:,}  consumed {self.billed:,}  lost {self.lost:,}  doubled {self.doubled:,}"


def reckon(log: EmbeddedLog, *, sent: int, audited: dict[str, Any]) -> Reckoning:
    """Count every order by its number, wherever it should be.

    `audited` is what the process that read for the second group saw; for the first group its invoices speak.
    """
    orders = _numbers(log, ORDERS, "id")
    places = [_numbers(log, INVOICES, "order"), _numbers(log, LEDGER, "order")]
    lost = sent - len(orders) + sum(len(orders.keys() - place.keys()) for place in places)
    doubled = sum(count - 1 for place in (orders, *places) for count in place.values())
    return Reckoning(
        sent=sent,
        appended=orders.total(),
        billed=places[0].total(),
        audited=audited["seen"],
        lost=lost + len(orders) - audited["seen"],
        doubled=doubled + audited["doubled"],
    )


def _numbers(log: EmbeddedLog, topic: str, column: str) -> Counter[int]:
    counts: Counter[int] = Counter()
    for batch in log.read(topic, columns=[column]):
        counts.update(batch.column(0).to_pylist())
    return counts
