"""Apps: declared queries, checked, run, supervised and replayed."""

from headwater.apps.app import App
from headwater.apps.captures import AppCapture
from headwater.apps.declaration import Table
from headwater.apps.status import Graph, Node, QueryStatus

__all__ = ["App", "AppCapture", "Graph", "Node", "QueryStatus", "Table"]
