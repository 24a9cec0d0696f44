"""The app measured as a whole: its queries, views and sinks, beside bare Spark and other limits."""
