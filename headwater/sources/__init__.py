"""Topics as DataFrames: streams that grow, and tables that end."""

from headwater.sources.lag import lag_of

__all__ = ["lag_of"]
