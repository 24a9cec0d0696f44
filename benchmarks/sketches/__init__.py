"""Approximate aggregates, compared with exact ones and with Spark's own sketches."""
