"""Patterns in the order of events, beside Spark's keyed aggregation, and a thousand rules at once."""
