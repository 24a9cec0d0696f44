"""`make demo`: the three example apps on one log and one Spark session, fed live, and recomputed at the end.

`world` makes the rows, `checks` recomputes every output with DuckDB, `screen` shows what happens, and `director` leads
through it all.
"""
