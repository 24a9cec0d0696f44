"""The thread pools of pages: one for short reads, one for statements, so that long statements delay no page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

#: What a page looks at waits for the disk, or for another process.
LOOKS = ThreadPoolExecutor(32, thread_name_prefix="headwater-page")
#: A statement works as long as it may; the next one waits for its place.
STATEMENTS = ThreadPoolExecutor(8, thread_name_prefix="headwater-statement")
