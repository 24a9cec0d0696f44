"""Search on streams: queries are stored, documents pass by."""

from headwater.operators.percolate.costs import QueryCost, costs
from headwater.operators.percolate.fields import Date, Geo, Keyword, Number, Text
from headwater.operators.percolate.highlights import Marking
from headwater.operators.percolate.operator import Percolate

__all__ = ["Date", "Geo", "Keyword", "Marking", "Number", "Percolate", "QueryCost", "Text", "costs"]
