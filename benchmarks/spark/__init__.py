"""Benchmarks of what Headwater adds to Spark, beside the same job written by hand in Spark alone."""
