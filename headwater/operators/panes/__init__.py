"""Panes: what a window says before it is complete, when it is, and when late rows correct it."""

from headwater.operators.panes import trigger
from headwater.operators.panes.operator import Panes
from headwater.operators.panes.trigger import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    EachOf,
    FirstOf,
    OrFinally,
    Repeatedly,
    Trigger,
    WhenClosed,
    every,
    rows,
)

__all__ = [
    "AfterCount",
    "AfterProcessingTime",
    "AfterWatermark",
    "AllOf",
    "EachOf",
    "FirstOf",
    "OrFinally",
    "Panes",
    "Repeatedly",
    "Trigger",
    "WhenClosed",
    "every",
    "rows",
    "trigger",
]
