"""Spark on the log: the session, topics as DataFrames, the topic sink, and the Java that Spark runs on."""

from headwater.spark.computed_columns import in_reader
from headwater.spark.java import Java, find_java
from headwater.spark.session import session
from headwater.spark.source.offsets import lag_of, rows_read

__all__ = ["Java", "find_java", "in_reader", "lag_of", "rows_read", "session"]
