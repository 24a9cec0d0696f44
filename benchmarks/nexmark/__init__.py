"""Benchmarks: the 23 queries of Nexmark beside bare Spark, Flink SQL, Pathway and Bytewax."""
