"""Benchmarks: what grows while a query runs on: cost with events and keys, files and time with batches."""
