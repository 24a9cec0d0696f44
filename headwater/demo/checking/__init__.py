"""Every output of the company, recomputed by DuckDB from the input topics and the record of late rows alone.

What an output should be is said once more here, in SQL and from its definition. Nothing of this package may import the
app, its operators or Spark: a test sees to that.
"""

from headwater.demo.checking.comparing import Outcome, compare
from headwater.demo.checking.expected import EXPECTED, LATE, Output

__all__ = ["EXPECTED", "LATE", "Outcome", "Output", "compare"]
