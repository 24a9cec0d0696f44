"""Queries that run: apps, the Spark session, and what it needs from the machine."""

from headwater.runtime.app import App
from headwater.runtime.java import Java, find_java
from headwater.runtime.session import session
from headwater.runtime.status import Graph, Node, QueryStatus
from headwater.runtime.table import Table

__all__ = ["App", "Graph", "Java", "Node", "QueryStatus", "Table", "find_java", "session"]
