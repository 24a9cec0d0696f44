"""Joins: what each kind costs, beside Spark's own stateful aggregation or join over the same rows."""
