"""Queries that run: the Spark session, and what it needs from the machine."""

from headwater.runtime.java import Java, find_java
from headwater.runtime.session import session

__all__ = ["Java", "find_java", "session"]
