"""Benchmarks of Spark on topics of Kafka, beside Spark's own connector on the same brokers."""
