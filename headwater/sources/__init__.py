"""Topics as DataFrames: streams that grow, and tables that end."""

from headwater.sources.lag import lag_of, rows_read

__all__ = ["lag_of", "rows_read"]
