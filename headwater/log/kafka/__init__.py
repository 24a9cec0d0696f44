"""The adapter that keeps a log on Apache Kafka."""
