"""An app as a whole: its queries, views and sinks, compared with plain Spark and other limits."""
