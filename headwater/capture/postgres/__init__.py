"""PostgreSQL as a source: logical replication by `pgoutput`, decoded column by column into Arrow."""

from headwater.capture.postgres.source import PostgresConnector, PostgresSource

__all__ = ["PostgresConnector", "PostgresSource"]
