"""The engine for keyed operators: one pure step over all keys of a partition, with versioned state."""

from headwater.operators.keyed.contract import Broadcast, Contract, Step, Stepped
from headwater.operators.keyed.engine import due_keys
from headwater.operators.keyed.plan import applied_operators, apply
from headwater.operators.keyed.watermark import EVER, NEVER, BatchTime, Policy

__all__ = [
    "EVER",
    "NEVER",
    "BatchTime",
    "Broadcast",
    "Contract",
    "Policy",
    "Step",
    "Stepped",
    "applied_operators",
    "apply",
    "due_keys",
]
