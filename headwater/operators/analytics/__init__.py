"""What analytics share: rows in the order of event time, each with what the rows before it amount to."""

from headwater.operators.analytics.operator import InOrder
from headwater.operators.analytics.ordered import Measure, Measured, OrderedStep, Past, ordered_state

__all__ = ["InOrder", "Measure", "Measured", "OrderedStep", "Past", "ordered_state"]
