"""The engine: what operators share. It runs one pure step over all keys of a partition, with versioned state."""

from headwater.engine.contract import Broadcast, Contract, Step, StepResult
from headwater.engine.event_time import EVER, NEVER, BatchTime, WatermarkStrategy
from headwater.engine.micro_batch import MicroBatch
from headwater.engine.spark_plan import applied_operators, apply
from headwater.engine.step import due_keys

__all__ = [
    "EVER",
    "NEVER",
    "BatchTime",
    "Broadcast",
    "Contract",
    "MicroBatch",
    "Step",
    "StepResult",
    "WatermarkStrategy",
    "applied_operators",
    "apply",
    "due_keys",
]
