"""Spark on the log: the session, topics as DataFrames, the topic sink, and the Java that Spark runs on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwater.spark.java import Java, find_java
from headwater.spark.session import session

if TYPE_CHECKING:
    from headwater.spark.computed_columns import in_reader
    from headwater.spark.source.offsets import lag_of, rows_read

__all__ = ["Java", "find_java", "in_reader", "lag_of", "rows_read", "session"]

#: Loaded when they are first used: a command starts the JVM before it has loaded Arrow.
_HOMES = {
    "in_reader": "headwater.spark.computed_columns",
    "lag_of": "headwater.spark.source.offsets",
    "rows_read": "headwater.spark.source.offsets",
}


# Any: what a name stands for is known to type checkers from the imports above.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
