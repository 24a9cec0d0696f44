"""Apps: declared queries, checked, run, supervised and replayed."""

from headwater.apps.app import App
from headwater.apps.declaration import Table
from headwater.apps.status import Graph, Node, QueryStatus

__all__ = ["App", "Graph", "Node", "QueryStatus", "Table"]
