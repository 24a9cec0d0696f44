"""Analytics: what a row's past costs, beside Spark's own windowed aggregation over the same rows."""
