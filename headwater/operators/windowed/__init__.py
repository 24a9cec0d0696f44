"""What windowed operators are made of: how time is cut, and the step that keeps windows per key."""

from headwater.operators.windowed.operator import Windowed
from headwater.operators.windowed.prepared import Late, check_columns, check_time, keys_of, prepared
from headwater.operators.windowed.spans import Calendar, Fixed, Spans, calendar, duration_us, fixed
from headwater.operators.windowed.step import END, START, Emit, WindowStep

__all__ = [
    "END",
    "START",
    "Calendar",
    "Emit",
    "Fixed",
    "Late",
    "Spans",
    "WindowStep",
    "Windowed",
    "calendar",
    "check_columns",
    "check_time",
    "duration_us",
    "fixed",
    "keys_of",
    "prepared",
]
