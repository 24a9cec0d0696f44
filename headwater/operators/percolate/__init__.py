"""Search on streams: queries are stored, documents pass by."""

from headwater.operators.percolate.query.fields import Date, Geo, Ip, Keyword, Number, Text
from headwater.operators.percolate.run.highlights import Marking
from headwater.operators.percolate.run.percolate import Percolate
from headwater.operators.percolate.run.stored_queries import QueryCost, clear, costs, count

__all__ = [
    "Date",
    "Geo",
    "Ip",
    "Keyword",
    "Marking",
    "Number",
    "Percolate",
    "QueryCost",
    "Text",
    "clear",
    "costs",
    "count",
]
