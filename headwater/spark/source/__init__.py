"""Topics as DataFrames: streams that grow, and tables that end."""
