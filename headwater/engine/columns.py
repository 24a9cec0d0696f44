"""Names of the columns that the engine adds to rows and to state."""

from __future__ import annotations

HASH = "_hash"
LIVE = "_live"
EVENT_TIMER = "_wake_at"
PROCESSING_TIMER = "_wake_at_processing"
TIMERS = (EVENT_TIMER, PROCESSING_TIMER)
KEY = "_key"
INPUT = "_input"
PUNCTUATION = "_punctuation"
TOPIC = "_topic"
#: Where a row stands in its topic, the last first: the order that breaks ties.
POSITION = ("_offset", "_partition")
SLOT = "_slot"
#: How far a late row was behind the watermark.
LATE_BY = "late_by_us"
REASON = "_reason"
#: How many rows a partial result stands for, where they were combined before they came.
ROWS = "_rows"
#: The key of rows that have none: all of them in one group.
ALL = "_all"
#: What the engine orders rows by and learns time from, where the rows have it.
PLACES = ("_topic", "_partition", "_offset", "_punctuation")
