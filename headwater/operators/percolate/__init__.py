"""Search on streams: queries are stored, documents pass by."""

from headwater.operators.percolate.query.fields import Date, Geo, Keyword, Number, Text
from headwater.operators.percolate.run.highlights import Marking
from headwater.operators.percolate.run.percolate import Percolate
from headwater.operators.percolate.run.stored_queries import QueryCost, costs

__all__ = ["Date", "Geo", "Keyword", "Marking", "Number", "Percolate", "QueryCost", "Text", "costs"]
